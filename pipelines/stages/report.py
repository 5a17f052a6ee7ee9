"""Writes what people and CI systems read, from the run's record alone."""

from __future__ import annotations

from pathlib import Path

from pipelines.console import console
from pipelines.reports import junit, terminal
from pipelines.reports.load import load_view
from pipelines.reports.suites import suites
from pipelines.reports.write import tell_github, write
from pipelines.run import Run


def report(run: Run) -> Path:
    """Write ``junit.xml``, ``report.html`` and ``summary.md``, and say in short how it went.

    The path is that of ``junit.xml``: a suite a stage plus the smoke suite.
    """
    path = run.path / "junit.xml"
    junit.write(path, suites(run))
    views = [load_view(run)]  # after junit.xml: it is one of the files
    write(views, run.path)
    console.print(terminal.render(views))
    # A stage's own error is printed, and annotated, by whoever ends the command with it.
    tell_github(views, stages=False)
    return path
