"""``invoke plan --fleet``: the order of a fleet, done by its dispatcher on hosts that pretend."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipelines import units
from pipelines.fleet.asked import Asked, plans_of
from pipelines.fleet.cells import Cells, works_of
from pipelines.fleet.estimate import Estimate, estimate
from pipelines.fleet.foretold import Foretold
from pipelines.fleet.lines import LineErrand, Order
from pipelines.fleet.looking import Hosts
from pipelines.fleet.survey import Surveyed, assumed, survey
from pipelines.matrix.plan import Plan


def foretell(asked: Asked, *, ask: bool) -> Foretold:
    """What the order would take on the hosts of the fleet, divided and whole.

    ``ask``: look at every host first, as a fleet does; without, nothing is reached. Raises
    :class:`ConfigError` when no host fits any cell.
    """
    settings, names = asked.settings, asked.settings.fleet_hosts(asked.hosts)
    known, plans = assumed(settings, names), plans_of(asked, names, Surveyed())
    first = works_of(plans, known.machines, test=asked.test, shards=asked.shards)
    if ask:
        told = _look(asked, names, first)
        known = Surveyed(known.machines | told.machines, told.facts, told.aside)
        plans = plans_of(asked, names, known)
        first = works_of(plans, known.machines, test=asked.test, shards=asked.shards)
    ways = dict([_way(asked, first, known), *_other(asked, first, plans, known)])
    return Foretold(
        machines=known.machines,
        cells=first,
        ways=ways,
        asked=frozenset(known.facts),
        aside=known.aside,
        currency=settings.fleet.currency,
    )


def _look(asked: Asked, names: Sequence[str], first: Cells) -> Surveyed:
    """What the hosts that fit say of themselves."""
    with tempfile.TemporaryDirectory(prefix="wcw-plan-") as folder:
        order = Order(asked.settings, Path(folder), first.axes)
        hosts = Hosts(asked.settings.fleet, Path(folder))
        errands = {
            name: LineErrand(name, order, hosts, work)
            for name in names
            if (work := next((one for one in first.works if name in one.hosts), None)) is not None
        }
        try:
            return survey(asked.settings, errands)
        finally:
            for errand in errands.values():
                errand.close(stop=True)


def _other(
    asked: Asked, first: Cells, plans: Mapping[str, Plan | str], known: Surveyed
) -> list[tuple[str, Estimate]]:
    """The way that was not asked for: divided, or as a whole; none where they are the same."""
    shards = 0 if asked.shards is None else None
    other = works_of(plans, known.machines, test=asked.test, shards=shards)
    if [work.key for work in other.works] == [work.key for work in first.works]:
        return []
    return [_way(asked, other, known)]


def _way(asked: Asked, cells: Cells, known: Surveyed) -> tuple[str, Estimate]:
    fitting = {host for work in cells.works for host in work.hosts}
    machines = [known.machines[n] for n in known.machines if n in fitting and n not in known.aside]
    reckoned = estimate(cells.works, machines, asked.settings.fleet.currency)
    counts: dict[str, int] = {}
    for work in cells.works:
        if work.kind == "shard":
            counts[work.cell] = counts.get(work.cell, 0) + 1
    if not counts:
        return "as whole wheels", reckoned
    least, most = min(counts.values()), max(counts.values())
    many = units.counted(most, "share") if least == most else f"{least} to {most} shares"
    return f"in {many} each", reckoned
