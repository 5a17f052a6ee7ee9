"""Several cells, one after another: each is a run of its own; one report covers them all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipelines.core import units
from pipelines.core.console import console, print_error, say
from pipelines.core.errors import AuthError, HostError, PipelineError, TimeUpError
from pipelines.core.files import disk_errors
from pipelines.hosts.live import LiveSession
from pipelines.record.results import BuildResult, StageRecord
from pipelines.record.run import Run
from pipelines.reports import junit, terminal
from pipelines.reports.brief import brief_of
from pipelines.reports.load import NotBegun, load_any, view_without
from pipelines.reports.suites import junit_suites, suite_without
from pipelines.reports.write import tell_github, write_summary_pages
from pipelines.stages.line import Line


class CellsError(PipelineError):
    """Cells failed; the exit code is the worst of theirs.

    That is the highest; that of a build whose time was up only if nothing else went wrong.
    """

    title = "matrix"

    def __init__(self, message: str, *, hint: str, errors: Sequence[PipelineError]) -> None:
        super().__init__(message, hint=hint)
        worst = max(errors, key=lambda one: (not isinstance(one, TimeUpError), one.exit_code))
        self.exit_code = worst.exit_code


@dataclass
class Cell:
    """A cell on its way."""

    name: str
    line: Line
    error: PipelineError | None = None
    """Why it is not gone on with."""


class Matrix:
    """Cells of a plan on their way; those with the same host and Python share a session."""

    def __init__(
        self, cells: Sequence[Cell], left_out: Mapping[str, str], minutes: float | None = None
    ) -> None:
        """``left_out`` says of each cell that cannot be why not; ``minutes`` are for them all."""
        self.cells = tuple(cells)
        self.left_out = left_out
        self._ends = None if minutes is None else time.monotonic() + minutes * 60
        self._ready: dict[tuple[str, ...], StageRecord] = {}
        self._unreported = False
        self._unwritten: PipelineError | None = None

    def announce(self) -> None:
        """Say what will be done, and what will not and why."""
        names = ", ".join(cell.name for cell in self.cells)
        say(f"{units.pluralize(len(self.cells), 'cell')}: {names}", "bold")
        for why in dict.fromkeys(self.left_out.values()):
            names = ", ".join(name for name, said in self.left_out.items() if said == why)
            say(f"skipped {names}: {why}", "yellow")

    def each(self, step: Callable[[Line], object]) -> None:
        """Take every cell a step further but those that have failed: none ends the others."""
        for number, cell in enumerate(self.cells, 1):
            if cell.error is not None:
                continue
            place = f"cell {number} of {len(self.cells)}: {cell.name}"
            say(place, "bold")
            try:
                self._take(cell, step)
            except PipelineError as error:
                cell.error = error
                self._unreported = True
                print_error(error)
            self._leave(cell, lost=_is_host_unreachable(cell))
            if cell.line.begun or cell.error is not None:
                say(f"{place}: {_cell_outcome(cell)}", "red" if cell.error else "green")

    def _take(self, cell: Cell, step: Callable[[Line], object]) -> None:
        line = cell.line
        if self._ends is not None:
            left = (self._ends - time.monotonic()) / 60
            if left <= 0 and not line.begun:
                raise TimeUpError(
                    f"{cell.name} was not started: the time limit (--minutes) is reached",
                    hint="The same command continues with it.",
                )
            line.plan = replace(line.plan, minutes=max(left, 1 / 60))
        alike = tuple(line.plan.target.session.values())
        line.provisioned = line.provisioned or self._ready.get(alike)
        try:
            step(line)
        finally:
            self._unreported = self._unreported or line.begun
            if line.provisioned is not None:
                self._ready[alike] = line.provisioned

    def _leave(self, cell: Cell, *, lost: bool) -> None:
        """Close the session that the next cell does not use; one that is lost, none does."""
        here = self.cells.index(cell)
        later = [one for one in self.cells[here + 1 :] if one.error is None]
        if lost:
            for other in later:
                if other.line.session is cell.line.session:
                    other.error = HostError(
                        f"{other.name} was not continued: host {cell.line.plan.host.name} was lost",
                        hint="The same command continues with it.",
                    )
        if later and later[0].line.session is not cell.line.session:
            cell.line.session.close()

    def tell(self) -> None:
        """Write the one report of the cells that were begun, and say how all stand: once."""
        if not self._unreported:
            return
        self._unreported = False
        runs = [cell.line.run for cell in self.cells if cell.line.begun]
        others = [cell for cell in self.cells if not cell.line.begun and (cell.error or runs)]
        if not runs and not others:
            return
        try:
            page = write_together(self.cells[0].line.plan.out, runs, others)
        except PipelineError as error:
            say(f"the report could not be written: {error.message}", style="red")
            self._unwritten = error  # the one of an earlier matrix may be there
        else:
            many = units.pluralize(len(runs) + len(others), "cell")
            say(f"one report for {many}: {page}", style="bold")
        for cell in self.cells:
            if not cell.line.begun:
                why = cell.error.message if cell.error else "not started"
                say(f"{cell.name}: {why}", style="yellow")
        if self.left_out:
            say(f"{len(self.left_out)} more were skipped, for the reasons above", style="yellow")

    def require_all(self) -> None:
        """Raise :class:`CellsError` if any cell failed, else why there is no report of them."""
        failed = [(cell.name, cell.error) for cell in self.cells if cell.error is not None]
        if failed:
            said = ", ".join(f"{name} ({error.title})" for name, error in failed)
            raise CellsError(
                f"{len(failed)} of {len(self.cells)} cells failed: {said}",
                hint="The same command continues; finished cells are not built again.",
                errors=[error for _, error in failed],
            )
        if self._unwritten is not None:
            raise self._unwritten

    def close(self) -> None:
        """Leave the hosts as they were found, and the runs to others."""
        sessions: dict[int, LiveSession] = {}
        for cell in self.cells:
            sessions[id(cell.line.session)] = cell.line.session
            if cell.line.begun:
                cell.line.run.close()
        for session in sessions.values():
            session.close()


def write_together(folder: Path, runs: Sequence[Run], others: Sequence[Cell] = ()) -> Path:
    """Write one page, summary and ``junit.xml`` of ``runs`` to ``folder``; returns the page.

    ``others``: cells without a run. Also prints the outcomes. Raises ``StorageError``.
    """
    without = [_not_begun(cell) for cell in others]
    views = [*map(load_any, runs), *map(view_without, without)]
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    page = write_summary_pages(views, folder)
    begun = [suite for run in runs for suite in junit_suites(run)]
    junit.write_junit_file(folder / "junit.xml", [*begun, *map(suite_without, without)])
    console.print(terminal.render(views))
    tell_github(views, stages=False)  # each error was annotated when it came
    return page


def _is_host_unreachable(cell: Cell) -> bool:
    """Whether its host cannot be reached any more; where it is not sure, that is tried."""
    if not isinstance(cell.error, HostError) or isinstance(cell.error, AuthError):
        return isinstance(cell.error, AuthError)  # not tried again: accounts are locked for that
    try:
        cell.line.session.close()
        cell.line.session.connect()
    except PipelineError:
        return True
    return False


def _not_begun(cell: Cell) -> NotBegun:
    error = cell.error
    return NotBegun(
        cell.name,
        cell.line.plan.target,
        error.message if error else "not started",
        error.hint if error else "The same command continues with it.",
        failed=error is not None and not isinstance(error, HostError | AuthError | TimeUpError),
    )


def _cell_outcome(cell: Cell) -> str:
    if not cell.line.begun:
        return f"{cell.error.title} error" if cell.error else ""
    run = cell.line.run
    said = str(brief_of(run))
    built = run.result(BuildResult)
    if built is not None and built.kept:
        said += "; nothing was rebuilt, its inputs are those of an earlier build"
    return f"{said}  {run.path}"
