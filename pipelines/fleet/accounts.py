"""What a fleet's time went into and what it cost: pure functions of its history.

A host is paid for from its first work, or from when it was started for us, to the end of its last
one, without the times in which it was given back. While several works share it, each is charged an
equal part of the time; what nobody used of it is its idle cost. So the parts sum up to the whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pipelines.fleet.model import FleetHistory, Machine, Span, Stretch

_HOUR = 3600
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class HostAccount:
    """What one host did. Seconds; money in the fleet's currency."""

    machine: Machine
    works: int
    """Attempts that came to the end that was asked for."""
    lost: int
    failed: int
    busy: float
    """With at least one work."""
    paid: float
    """For which it is to be paid."""
    starting: float
    away: float
    """Lost or set aside."""
    utilisation: float
    """Of its slots over the fleet's whole time, 0 to 1."""
    cost: float


@dataclass(frozen=True, slots=True)
class CellAccount:
    """What a cell took of all hosts: its shares, link, tests and attempts that were lost."""

    cell: str
    hosts: tuple[str, ...]
    waited: float
    """From when its first work could begin to when it did."""
    attempts: int
    lost: int
    host_seconds: float
    cost: float


@dataclass(frozen=True, slots=True)
class Alone:
    """What the same works would have taken one host, at least."""

    machine: Machine
    seconds: float
    cost: float


@dataclass(frozen=True)
class Accounts:
    """A whole fleet's."""

    history: FleetHistory
    hosts: tuple[HostAccount, ...]
    cells: tuple[CellAccount, ...]
    charged: Mapping[tuple[str, int], float] = field(repr=False)
    """(Key, attempt) -> its cost."""
    began: float
    """When the first thing began, whatever a clock did since."""
    ended: float
    """When the last thing ended that is known of it; never before it began."""

    @property
    def seconds(self) -> float:
        """From its beginning to its end."""
        return self.ended - self.began

    @property
    def cost(self) -> float:
        """Of all hosts."""
        return sum(host.cost for host in self.hosts)

    @property
    def idle_cost(self) -> float:
        """Of times for which hosts are paid and had no work."""
        return sum(
            host.machine.price * max(0.0, host.paid - host.busy) / _HOUR for host in self.hosts
        )

    @property
    def lost_cost(self) -> float:
        """Of attempts that did not come to the end that was asked for."""
        bad = (s for s in self.history.spans if s.outcome in ("lost", "failed", "left"))
        return sum(self.charged[span.key, span.attempt] for span in bad)

    @property
    def utilisation(self) -> float:
        """Of all slots over the fleet's whole time."""
        slots = sum(host.machine.slots for host in self.hosts)
        used = sum(host.utilisation * host.machine.slots for host in self.hosts)
        return used / slots if slots else 0.0

    @property
    def priced(self) -> bool:
        """Whether any host has a price."""
        return any(host.machine.price > 0 for host in self.hosts)

    @cached_property
    def alone(self) -> Alone | None:
        """The quickest host that fits every work that was done; ``None``: there is none.

        Its cores would be busy all the time: it takes no less, and most likely more.
        """
        return _alone(self.history)


def account(history: FleetHistory) -> Accounts:
    """What became of the time of every host and cell."""
    by_host = _by_host(history.spans)
    began, ended = _bounds(history)
    stretches: dict[str, list[Stretch]] = defaultdict(list)
    for one in history.stretches:
        stretches[one.host].append(one)
    charged: dict[tuple[str, int], float] = {}
    hosts = []
    for machine in history.machines:
        spans = by_host.get(machine.name, [])
        for span, share in _shares(spans, ended):
            charged[span.key, span.attempt] = share * machine.price / _HOUR
        hosts.append(_host(machine, spans, stretches[machine.name], (began, ended)))
    for span in history.spans:  # of hosts that nobody knows any more
        charged.setdefault((span.key, span.attempt), 0.0)
    cells = tuple(_cells(history, charged, ended))
    return Accounts(history, tuple(hosts), cells, charged, began, ended)


def interval(one: Span | Stretch, last: float) -> Interval:
    """From when to when; what goes on lasts until ``last``. No clock makes it negative."""
    return one.began, max(one.began, last if one.ended is None else one.ended)


def _bounds(history: FleetHistory) -> Interval:
    every: list[Span | Stretch] = [*history.spans, *history.stretches]
    first = min([history.began, *(one.began for one in every)])
    known = [one.began if one.ended is None else max(one.began, one.ended) for one in every]
    last = max([history.began, *known, *filter(None, [history.ended])])
    return first, last


def _by_host(spans: Iterable[Span]) -> dict[str, list[Span]]:
    found: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        found[span.host].append(span)
    return found


def _host(
    machine: Machine, spans: Sequence[Span], stretches: Sequence[Stretch], bounds: Interval
) -> HostAccount:
    last = bounds[1]
    used = [interval(span, last) for span in spans]
    slots = [interval(span, last) for span in spans if span.kind != "test"]
    starts = [interval(one, last) for one in stretches if one.standing == "starting"]
    off = [interval(one, last) for one in stretches if one.standing == "off"]
    away = [interval(one, last) for one in stretches if one.standing in ("lost", "aside")]
    busy = _union(used)
    paid = 0.0
    if held := used + (starts if machine.made else []):
        whole = (min(begin for begin, _ in held), max(end for _, end in held))
        paid = max(busy, whole[1] - whole[0] - _union(_within(off, whole)))
    room = machine.slots * (bounds[1] - bounds[0])
    return HostAccount(
        machine,
        works=sum(span.outcome == "done" for span in spans),
        lost=sum(span.outcome == "lost" for span in spans),
        failed=sum(span.outcome == "failed" for span in spans),
        busy=busy,
        paid=paid,
        starting=_union(starts),
        away=_union(away),
        utilisation=min(1.0, sum(end - begin for begin, end in slots) / room) if room else 0.0,
        cost=machine.price * paid / _HOUR,
    )


def _cells(
    history: FleetHistory, charged: Mapping[tuple[str, int], float], last: float
) -> Iterable[CellAccount]:
    names = {one.work.key: one.work.cell for one in history.works}
    queued: dict[str, float] = {}
    for one in history.works:
        queued[one.work.cell] = min(one.queued, queued.get(one.work.cell, one.queued))
    spans: dict[str, list[Span]] = {cell: [] for cell in queued}
    for span in history.spans:
        spans.setdefault(names.get(span.key, span.key), []).append(span)
    for cell, own in spans.items():
        times = [interval(span, last) for span in own]
        begun = min((begin for begin, _ in times), default=None)
        yield CellAccount(
            cell,
            hosts=tuple(dict.fromkeys(span.host for span in own)),
            waited=max(0.0, (last if begun is None else begun) - queued.get(cell, last)),
            attempts=len(own),
            lost=sum(span.outcome == "lost" for span in own),
            host_seconds=sum(end - begin for begin, end in times),
            cost=sum(charged[span.key, span.attempt] for span in own),
        )


def _shares(spans: Sequence[Span], last: float) -> Iterable[tuple[Span, float]]:
    """Of each of a host's works the seconds it is charged: a part where it was not alone."""
    times = [interval(span, last) for span in spans]
    edges = sorted({edge for pair in times for edge in pair})
    passed: dict[float, float] = {}
    counts = _counts(times)
    sum_, before = 0.0, edges[0] if edges else 0.0
    for edge in edges:
        if count := counts[before]:
            sum_ += (edge - before) / count
        passed[edge], before = sum_, edge
    return [
        (span, passed[end] - passed[begin]) for span, (begin, end) in zip(spans, times, strict=True)
    ]


def _counts(times: Sequence[Interval]) -> dict[float, int]:
    """How many go on from each edge to the next one."""
    changes: dict[float, int] = defaultdict(int)
    for begin, end in times:
        changes[begin] += 1
        changes[end] -= 1
    counts, now = {}, 0
    for edge in sorted(changes):
        now += changes[edge]
        counts[edge] = now
    return counts


def _union(intervals: Iterable[Interval]) -> float:
    """Seconds that at least one of them covers."""
    covered, reached = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        if end > reached:
            covered += end - max(begin, reached)
            reached = end
    return covered


def _within(intervals: Iterable[Interval], whole: Interval) -> list[Interval]:
    cut = [(max(begin, whole[0]), min(end, whole[1])) for begin, end in intervals]
    return [(begin, end) for begin, end in cut if end > begin]


def _alone(history: FleetHistory) -> Alone | None:
    machines = {machine.name: machine for machine in history.machines}
    works = {one.work.key: one.work for one in history.works}
    last = _bounds(history)[1]
    taken: list[tuple[float, int]] = []  # core-seconds, and cores that can be used at a time
    fitting = set(machines)
    for host, spans in _by_host(history.spans).items():
        if (machine := machines.get(host)) is None:
            continue
        for span in spans:
            if span.outcome == "done" and (work := works.get(span.key)) is not None:
                begin, end = interval(span, last)
                taken.append(((end - begin) * _cores(machine, work.width), work.width))
                fitting &= set(work.hosts) or fitting
    if not taken:
        return None
    made = [
        Alone(machine, seconds, machine.price * seconds / _HOUR)
        for machine in history.machines
        if machine.name in fitting
        for seconds in [_least(taken, machine)]
    ]
    return min(made, key=lambda one: (one.seconds, one.cost), default=None)


def _least(taken: Sequence[tuple[float, int]], machine: Machine) -> float:
    """Seconds that a host needs for all of it with every core busy, and for the longest of it."""
    longest = max(seconds / _cores(machine, width) for seconds, width in taken)
    return max(longest, sum(seconds for seconds, _ in taken) / machine.cores)


def _cores(machine: Machine, width: int) -> int:
    """That a work has there: those of its slot, if it can use them."""
    return min(width, max(1, machine.cores // machine.slots))
