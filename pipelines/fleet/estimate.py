"""What a fleet would take and cost: the dispatcher itself, over simulated hosts."""

from __future__ import annotations

import graphlib
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.fleet.accounts import Accounts, account
from pipelines.fleet.dispatch import Dispatcher
from pipelines.fleet.history import history
from pipelines.fleet.ledger import Ledger
from pipelines.fleet.model import Machine, Work
from pipelines.fleet.rooms import seconds_on
from pipelines.fleet.rules import Rules
from pipelines.fleet.simulate import SimulatedEngine


@dataclass(frozen=True)
class Estimate:
    """A way to do it all, and what it takes."""

    accounts: Accounts
    ideal: float
    """Seconds that no order of works could be quicker than."""
    stuck: tuple[str, ...]
    """Keys of works that would not be done."""

    @property
    def seconds(self) -> float:
        """From the first work to the end of the last."""
        return self.accounts.seconds

    @property
    def core_seconds(self) -> float:
        """Of all works that would be done, by the plan."""
        works = self.accounts.history.works
        return sum(one.work.core_seconds for one in works if one.stand == "done")


def estimate(works: Sequence[Work], machines: Sequence[Machine], currency: str = "") -> Estimate:
    """Have the dispatcher do ``works`` on ``machines`` that take the time of the plan.

    Raises :class:`ConfigError` for works that cannot be, :class:`StorageError` without disk space.
    """
    with tempfile.TemporaryDirectory(prefix="wcw-plan-") as folder:
        ledger = Ledger.create(Path(folder), "plan", at=0.0, durable=False)
        try:
            ledger.put(works, machines, at=0.0)
            Dispatcher(ledger, SimulatedEngine(machines), Rules(poll=math.inf)).run()
            told = history(ledger, currency)
        finally:
            ledger.close()
    stuck = tuple(one.work.key for one in told.works if one.stand != "done")
    return Estimate(account(told), least(works, machines), stuck)


def least(works: Sequence[Work], machines: Sequence[Machine]) -> float:
    """Seconds that no order of works is quicker than: every core busy, or the longest chain."""
    known = {machine.name: machine for machine in machines}
    cores = sum(machine.slots * max(1, machine.cores // machine.slots) for machine in machines)
    if not works or not cores:
        return 0.0
    total = sum(work.core_seconds for work in works if work.needs.slots) / cores
    quickest = {
        work.key: min(
            (seconds_on(work, known[name]) for name in work.hosts if name in known), default=0.0
        )
        for work in works
    }
    before = {work.key: work.after for work in works}
    ends: dict[str, float] = {}
    for key in graphlib.TopologicalSorter(before).static_order():
        ends[key] = quickest.get(key, 0.0) + max(
            (ends[one] for one in before.get(key, ())), default=0.0
        )
    return max(total, *ends.values())
