"""What becomes of the cells: built now, later, once something is pinned, or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pipelines.core.finding import Finding
from pipelines.matrix.judge import NOT_PINNED
from pipelines.matrix.plan import Plan
from pipelines.publish.watch.cells import Wanted, Watched
from pipelines.record.target import Target

State = Literal["build", "later", "pin", "no"]


@dataclass(frozen=True)
class Cell:
    """A cell of which the index has no wheel, and what becomes of it."""

    wanted: Wanted
    state: State
    lacks: tuple[str, ...] = ()
    """Tools that the lock has not, or has not pinned, for it."""
    errors: tuple[Finding, ...] = ()
    """Why it cannot be built."""
    seconds: float | None = None
    """That its build takes, as far as is known."""

    @property
    def target(self) -> Target:
        """What is to be built."""
        return self.wanted.cell.target


@dataclass(frozen=True)
class Order:
    """A recipe with what becomes of its cells."""

    watched: Watched
    cells: tuple[Cell, ...]

    def of(self, *states: State) -> list[Cell]:
        """Those of these states."""
        return [one for one in self.cells if one.state in states]


def order_of(watched: Watched, plan: Plan | None) -> Order:
    """``plan`` is that of the cells that are wanted, if there are any."""
    rows = {row.name: row for row in plan.rows} if plan is not None else {}
    cells = []
    for one in watched.wanted:
        row = rows[one.name]
        judged = row.judged
        found = (finding for finding in judged.findings if finding.failed)
        errors = tuple(finding for finding in found if finding.id != NOT_PINNED)
        lacks = tuple(plan.ground.lacking(row.target)) if plan is not None else ()
        state: State = "no"
        if lacks and not errors and row.way.action == "build":
            state = "pin"
        elif row.possible:
            state = "build"
        elif not errors:
            errors = (Finding(id="nothing-prebuilt", level="error", actual=row.way.why),)
        seconds = judged.budget.wall_seconds if judged.budget else None
        cells.append(Cell(one, state, lacks, errors, seconds))
    return Order(watched, tuple(cells))


def pinned(orders: Iterable[Order], targets: Iterable[Target]) -> list[Order]:
    """The cells of ``targets`` lack nothing any more that is not pinned on the way."""
    known = {*targets}
    return [
        Order(
            order.watched,
            tuple(
                replace(one, state="build") if one.state == "pin" and one.target in known else one
                for one in order.cells
            ),
        )
        for order in orders
    ]


def bounded(orders: Sequence[Order], most: int, turn: int = 0) -> list[Order]:
    """No more than ``most`` are built now: the first half of these, and others by turns.

    So no cell waits for ever behind those that fail every time.
    """
    ready = [id(one) for order in orders for one in order.of("build")]
    now, rest = ready[: most // 2], ready[most // 2 :]
    if len(ready) > most:
        start = turn * (most - len(now)) % len(rest)
        rest = (rest[start:] + rest[:start])[: most - len(now)]
    later = {*ready} - {*now, *rest}
    return [
        Order(
            order.watched,
            tuple(replace(one, state="later") if id(one) in later else one for one in order.cells),
        )
        for order in orders
    ]


def as_gha(orders: Sequence[Order], archs: str = "") -> dict[str, Any]:
    """A value for ``strategy.matrix``: for each recipe the inputs of wheels.yml.

    ``archs`` is what was asked for; empty: each recipe's own.
    """
    rows: list[Mapping[str, str]] = []
    for order in orders:
        if not (cells := order.of("build")):
            continue
        recipe = order.watched.recipe

        def all_of(axis: str, cells: Sequence[Cell] = cells) -> str:
            return ",".join(dict.fromkeys(getattr(one.target, axis) for one in cells))

        rows.append(
            {
                "recipe": recipe.name,
                "recipe-version": recipe.version,
                **{axis: all_of(axis) for axis in ("python", "torch", "cuda")},
                "archs": archs,
                "select": ",".join(one.wanted.name for one in cells),
            }
        )
    return {"include": rows}
