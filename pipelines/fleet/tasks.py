"""From a matrix and the hosts to tasks: what each is, what it needs, and where it fits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from pipelines.core.architectures.archs import compute_capability
from pipelines.core.errors import ConfigError
from pipelines.core.units import GIB
from pipelines.fleet.model import Machine, Needs, Task
from pipelines.hosts.base import HostConfig, Supply
from pipelines.plan.matrix.budget import RESERVE
from pipelines.plan.matrix.hostfacts import HostFacts
from pipelines.plan.matrix.plan import Plan, Row
from pipelines.plan.matrix.shares import shares_for
from pipelines.recipe.model import Recipe
from pipelines.toolchain.lock import load_lock

#: Core-seconds of a cell that was never measured.
_UNKNOWN = 300.0
#: The same of a smoke test; it takes one core.
_TEST = 120.0
#: Core-seconds that placing, checking and linking the objects of shards takes.
_LINK = 90.0
_LEAST = 2 * GIB


@dataclass(frozen=True)
class Cells:
    """The tasks of an order, with the axes of each cell, and what was left out and why."""

    tasks: tuple[Task, ...]
    """None is before what it comes after."""
    recipe: Recipe
    axes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Of each cell, but for its host."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Cells that no host can build, each with the first reason."""


def plan_hosts(
    hosts: Mapping[str, HostConfig],
    facts: Mapping[str, HostFacts],
    plan: Callable[[str, HostFacts | None], Plan],
) -> dict[str, Plan | str]:
    """The plan for each host, or why it can have none; hosts that are alike are planned once."""
    lock = load_lock()
    found: dict[str, Plan | str] = {}
    known: list[tuple[Supply, HostFacts | None, Plan | str]] = []
    for name, host in hosts.items():
        try:
            supply = host.supply(lock)
            same = (made for *alike, made in known if alike == [supply, facts.get(name)])
            found[name] = next(same, None) or plan(name, facts.get(name))
        except ConfigError as error:
            found[name] = error.message
        else:
            known.append((supply, facts.get(name), found[name]))
    return found


def tasks_of(
    plans: Mapping[str, Plan | str],
    machines: Mapping[str, Machine],
    *,
    test: bool,
    shards: int | None = None,
) -> Cells:
    """The cells of ``plans``, by host, as tasks; with ``test`` each has its smoke test as well.

    ``shards``: how many for each; 0: as many as are useful; ``None``: built as a whole. Raises
    :class:`ConfigError` if no host can build any cell.
    """
    rows: dict[str, dict[str, Row]] = {}
    for host, plan in plans.items():
        if isinstance(plan, Plan):
            for row in plan.rows:
                rows.setdefault(_cell_key(plan, row), {})[host] = row
    tasks: list[Task] = []
    axes: dict[str, dict[str, str]] = {}
    left_out: dict[str, str] = {}
    unplanned = {host: plan for host, plan in plans.items() if isinstance(plan, str)}
    for key, by_host in rows.items():
        refused = unplanned | {h: r.why_not for h, r in by_host.items() if not r.possible}
        fitting = {host: row for host, row in by_host.items() if row.possible}
        if not fitting:
            reasons = [*dict.fromkeys(refused.values())]
            left_out[key] = "; ".join(reasons[:3]) or "no host can build it"
            continue
        cell, row = _make_cell_task(key, fitting, refused), next(iter(fitting.values()))
        tasks += _split_into_shards(cell, plans, fitting, shards)
        values = row.target.values().items()
        axes[key] = {axis: value for axis, value in values if value and axis != "host"}
        if test:
            tasks.append(_test(cell, row, fitting, machines))
    if not tasks:
        every = "; ".join(dict.fromkeys([*left_out.values(), *unplanned.values()]))[:2000]
        raise ConfigError(
            f"no host of the fleet can build any of these cells: {every or 'there is no host'}",
            hint="invoke plan --host NAME shows every cell, and what would work instead.",
        )
    recipe = next(plan.recipe for plan in plans.values() if isinstance(plan, Plan))
    return Cells(tuple(tasks), recipe, axes, left_out)


def _cell_key(plan: Plan, row: Row) -> str:
    return "-".join(filter(None, (plan.recipe.name, plan.recipe.version, row.name)))


def _make_cell_task(key: str, rows: Mapping[str, Row], refused: Mapping[str, str]) -> Task:
    budgets = [budget for row in rows.values() if (budget := row.judged.budget) is not None]
    target = next(iter(rows.values())).target
    return Task(
        key=key,
        kind="cell",
        cell=key,
        target=target.model_copy(update={"host": ""}),
        core_seconds=max((one.core_seconds for one in budgets), default=_UNKNOWN),
        width=max((one.jobs * one.threads for one in budgets), default=1),
        # With one compiler at a time: how many there are is planned where it runs.
        needs=Needs(
            memory=min(
                ((one.peak - RESERVE) // max(1, one.jobs) + RESERVE for one in budgets),
                default=_LEAST,
            )
        ),
        hosts=tuple(rows),
        refused=dict(refused),
        warm="/".join((target.python, target.torch, target.cuda)),
    )


def _split_into_shards(
    cell: Task, plans: Mapping[str, Plan | str], rows: Mapping[str, Row], shards: int | None
) -> list[Task]:
    """A cell as its shards and their link, or as a whole where dividing it does no good."""
    count = 1 if shards is None else shards or _auto(plans, rows)
    if count == 1 and not shards:
        return [cell]
    share = cell.model_copy(update={"kind": "shard", "core_seconds": cell.core_seconds / count})
    keys = [f"{cell.key}/{number}of{count}" for number in range(1, count + 1)]
    link = cell.model_copy(
        update={"kind": "link", "core_seconds": _LINK, "width": 1, "after": tuple(keys)}
    )
    return [*(share.model_copy(update={"key": key}) for key in keys), link]


def _auto(plans: Mapping[str, Plan | str], rows: Mapping[str, Row]) -> int:
    """What ``auto`` stands for, on all hosts that fit the cell."""
    facts, cost, archs = [], None, None
    for host, row in rows.items():
        plan = plans[host]
        # One that was not asked yet may be of any size.
        if isinstance(plan, Plan) and row.judged.archs is not None and plan.ground.host.cores:
            facts.append(plan.ground.host)
            cost, archs = plan.recipe.cost(row.target.cuda), row.judged.archs.effective
    return 1 if archs is None else shares_for(cost, facts, archs)[0]


def _test(cell: Task, row: Row, fitting: Iterable[str], machines: Mapping[str, Machine]) -> Task:
    """A cell's smoke test: where a GPU of its architectures is, if there is one anywhere."""
    wanted = tuple(sorted({compute_capability(arch) for arch in row.target.archs.sass}))
    gpus = {name: set(machine.gpus) for name, machine in machines.items() if machine.gpus}
    able = [name for name in fitting if gpus.get(name, set()) & {*wanted}]
    missing = {
        name: f"its GPUs are of {', '.join(machines[name].gpus) or 'none'}, not {', '.join(wanted)}"
        for name in fitting
        if able and name not in able and name in machines
    }
    return Task(
        key=f"{cell.key}/test",
        kind="test",
        cell=cell.key,
        target=cell.target,
        core_seconds=_TEST,
        needs=Needs(slots=0, memory=_LEAST, gpu=wanted if able else ()),
        after=(cell.key,),
        hosts=tuple(able or fitting),
        refused={**cell.refused, **missing},
        warm=cell.warm,
    )
