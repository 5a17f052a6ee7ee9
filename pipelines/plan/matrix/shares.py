"""How many shards of a wheel's compile units are useful, and how long they take."""

from __future__ import annotations

import fnmatch
import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.core import units
from pipelines.core.architectures.archs import ArchList
from pipelines.plan.matrix.budget import compile_weight, plan_budget
from pipelines.plan.matrix.hostfacts import HostFacts
from pipelines.recipe.model import Cost, Recipe
from pipelines.record.shards import MOST
from pipelines.remote.shards import balance

#: Minimum seconds for a shard: its host must be prepared, its source unpacked, its objects sent.
LEAST = 300.0
#: Concurrent runners that GitHub gives a free account:
#: https://docs.github.com/en/actions/reference/limits
RUNNERS = 20


@dataclass(frozen=True)
class Shares:
    """The times of a divided wheel, each shard on a host like the assumed one."""

    count: int
    units: int
    longest_seconds: float
    """Of its shards; without preparing hosts, transfers and the link."""
    alone_seconds: float
    """Of the whole wheel on one such host."""

    @property
    def summary(self) -> str:
        """For people."""
        return (
            f"{units.pluralize(self.count, 'shard')} of {units.pluralize(self.units, 'unit')}: the "
            f"longest takes about {units.format_estimate(self.longest_seconds)}, all of them on "
            "one host "
            f"{units.format_estimate(self.alone_seconds)}"
        )


def pin_nvcc_threads(cost: Cost) -> Cost:
    """The cost of units that several hosts compile: with the same number of nvcc threads.

    That number is in their commands, which must be equal everywhere.
    """
    return cost.model_copy(update={"nvcc_threads": cost.nvcc_threads or 1})


def shares_for(
    cost: Cost | None,
    hosts: Sequence[HostFacts],
    archs: ArchList,
    jobs: int | None = None,
    *,
    least: float = LEAST,
) -> tuple[int, str]:
    """The meaning of ``auto`` on these hosts, and why; 1: not divided.

    At most one per host and unit, and none shorter than ``least`` seconds on the fastest host.
    Raises :class:`ConfigError` if no compile job fits a host.
    """
    if cost is None:
        return 1, "because the recipe has no costs"
    if len(hosts) < 2:  # noqa: PLR2004
        return 1, "because there is only one host"
    alone = min(
        plan_budget(pin_nvcc_threads(cost), host, archs, jobs).wall_seconds for host in hosts
    )
    count = max(1, min(len(hosts), cost.units, MOST, int(alone / least)))
    return count, f"for {len(hosts)} hosts; one alone would take {units.format_estimate(alone)}"


def estimate_shares(
    recipe: Recipe,
    host: HostFacts,
    archs: ArchList,
    count: int,
    *,
    jobs: int | None = None,
    names: Sequence[str] | None = None,
) -> Shares | None:
    """The times of ``count`` shards; 0: as many as are useful with :data:`RUNNERS`.

    ``None`` without costs in the recipe. ``names`` are the files of its source; its ``objects`` say
    which are compiled. Raises :class:`ConfigError` if no compile job fits the host.
    """
    cost = recipe.cost(recipe.cuda)
    if cost is None:
        return None
    seconds = _unit_seconds(recipe, cost, names or ())
    cost = pin_nvcc_threads(cost).model_copy(update={"units": len(seconds)})
    if not count:
        count, _ = shares_for(cost, [host] * RUNNERS, archs, jobs)
    each = {str(number): one * compile_weight(archs) for number, one in enumerate(seconds)}
    most = plan_budget(cost, host, archs, jobs).jobs
    longest = max(
        _schedule_makespan([each[unit] for unit in share], most)
        for share in balance.divided(each, count)
    )
    alone = _schedule_makespan(sorted(each.values(), reverse=True), most)
    return Shares(count, len(seconds), longest, alone)


def _unit_seconds(recipe: Recipe, cost: Cost, names: Sequence[str]) -> list[float]:
    """Seconds of each unit for one architecture; the average of all if its own are unknown."""
    globs = (*recipe.objects.relative, *recipe.objects.absolute)
    found = [name for name in names if any(fnmatch.fnmatchcase(name, glob) for glob in globs)]
    costs = list(recipe.unit_costs.items())
    if not found or not costs:
        return [cost.unit_seconds] * cost.units
    return [balance.weight(name, costs, cost.unit_seconds) for name in found]


def _schedule_makespan(seconds: Sequence[float], jobs: int) -> float:
    """Seconds until the last one is done, ``jobs`` at a time, each started when another ends."""
    ends = [0.0] * jobs
    for one in seconds:
        heapq.heapreplace(ends, ends[0] + one)
    return max(ends)
