"""Writes what people and CI systems read, from the run's record alone; and says it in short."""

from __future__ import annotations

from pathlib import Path

from pipelines.core.console import console
from pipelines.record.run import Run
from pipelines.reports import junit, terminal
from pipelines.reports.load import load_any, load_view
from pipelines.reports.suites import suites
from pipelines.reports.write import tell_github, write


def report(run: Run) -> Path:
    """Write ``junit.xml``, ``report.html`` and ``summary.md``.

    The path is that of ``junit.xml``: a suite a stage plus the smoke suite.
    """
    path = run.path / "junit.xml"
    junit.write(path, suites(run))
    write([load_view(run)], run.path)  # after junit.xml: it is one of the files
    return path


def tell(run: Run) -> None:
    """Say in short how the run went, also to GitHub."""
    views = [load_any(run)]
    console.print(terminal.render(views))
    # A stage's own error is printed, and annotated, by whoever ends the command with it.
    tell_github(views, stages=False)
