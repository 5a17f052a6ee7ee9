"""How long a build has left: from the plan's estimate, and then from the units it finishes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipelines.core import units
from pipelines.plan.matrix.budget import plan_budget
from pipelines.plan.matrix.buildplan import BuildPlan
from pipelines.plan.matrix.hostfacts import HostFacts
from pipelines.recipe.model import Cost
from pipelines.stages.hooks import RunHooks, requested_features

if TYPE_CHECKING:
    from pipelines.hosts.live import LiveSession

#: Units reported within so many seconds may have been finished long ago: a log that is read from
#: its beginning arrives all at once.
_BURST = 1.0


@dataclass
class Pace:
    """The remaining seconds of a build, if known.

    A unit takes as long as the last few did, weighed with the plan's estimate, which counts as much
    as ``jobs`` units: so a compile cache that has them all soon shows, and one quick unit does not.
    """

    planned: float | None
    """Seconds that the whole build takes by the plan; ``None``: unknown."""
    units: int
    """Compile units that it is planned for; what is left of a build may be fewer."""
    jobs: int
    """Compile units at a time."""
    clock: Callable[[], float] = time.monotonic
    done: int = 0
    total: int = 0
    _last: deque[tuple[float, int]] = field(default_factory=deque)
    """When how many units were finished: the last ones, the oldest first."""

    def __post_init__(self) -> None:
        self._begun = self.clock()
        self._last.append((self._begun, 0))

    def finished(self, done: int, total: int) -> None:
        """So many units of so many are finished now."""
        if done < self.done or total != self.total:  # a build in several parts, or restarted
            self._last.clear()
            self._last.append((self._begun if not self.total else self.clock(), 0))
        self.done, self.total = done, total
        self._last.append((self.clock(), done))
        while len(self._last) > max(3 * self.jobs, 6):
            self._last.popleft()

    def left(self) -> float | None:
        """Seconds until the last unit is finished; ``None`` when that is not known."""
        now = self.clock()
        if not self.done or not self.total:
            rest = None if self.planned is None else self.planned - (now - self._begun)
            return rest if rest is not None and rest > 0 else None
        each = self._each()
        if each is None:
            return None
        rest = each * (self.total - self.done) - (now - self._last[-1][0])
        return rest if rest > 0 else None  # the last ones take longer: unknown how much

    def _each(self) -> float | None:
        """Seconds from unit to unit."""
        (began, before), (ended, after) = self._last[0], self._last[-1]
        span, count = ended - began, after - before
        if span < _BURST:
            span, count = 0.0, 0
        if self.planned is None:
            return span / count if count >= self.jobs else None
        return (span + self.jobs * self.planned / self.units) / (count + self.jobs)

    def __str__(self) -> str:
        """``about 14 min left``; nothing where that is not known, or it is done."""
        rest = self.left()
        return f"about {units.format_estimate(rest)} left" if rest is not None else ""


def cost_of(plan: BuildPlan) -> Cost | None:
    """What compiling takes there."""
    cost = plan.recipe.cost(plan.recipe.cuda)
    if cost is None:
        return None
    for one in requested_features(RunHooks, plan):
        cost = one.cost(cost)
    return cost


def job_budget(plan: BuildPlan, session: LiveSession) -> tuple[int, int]:
    """Compile units at a time and threads of nvcc, from the host's cores and memory.

    Raises :class:`ConfigError` when not even one fits, before anything is sent.
    """
    cost = cost_of(plan)
    host = HostFacts.from_session(session.facts, name=plan.host.name)
    if cost is None:
        return plan.jobs or host.cores, 1
    budget = plan_budget(cost, host, plan.archs.effective, plan.jobs)
    return budget.jobs, budget.threads


def pace_of(plan: BuildPlan, session: LiveSession, jobs: int) -> Pace:
    """How long a build with so many ``jobs`` takes there by the plan, and will as it goes on."""
    cost = cost_of(plan)
    if cost is None or plan.objects:  # what a link compiles is not known before
        return Pace(None, 0, jobs)
    host = HostFacts.from_session(session.facts, name=plan.host.name)
    budget = plan_budget(cost, host, plan.archs.effective, jobs)
    return Pace(budget.wall_seconds, cost.units, jobs)
