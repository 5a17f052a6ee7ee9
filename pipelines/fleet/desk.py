"""What a dispatcher knows of its works: who holds what, what could begin, what an end means.

It is the ledger's memory: everything here can be made again from the ledger's rows.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager

from pipelines.fleet.change import Change
from pipelines.fleet.engine import Engine
from pipelines.fleet.entries import Entry
from pipelines.fleet.ledger import Ledger
from pipelines.fleet.model import Ended
from pipelines.fleet.policy import Candidate, Place, Queue, ranks
from pipelines.fleet.rooms import Room
from pipelines.fleet.rules import Rules
from pipelines.fleet.verdicts import FINAL, blocked_by, judge, unwanted
from pipelines.fleet.works import followers
from pipelines.record import ErrorResult


class Desk:
    """The works of one fleet. Raises what the ledger and the engine raise."""

    def __init__(self, ledger: Ledger, engine: Engine, rules: Rules | None = None) -> None:
        self.ledger, self.engine, self.rules = ledger, engine, rules or Rules()
        self.entries = {one.work.key: one for one in ledger.works()}
        self.hosts = {one.machine.name: one for one in ledger.hosts()}
        works = [one.work for one in self.entries.values()]
        self._rank = ranks(works, [one.machine for one in self.hosts.values()])
        self._turn = {work.key: -place for place, work in enumerate(works)}
        self._next = followers(works)
        self._undone = {work.key: len(set(work.after)) for work in works}
        self._unfinished = {*self.entries}
        self.queue = Queue()
        self.rooms: dict[str, Room] = {}
        """Of the hosts that are up."""
        self._warm: dict[str, set[str]] = {name: set() for name in self.hosts}
        self._running: dict[str, dict[str, Entry]] = {name: {} for name in self.hosts}
        self._bound: dict[str, Entry] = {}
        """What waits for the host that has begun it."""
        self._left: dict[str, dict[int, str]] = {}
        """Key -> attempt -> the host that may still have it running."""
        self._unseen: Counter[tuple[str, int]] = Counter()
        """How often nobody could look what an attempt has left running."""
        self._holding: dict[str, set[str]] = {}
        """Key -> the hosts in whose rooms it has its place."""
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._last = engine.now()
        self._count = itertools.count()
        self._same: dict[frozenset[str], frozenset[str]] = {}

    def _change(self) -> AbstractContextManager[Change]:
        return self.ledger.change(self.engine.now())

    def _in(self, seconds: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (self.engine.now() + seconds, next(self._count), do))

    def _ring(self) -> None:
        now = self.engine.now()
        back, self._last = now - self._last, now
        if back < 0:  # the clock was put back: timers are as far off as before
            self._timers = [(at + back, number, do) for at, number, do in self._timers]
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()

    def _hold(self, key: str, room: Room, ends: float) -> None:
        room.take(self.entries[key].work, ends)
        self._holding.setdefault(key, set()).add(room.name)

    def _settle(self, change: Change, entry: Entry, ended: Ended, touched: list[Entry]) -> None:
        """Write down what an end means; ``touched`` are the works that are filed anew then."""
        fit = {*entry.work.hosts} - {*entry.parted, ended.host}
        elsewhere = any(self.hosts[name].state != "refused" for name in fit & self.hosts.keys())
        fields = judge(entry, ended, self.rules, change.at, elsewhere=elsewhere)
        change.end(ended)
        stand = fields["stand"]
        if ended.outcome == "lost" and not fields.get("bound"):
            change.left(ended.key, ended.attempt, still=True)
            self._left.setdefault(ended.key, {})[ended.attempt] = ended.host
        change.work(entry, **fields)
        if ended.outcome != "done":
            error = fields.get("error")
            change.event(ended.outcome, ended.key, ended.host, error.message if error else "")
        if stand in FINAL - {"done"}:
            change.event(stand, ended.key, ended.host)
            self._doom(change, entry, stand, touched)

    def _doom(self, change: Change, entry: Entry, stand: str, touched: list[Entry]) -> None:
        """What comes after a work that is never done is blocked, and what only that needed."""
        doomed = {entry.work.key}
        stack = [(entry.work.key, stand)]
        while stack:
            key, stood = stack.pop()
            for one in (self.entries[name] for name in self._next.get(key, ())):
                if one.stand == "waiting" and one.work.key not in doomed:
                    doomed.add(one.work.key)
                    touched.append(one)
                    self._finish(change, one, "blocked", blocked_by(key, stood))
                    stack.append((one.work.key, "blocked"))
        for name in [before for key in doomed for before in self.entries[key].work.after]:
            one = self.entries[name]
            if one.stand != "waiting" or name in doomed or one.work.kind != "shard":
                continue
            if all(key in doomed or self.entries[key].stand in FINAL for key in self._next[name]):
                doomed.add(name)
                touched.append(one)
                self._finish(change, one, "blocked", unwanted(entry.work.cell))

    def _finish(self, change: Change, entry: Entry, stand: str, error: ErrorResult | None) -> None:
        """A work that does not run comes to its end."""
        if entry.bound:
            change.left(entry.work.key, entry.attempt, still=True)
            self._left.setdefault(entry.work.key, {})[entry.attempt] = entry.bound
        change.work(entry, stand=stand, error=error, bound="", fallen=False)

    def _file_all(self, touched: list[Entry]) -> None:
        """Have memory follow what has become of these works."""
        for entry in touched:
            key = entry.work.key
            if entry.stand != "running":
                self._running.get(entry.host, {}).pop(key, None)
            if entry.stand not in FINAL:
                self._unfinished.add(key)
            elif key in self._unfinished:
                self._unfinished.discard(key)
                if entry.stand == "done":
                    self._warm[entry.host].add(entry.work.warm)
                    for name in self._next.get(key, ()):
                        self._undone[name] -= 1
                        self._file(self.entries[name])
            self._file(entry)
            for attempt in self._left.get(key, {}):
                self._withdraw(entry, attempt)

    def _file(self, entry: Entry) -> None:
        """Have a work where it belongs: in the queue, bound to its host, or nowhere."""
        key, now = entry.work.key, self.engine.now()
        self.queue.drop(key)
        self._bound.pop(key, None)
        waiting = entry.stand == "waiting" and not entry.fallen
        places = {entry.host} if entry.stand == "running" else set()
        if waiting and entry.bound:
            self._bound[key] = entry
            places = {entry.bound}
        self._place(entry, places.union(self._left.get(key, {}).values()), now)
        if not waiting or self._undone[key]:
            return
        if self._rests(entry, now):
            self._in(entry.rest - now, lambda: self._file(entry))
        elif entry.bound:
            if entry.bound not in self.rooms:
                ahead = 0 < entry.until - now <= self.rules.longest  # more: the clock was put back
                if ahead and self.hosts[entry.bound].state != "refused":
                    self._in(entry.until - now, lambda: self._file(entry))
                else:
                    self._part(entry)
        elif not any(host in self.rooms for host in self._left.get(key, {}).values()):
            fit = frozenset(entry.work.hosts)
            hosts = fit.difference(entry.parted) or fit
            gpu = bool(entry.work.needs.gpu)
            place = Place(entry.priority, gpu, self._rank[key], self._turn[key], key)
            self.queue.add(Candidate(entry.work, place, self._same.setdefault(hosts, hosts)))

    def _rests(self, entry: Entry, now: float) -> bool:
        """Whether it is not to begin yet; never for longer than anything is put off."""
        return 0 < entry.rest - now <= self.rules.longest

    def _place(self, entry: Entry, places: set[str], now: float) -> None:
        """Have it hold room in these hosts, and in no other."""
        key = entry.work.key
        holding = self._holding.setdefault(key, set())
        for host in holding - places:
            self.rooms[host].drop(key, now)
            holding.discard(host)
        for host in places - holding & self.rooms.keys():
            self._hold(key, self.rooms[host], now + self.rooms[host].seconds(entry.work))

    def _part(self, entry: Entry) -> None:
        """Its host did not come back in time: another may have the work."""
        key, host = entry.work.key, entry.bound
        with self._change() as change:
            change.left(key, entry.attempt, still=True)
            change.work(entry, bound="", parted=tuple(dict.fromkeys([*entry.parted, host])))
            change.event("elsewhere", key, host)
        self._left.setdefault(key, {})[entry.attempt] = host
        self._file(entry)

    def _withdraw(self, entry: Entry, attempt: int) -> None:
        """End what may still run of it, if its host can be reached; else when it is back."""
        host = self._left.get(entry.work.key, {}).get(attempt)
        if host in self.rooms:
            self.engine.withdraw(entry.work, host, attempt)
