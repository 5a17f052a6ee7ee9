"""The reports of a fleet: its runs, and the cells that have none, as for any other matrix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from pipelines.core.errors import ConfigError
from pipelines.fleet.ledger import Ledger
from pipelines.fleet.model import Span, TaskEntry
from pipelines.record.run import Run
from pipelines.reports import junit
from pipelines.reports.load import NotBegun, load_view, view_without
from pipelines.reports.model import Suite
from pipelines.reports.suites import junit_suites, suite_without
from pipelines.reports.views import RunView
from pipelines.reports.write import tell_github, write_summary_pages


def write_fleet_report(ledger: Ledger) -> Path:
    """``report.html``, ``junit.xml`` and ``summary.md`` in the fleet's directory; the page.

    Raises ``StorageError`` when they cannot be written, :class:`ConfigError` for a damaged ledger,
    and for one without tasks.
    """
    cells: dict[str, list[TaskEntry]] = {}
    for entry in ledger.tasks():
        cells.setdefault(entry.task.cell, []).append(entry)
    if not cells:
        raise ConfigError(f"{ledger.path.name} has no tasks", hint="There is nothing to report.")
    attempts = ledger.attempts()
    shown = [_cell_report(ledger.path, name, tasks, attempts) for name, tasks in cells.items()]
    views = [view for view, _ in shown]
    page = write_summary_pages(views, ledger.path)
    junit.write_junit_file(ledger.path / "junit.xml", [one for _, made in shown for one in made])
    tell_github(views)
    return page


def _cell_report(
    folder: Path, name: str, tasks: Sequence[TaskEntry], attempts: Iterable[Span]
) -> tuple[RunView, list[Suite]]:
    """A cell's run, unless it is not done and its run does not say why."""
    undone = next((one for one in tasks if one.state != "done"), None)
    keys = {one.task.key for one in tasks if one.task.kind != "shard"}
    run = _latest_existing_run([span.run for span in attempts if span.key in keys], folder)
    why = "its run was removed"
    if run is not None:
        try:
            view, made = load_view(run), junit_suites(run)
        except ConfigError as error:
            why = error.message
        else:
            if undone is None or view.verdict == "failed":
                return view, made
    cell = (
        _cell_without_run(name, tasks[0], why)
        if undone is None
        else _cell_without_run(name, undone)
    )
    return view_without(cell), [suite_without(cell)]


def _latest_existing_run(names: Sequence[str], folder: Path) -> Run | None:
    """The last of these runs that is there; whoever wrote the ledger names no other directory."""
    for name in reversed([one for one in names if one]):
        path = Path(name)
        sibling = path.parent.resolve() == folder.resolve().parent and not path.is_symlink()
        if sibling and (path / "record.sqlite").is_file():
            return Run(path)
    return None


def _cell_without_run(name: str, entry: TaskEntry, why: str = "") -> NotBegun:
    why = why or f"{entry.task.key} is {entry.state}"
    if entry.error is not None:
        why += f": {entry.error.message}"
    return NotBegun(
        name,
        entry.task.target,
        why,
        entry.error.hint if entry.error else "The same command resumes it.",
        failed=entry.state in ("failed", "quarantined", "blocked"),
    )
