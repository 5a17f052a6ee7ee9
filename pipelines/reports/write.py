"""Writes reports as files of a run, and to GitHub Actions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pipelines.core.console import console, say
from pipelines.core.files import write_atomic
from pipelines.core.hosttext import safe_text
from pipelines.record.run import Run
from pipelines.reports import junit, markdown, terminal
from pipelines.reports.load import load_any, load_view
from pipelines.reports.suites import junit_suites
from pipelines.reports.views import RunView


def write_summary_pages(views: Sequence[RunView], folder: Path) -> Path:
    """Write ``report.html`` and ``summary.md`` of ``views`` in ``folder``, atomically."""
    from pipelines.reports import html  # not for commands that make no page

    page = folder / "report.html"
    write_atomic(page, html.render(views, folder).encode())
    write_atomic(folder / "summary.md", markdown.summary(views).encode())
    return page


def tell_github(views: Sequence[RunView], *, stages: bool = True) -> None:
    """In GitHub Actions: write the job's summary and annotations."""
    if step := os.environ.get("GITHUB_STEP_SUMMARY"):
        try:
            with Path(step).open("a", encoding="utf-8") as file:
                file.write(markdown.summary(views))
        except OSError as error:
            say(f"the step summary cannot be written: {error.strerror}", style="yellow")
    if os.environ.get("GITHUB_ACTIONS"):
        for command in markdown.error_annotations(views, stages=stages):
            console.print(safe_text(command, 4000), markup=False, highlight=False, soft_wrap=True)


def write_run_reports(run: Run) -> Path:
    """Write ``junit.xml``, ``report.html`` and ``summary.md``.

    The path is that of ``junit.xml``: a suite a stage plus the smoke suite.
    """
    path = run.path / "junit.xml"
    junit.write_junit_file(path, junit_suites(run))
    write_summary_pages([load_view(run)], run.path)  # after junit.xml: it is one of the files
    return path


def announce_outcome(run: Run) -> None:
    """Say in short how the run went, also to GitHub."""
    views = [load_any(run)]
    console.print(terminal.render(views))
    # A stage's own error is printed, and annotated, by whoever ends the command with it.
    tell_github(views, stages=False)
