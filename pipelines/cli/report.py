"""``invoke report``: reports made again from the records of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipelines.cli.command import command
from pipelines.cli.options import Flags


def run_report(names: Sequence[str]) -> Path:
    """Make the reports of the runs called ``names`` again; the HTML page.

    Names are those of :func:`find`, or none: ``latest``; or one name of a fleet. One run's page is
    ``report.html`` in its directory; that of several is next to the first one's directory, and says
    which are damaged. ``summary.md`` comes with it. Raises :class:`ConfigError` for what is not a
    run, ``StorageError`` if the page cannot be written.
    """
    from pipelines.cli.find import find_runs, fleet_of
    from pipelines.core.console import console, say
    from pipelines.reports import terminal
    from pipelines.reports.load import load_any, load_view
    from pipelines.reports.write import tell_github, write_summary_pages
    from pipelines.stages.manifest import write_manifest

    if len(names) == 1 and (fleet := fleet_of(names[0])) is not None:
        return report_fleet(fleet)
    found = (run for name in (names or ["latest"]) for run in find_runs(name))
    runs = [*{run.path.resolve(): run for run in found}.values()]
    views = [load_view(run) if len(runs) == 1 else load_any(run) for run in runs]
    folder = runs[0].path if len(runs) == 1 else runs[0].path.parent
    page = write_summary_pages(views, folder)
    console.print(terminal.render(views))
    tell_github(views)
    if len(runs) == 1:  # last: it refuses a wheel that is no longer the one that was audited
        write_manifest(runs[0])
    say(f"{page}  {page.stat().st_size:,} bytes", style="bold")
    return page


def report_fleet(folder: Path) -> Path:
    """Make the page of a fleet again from its ledger, with JUnit and summary; the page."""
    from contextlib import closing

    from pipelines.core.console import say
    from pipelines.fleet import report
    from pipelines.fleet.ledger import Ledger

    with closing(Ledger(folder)) as ledger:
        page = report.write_fleet_report(ledger)
    say(f"{page}  {page.stat().st_size:,} bytes", style="bold")
    return page


@command(
    help={
        "run": "a name below out/, latest, a run's directory, or a directory of runs, "
        "or of a fleet",
        "also": "another run for the same page; may be repeated",
    },
    many=("also",),
)
def report(_: Flags, run: str, *, also: list[str] | None = None) -> None:
    """Write the reports of runs again: one HTML page, summaries for GitHub and terminal."""
    run_report([run, *(also or ())])
