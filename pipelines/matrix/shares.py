"""Into how many shares a wheel's compile units are worth dividing, and what that takes."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines import units
from pipelines.architectures.archs import ArchList
from pipelines.divided import MOST
from pipelines.matrix.budget import plan_budget
from pipelines.matrix.hostfacts import HostFacts
from pipelines.recipe.model import Cost

#: Seconds that a share should take at least: its host must be made ready, its source unpacked,
#: its objects sent.
LEAST = 300.0


def shares_for(
    cost: Cost | None,
    hosts: Sequence[HostFacts],
    archs: ArchList,
    jobs: int | None = None,
    *,
    least: float = LEAST,
) -> tuple[int, str]:
    """What ``auto`` stands for on these hosts, and why; 1: it is not divided.

    No more than hosts or units, and no share shorter than ``least`` seconds on the fastest of them.
    Raises :class:`ConfigError` where no compile job fits a host.
    """
    if cost is None:
        return 1, "the recipe has no costs, by which it could be divided"
    if len(hosts) < 2:  # noqa: PLR2004
        return 1, "for there is one host"
    alone = min(plan_budget(cost, host, archs, jobs).wall_seconds for host in hosts)
    count = max(1, min(len(hosts), cost.units, MOST, int(alone / least)))
    return count, f"for {len(hosts)} hosts, of which one would take {units.estimate(alone)}"
