"""``--select``: the cells of a plan as lines, all resolved before the first one starts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pipelines.cli.lines import (
    Tell,
    effective_settings,
    held_matrix,
    hold_matrix,
    native_facts,
    request_of,
)
from pipelines.cli.options import Flags
from pipelines.core.errors import ConfigError

if TYPE_CHECKING:
    from pipelines.hosts.live import LiveSession
    from pipelines.plan.config.model import Config
    from pipelines.plan.matrix.buildplan import Request
    from pipelines.plan.matrix.plan import Row
    from pipelines.stages.line import Line
    from pipelines.stages.matrix import Matrix


def open_matrix(flags: Flags) -> Matrix:
    """The matrix of these flags: the open one, if any.

    Its cells are those of ``invoke plan`` with the same flags. Those that the plan rejects are left
    out with the reason; :class:`ConfigError` if nothing remains, or ``--select`` names such a cell.
    """
    from pipelines.plan.matrix.cells import patterns_of
    from pipelines.plan.matrix.plan import plan_matrix
    from pipelines.stages.matrix import Cell, Matrix

    if (opened := held_matrix()) is not None:
        return opened
    request, shared = request_of(flags)
    if request.share or request.objects:
        raise ConfigError(
            "--shard and --objects are for one wheel, and --select is for several",
            hint="Use --shards N with --select, or name the one cell by its axes.",
        )
    settings = effective_settings(shared, request.axes.get("host"))
    plan = plan_matrix(
        settings,
        request,
        select=shared.select,
        facts=native_facts(
            request.axes.get("host"),
            request.axes.get("archs") or settings.default.archs,
            gpu=shared.gpu,
        ),
    )
    left_out = {row.name: row.why_not for row in plan.rows if not row.possible}
    cells: list[Cell] = []
    sessions: dict[tuple[str, str], LiveSession] = {}
    for row in plan.rows:
        if row.possible:
            try:
                cells.append(Cell(row.name, _open_cell_line(settings, request, row, sessions)))
            except ConfigError as error:
                left_out[row.name] = error.message
    if not cells:
        raise ConfigError(
            f"none of {len(left_out)} cells can be built: {_together(left_out.values())}",
            hint="invoke plan shows every cell, and what would work instead.",
        )
    for name in patterns_of(shared.select or ""):
        if name in left_out:  # it was asked for by its own name, not by a pattern
            raise ConfigError(
                f"{name} cannot be built: {left_out[name]}",
                hint=f"Leave it out of --select; invoke plan --select {name} says what would work.",
            )
    matrix = Matrix(cells, left_out, request.minutes)
    matrix.announce()
    return hold_matrix(matrix)


def _open_cell_line(
    settings: Config, request: Request, row: Row, sessions: dict[tuple[str, str], LiveSession]
) -> Line:
    from pipelines.hosts.live import LiveSession
    from pipelines.plan.matrix.buildplan import resolve_build_plan
    from pipelines.stages.line import Line

    same = (row.target.host, row.target.python)  # what decides which Python is talked to
    shared = sessions.get(same)
    plan = resolve_build_plan(
        settings,
        request.of(row.target),
        host=shared.host if shared else None,
        events=Tell,
    )
    return Line(plan, sessions.setdefault(same, LiveSession(plan.host)))


def _together(reasons: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(reasons))[:2000]
