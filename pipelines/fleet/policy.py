"""Which work begins next, and where: pure functions of the queue and of the rooms that hosts have.

In this order: what a person put first, what needs a GPU (there are few, and builds must not block
those), the longest chain of works to come (longest processing time first, by which a link is not
late), what the host is warm for. https://doi.org/10.1137/0117039 is how far that is from the ideal.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pipelines.fleet.model import Machine, Work
from pipelines.fleet.rooms import Room
from pipelines.fleet.works import followers


class Place(NamedTuple):
    """Where in the queue: the largest is first."""

    priority: int
    gpu: bool
    rank: float
    turn: int
    """Of those alike, the one that was asked for first: less than nothing, further each time."""
    key: str


@dataclass(frozen=True)
class Candidate:
    """A work that could begin at this moment."""

    work: Work
    place: Place
    hosts: frozenset[str]
    """Where it may go."""


def ranks(works: Iterable[Work], machines: Iterable[Machine]) -> dict[str, float]:
    """Key -> seconds from its beginning to the end of all that comes after it, by the plan."""
    every = {work.key: work for work in works}
    cores = sorted(max(1, one.cores // one.slots) for one in machines) or [1]
    usual = cores[len(cores) // 2]
    after = followers(every.values())
    found: dict[str, float] = {}
    stack = [*every]
    while stack:  # not by recursion: chains may be long
        key = stack[-1]
        missing = [one for one in after.get(key, ()) if one not in found]
        if key not in found and missing:
            stack += missing
            continue
        stack.pop()
        work = every[key]
        own = work.core_seconds / min(work.width, usual)
        found[key] = own + max((found[one] for one in after.get(key, ())), default=0.0)
    return found


_Group = tuple[frozenset[str], object, str]


class Queue:
    """Works that could begin, in groups of those that differ by nothing but their length."""

    def __init__(self) -> None:
        self._groups: dict[_Group, list[Place]] = {}
        self._there: dict[str, tuple[_Group, Candidate]] = {}

    def __len__(self) -> int:
        return len(self._there)

    def add(self, one: Candidate) -> None:
        """It could begin from now on; what was known of it before is forgotten."""
        self.drop(one.work.key)
        group = (one.hosts, one.work.needs, one.work.warm)
        bisect.insort(self._groups.setdefault(group, []), one.place)
        self._there[one.work.key] = (group, one)

    def drop(self, key: str) -> None:
        """It cannot begin, or has begun."""
        if (there := self._there.pop(key, None)) is None:
            return
        group, one = there
        places = self._groups[group]
        del places[bisect.bisect_left(places, one.place)]
        if not places:
            del self._groups[group]

    def heads(self) -> Iterator[Candidate]:
        """The first of each group."""
        return (self._there[places[-1].key][1] for places in self._groups.values())

    def all(self) -> Iterator[Candidate]:
        """Every one, in no order."""
        return (one for _, one in self._there.values())

    def groups(self) -> Iterator[tuple[Candidate, int]]:
        """The first of each group, and how many there are of it."""
        return ((self._there[p[-1].key][1], len(p)) for p in self._groups.values())


def choose(queue: Queue, rooms: Mapping[str, Room], now: float) -> tuple[Candidate, Room] | None:
    """What begins next and where, or ``None``: nothing has room, or it is better to wait."""
    # Written out: with hundreds of hosts this line is most of what a decision costs.
    free = [room for room in rooms.values() if room.slots > 0 or room.gpus]
    if not free or not len(queue):
        return None
    few = len(queue) <= len(rooms)
    heads = sorted(queue.all() if few else queue.heads(), key=lambda one: one.place, reverse=True)
    spare = _kept_for_gpu(heads)
    busy = _busy(rooms.values(), now) if few else []
    for one in heads:
        fitting = [
            room
            for room in free
            if room.name in one.hosts and room.fits(one.work) and not _blocks(room, one, spare)
        ]
        if not fitting:
            continue
        room = min(fitting, key=lambda room: _wish(room, one.work))
        if few and one.work.needs.slots and _waits(one, room, rooms, busy, now):
            continue
        return _warmer(heads, one, room, spare), room
    return None


def _wish(room: Room, work: Work) -> tuple[float, float, int, str]:
    """The soonest done; of those alike the emptiest, then one without a GPU for tests to want."""
    machine = room.machine
    return room.seconds(work), -room.slots / machine.slots, len(machine.gpus), room.name


def _kept_for_gpu(ready: Sequence[Candidate]) -> list[Candidate]:
    """Works that wait for a GPU, the largest of each sort: builds leave their memory free."""
    most: dict[object, Candidate] = {}
    for one in ready:
        if one.work.needs.gpu:
            sort = (one.hosts, one.work.needs.gpu, one.place.priority)
            if one.work.needs.memory >= most.get(sort, one).work.needs.memory:
                most[sort] = one
    return list(most.values())


def _blocks(room: Room, build: Candidate, spare: Iterable[Candidate]) -> bool:
    """Whether it would take the memory of a test, no less urgent, that waits for a GPU there."""
    needs = build.work.needs
    if needs.gpu or not room.machine.gpus:
        return False
    held = sum(one.needs.memory for one in room.held.values() if one.needs.gpu)
    wanted = max(
        (
            one.work.needs.memory
            for one in spare
            if one.place.priority >= build.place.priority
            and room.name in one.hosts
            and room.can(one.work)
        ),
        default=0,
    )
    return room.memory - needs.memory < wanted - held


_Line = list[tuple[float, str]]


def _busy(rooms: Iterable[Room], now: float) -> list[_Line]:
    """When each host is free that is not, the first ones first: a line for each kind of machine."""
    lines: dict[object, _Line] = {}
    for room in rooms:
        if (free := room.free_at(now)) > now:
            machine = room.machine
            kind = (machine.cores, machine.slots, machine.memory, machine.gpus)
            lines.setdefault(kind, []).append((free, room.name))
    return [sorted(line) for line in lines.values()]


def _waits(
    one: Candidate, room: Room, rooms: Mapping[str, Room], busy: Sequence[_Line], now: float
) -> bool:
    """Whether a host that is not free yet would have it done before ``room``: it is claimed then.

    Only for the last works: before, whatever is free has something to do.
    """
    best, claim = now + room.seconds(one.work), None
    for line in busy:
        for place, (free, name) in enumerate(line):
            if free >= best:
                break
            if name in one.hosts:
                done = free + rooms[name].seconds(one.work)
                if done < best and rooms[name].can(one.work):
                    best, claim = done, (line, place)
                break  # others of its kind are free later
    if claim:
        line, place = claim
        bisect.insort(line, (best, line.pop(place)[1]))
    return claim is not None


def _warmer(
    heads: Sequence[Candidate], first: Candidate, room: Room, spare: Iterable[Candidate]
) -> Candidate:
    """``first``, or a shorter one that ``room`` is warm for and ``first`` is not.

    It is shorter by less than what bringing its tool chain elsewhere would cost.
    """
    best, most = first, _worth(first, room)
    for one in heads:
        if (one.place.priority, one.place.gpu) != (first.place.priority, first.place.gpu):
            continue
        worth = _worth(one, room)
        if worth > most and room.name in one.hosts and room.fits(one.work):
            if _blocks(room, one, spare):
                continue
            best, most = one, worth
    return best


def _worth(one: Candidate, room: Room) -> float:
    warm = one.work.warm and one.work.warm in room.warm
    return one.place.rank + (one.work.cold_seconds if warm else 0.0)


def wanted(
    queue: Queue, off: Collection[Machine], there: Iterable[Room], boot: float
) -> list[Machine]:
    """Hosts made on demand that should be started: what waits has work for them.

    ``there`` are those that are up or on their way; what these do within ``boot`` seconds is not
    worth a start. The cheapest per core first.
    """
    taken: set[str] = set()
    there = list(there)
    for one, count in queue.groups():
        slots = sum(
            room.machine.slots for room in there if room.name in one.hosts and room.can(one.work)
        ) + sum(machine.slots for machine in off if machine.name in taken & one.hosts)
        seconds = one.place.rank * count
        if slots and seconds / slots < boot:
            continue
        free = sum(max(0, room.slots) for room in there if room.name in one.hosts)
        missing = count - free - sum(m.slots for m in off if m.name in taken & one.hosts)
        for machine in sorted(off, key=lambda m: (m.price / m.cores, -m.cores, m.name)):
            if missing <= 0:
                break
            if machine.name in one.hosts - taken and Room(machine).can(one.work):
                taken.add(machine.name)
                missing -= machine.slots
    return [machine for machine in off if machine.name in taken]


def pause_after(looks: int, first: float, most: float) -> float:
    """Seconds until the next look: each pause is twice the last, up to ``most``."""
    return min(first * math.exp2(min(looks, 30)), most)
