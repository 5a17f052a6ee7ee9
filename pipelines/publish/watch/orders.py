"""What becomes of the cells: built now, later, once something is pinned, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pipelines.core.finding import Finding
from pipelines.core.target import Target
from pipelines.plan.matrix.judge import NOT_PINNED
from pipelines.plan.matrix.plan import Plan
from pipelines.publish.watch.cells import Cell, State, Watched


def judge_cells(watched: Watched, plan: Plan | None) -> Watched:
    """``plan`` is that of the cells, if there are any."""
    rows = {row.name: row for row in plan.rows} if plan is not None else {}
    cells = []
    for one in watched.cells:
        row = rows[one.name]
        found = (finding for finding in row.judged.findings if finding.failed)
        errors = tuple(finding for finding in found if finding.id != NOT_PINNED)
        missing = tuple(plan.ground.unavailable(row.target)) if plan is not None else ()
        state: State = "no"
        if missing and not errors and row.way.action == "build":
            state = "pin"
        elif row.possible:
            state = "build"
        elif not errors:
            errors = (Finding(id="nothing-prebuilt", level="error", actual=row.way.why),)
        seconds = row.judged.budget.wall_seconds if row.judged.budget else None
        cells.append(replace(one, state=state, missing=missing, errors=errors, seconds=seconds))
    return replace(watched, cells=tuple(cells))


def mark_pinned_cells(orders: Iterable[Watched], targets: Iterable[Target]) -> list[Watched]:
    """With the cells of ``targets`` to be built: what they need is pinned first."""
    known = {*targets}
    return _set_cell_state(orders, "build", lambda one: one.state == "pin" and one.target in known)


def _set_cell_state(
    orders: Iterable[Watched], state: State, which: Callable[[Cell], bool]
) -> list[Watched]:
    """The orders with cells in another state."""
    return [
        replace(
            order,
            cells=tuple(replace(one, state=state) if which(one) else one for one in order.cells),
        )
        for order in orders
    ]


def limit_cells_to_build(orders: Sequence[Watched], most: int, turn: int = 0) -> list[Watched]:
    """No more than ``most`` are built now: the first half of these, and others by turns.

    So no cell waits for ever behind those that fail every time.
    """
    ready = [id(one) for order in orders for one in order.of("build")]
    now, rest = ready[: most // 2], ready[most // 2 :]
    if len(ready) > most:
        start = turn * (most - len(now)) % len(rest)
        rest = (rest[start:] + rest[:start])[: most - len(now)]
    later = {*ready} - {*now, *rest}
    return _set_cell_state(orders, "later", lambda one: id(one) in later)


def gha_strategy_matrix(orders: Sequence[Watched], archs: str = "") -> dict[str, Any]:
    """A value for ``strategy.matrix``: for each recipe the inputs of wheels.yml.

    ``archs`` is what was asked for; empty: each recipe's own.
    """
    rows: list[Mapping[str, str]] = []
    for order in orders:
        if not (cells := order.of("build")):
            continue
        recipe = order.recipe

        def all_of(axis: str, cells: Sequence[Cell] = cells) -> str:
            return ",".join(dict.fromkeys(getattr(one.target, axis) for one in cells))

        rows.append(
            {
                "recipe": recipe.name,
                "recipe-version": recipe.version,
                **{axis: all_of(axis) for axis in ("python", "torch", "cuda")},
                "archs": archs,
                "select": ",".join(one.name for one in cells),
            }
        )
    return {"include": rows}
