"""The dispatcher: says what begins where, late: only when a host has room.

How it is used::

    ledger = Ledger.find(out, order) or Ledger.create(out, order)  # ``order``: a hash
    ledger.hold()                           # of a found one; refused while another process has it
    ledger.put(works, machines, time.time())  # again, too: what is there keeps where it stands
    ledger.refuse("lab3", "its clock is an hour off", time.time())  # hosts that may not take part
    try:
        summary = Dispatcher(ledger, engine).run()  # until nothing is left to be done
    finally:
        engine.close(); ledger.close()

An interrupt just passes through :meth:`Dispatcher.run`: the next one over the same ledger goes
on, works that ran are taken up where they ran (``engine.start`` with the same attempt).
``engine.alive`` may have hosts at the start or only after ``engine.ask``. Other processes look with
``Ledger(path)`` and leave orders with ``ledger.order``.

What must hold: a change is in the ledger before anything follows from it; a work is never begun at
a host while another that can be reached may have it running: what a lost attempt may have left
there is withdrawn first, or as soon as that host is back.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from pipelines.fleet.change import Change
from pipelines.fleet.engine import Engine
from pipelines.fleet.entries import Entry, Order
from pipelines.fleet.hostdesk import HostDesk
from pipelines.fleet.ledger import Ledger
from pipelines.fleet.model import Ended, Needs, Work
from pipelines.fleet.policy import choose
from pipelines.fleet.rooms import Room
from pipelines.fleet.rules import Rules
from pipelines.fleet.verdicts import FINAL, without_host
from pipelines.units import few

_BATCH = 64  # works that begin in one transaction


@dataclass(frozen=True)
class Summary:
    """How a fleet stands when its dispatcher ends."""

    works: dict[str, int]
    """Stand -> how many."""
    stuck: str = ""
    """Why some still wait; empty: nothing does, or they were left."""

    @property
    def complete(self) -> bool:
        """Whether all is done as it was asked for."""
        return set(self.works) <= {"done"}


class Dispatcher(HostDesk):
    """One fleet's. Raises what the ledger and the engine raise."""

    def __init__(self, ledger: Ledger, engine: Engine, rules: Rules | None = None) -> None:
        """The ledger is held by this process."""
        super().__init__(ledger, engine, rules)
        self._seen = -1
        self._stuck_since = math.inf
        self.stopped = False
        self._recover()

    def run(self, onlooker: Callable[[], None] = lambda: None) -> Summary:
        """Until nothing is left to be done, or :meth:`stop`; ``onlooker``: once a round."""
        self._read_orders()  # one may be to try again what is over
        while not self.stopped and not self._finished():
            self.step()
            onlooker()
        works: dict[str, int] = {}
        for one in self.entries.values():
            works[one.stand] = works.get(one.stand, 0) + 1
        if set(works) <= FINAL:
            with self._change() as change:
                change.fact("ended", str(change.at))
        return Summary(works, self._stuck())

    def stop(self) -> None:
        """Have :meth:`run` end after this round; what runs goes on."""
        self.stopped = True

    def step(self) -> None:
        """One round: orders, hosts, what begins, what has ended."""
        self._read_orders()
        self._look_at_hosts()
        self._ring()
        while self._begin():
            pass
        self._call_for_hosts()
        for ended in self.engine.wait(self._patience()):
            self._take_in(ended)

    def _finished(self) -> bool:
        if any(self._running.values()):
            return False
        if not self._unfinished:  # but for what is withdrawn where one can
            left = (host for each in self._left.values() for host in each.values())
            return not any(host in self.rooms for host in left)
        if all(one.stand in FINAL or one.fallen for one in self.entries.values()):
            return True
        return bool(self._stuck())

    def _stuck(self) -> str:
        """Why nothing more can be done though works wait; empty: it can."""
        if not self._unfinished or self.paused or any(self._running.values()):
            return ""
        waiting = [e for e in self.entries.values() if e.stand == "waiting" and not e.fallen]
        usable = {name for name, one in self.hosts.items() if one.state != "refused"}
        if waiting and not any(usable.intersection(one.work.hosts) for one in waiting):
            return "no host that fits takes part"
        free = [room for name, room in self.rooms.items() if not self.hosts[name].drained]
        if not waiting or any(
            room.name in one.work.hosts and room.can(one.work) for one in waiting for room in free
        ):
            self._stuck_since = math.inf
            return ""
        now = self.engine.now()
        self._stuck_since = min(self._stuck_since, now)
        if now - self._stuck_since < self.rules.stuck:
            return ""
        return "no host that fits could be used for a long time"

    def _patience(self) -> float:
        soon = self._timers[0][0] - self.engine.now() if self._timers else math.inf
        return max(0.0, min(soon, self.rules.poll))

    def _begin(self) -> bool:
        """Begin what has room, up to a batch; whether there may be more."""
        if self.paused:
            return False
        now = self.engine.now()
        batch: list[tuple[Entry, str, float]] = []
        for entry in self._bound.values():
            room = self.rooms.get(entry.bound)
            if room is not None and not self._rests(entry, now):
                batch.append((entry, room.name, room.seconds(entry.work)))
        takers = {name: room for name, room in self.rooms.items() if not self.hosts[name].drained}
        while len(batch) < _BATCH and (chosen := choose(self.queue, takers, now)):
            one, room = chosen
            planned = room.seconds(one.work)
            self.queue.drop(one.work.key)
            self._hold(one.work.key, room, now + planned)
            batch.append((self.entries[one.work.key], room.name, planned))
        if not batch:
            return False
        with self._change() as change:
            for entry, host, _ in batch:
                change.begin(entry.work.key, entry.attempt + 1, host)
                change.work(
                    entry, stand="running", host=host, attempt=entry.attempt + 1, bound="", rest=0.0
                )
        for entry, host, planned in batch:
            self._bound.pop(entry.work.key, None)
            self._running[host][entry.work.key] = entry
            self.rooms[host].ends[entry.work.key] = now + planned
            self.engine.start(entry.work, host, entry.attempt)
        return len(batch) >= _BATCH

    def _take_in(self, ended: Ended) -> None:
        """An attempt has ended: what it means for the work, and maybe for the host."""
        if self._left.get(ended.key, {}).get(ended.attempt) == ended.host:
            self._withdrawn(ended)
            return
        entry = self.entries.get(ended.key)
        now_running = entry and (entry.stand, entry.host, entry.attempt)
        if entry is None or now_running != ("running", ended.host, ended.attempt):
            with self._change() as change:  # of an attempt that was given up long ago
                change.event("stale", ended.key, ended.host, f"attempt {ended.attempt}")
            return
        if ended.gone and ended.outcome == "lost":
            why = ended.error.message if ended.error else "it is gone"
            self._lose(self.hosts[ended.host], why, ended)
            return
        touched = [entry]
        with self._change() as change:
            self._settle(change, entry, ended, touched)
            host = self.hosts[ended.host]
            if ended.outcome == "done" and host.looks:
                change.host(host, looks=0)
        self._file_all(touched)

    # Orders.

    def _read_orders(self) -> None:
        if (seen := self.ledger.foreign_changes()) == self._seen:
            return
        self._seen = seen
        for order in self.ledger.open_orders():
            self._obey(order)

    def _obey(self, order: Order) -> None:
        """Do what a person wants; the answer and what follows are one transaction."""
        verb, subject = order.verb, order.subject
        mine = [e for e in self.entries.values() if subject in (e.work.key, e.work.cell)]
        touched: list[Entry] = []
        to_end: list[Entry] = []
        with self._change() as change:
            if verb in ("pause", "resume"):
                change.fact("paused", "yes" if verb == "pause" else "")
                if verb == "resume":
                    touched = [one for one in self.entries.values() if one.fallen]
                for entry in touched:
                    change.work(entry, fallen=False, until=change.at + self.rules.grace)
            elif verb in ("drain", "undrain"):
                change.host(self.hosts[subject], drained=verb == "drain")
            elif verb == "priority":
                touched = mine
                for entry in mine:
                    change.work(entry, priority=order.number)
            elif verb == "cancel":
                to_end = [one for one in mine if one.stand == "running"]
                self._cancel(change, mine, touched)
            else:
                self._retry(change, mine, touched)
            nothing = verb in ("cancel", "retry") and not touched and not to_end
            stands = few(sorted({one.stand for one in mine}))
            change.answer(order, f"nothing to do: it is {stands}" if nothing else "done")
            change.event(verb, subject, said=str(order.number) if verb == "priority" else "")
        if verb in ("pause", "resume"):
            self.paused = verb == "pause"
        self._file_all(touched)
        for entry in to_end:
            self.engine.cancel(entry.work.key)

    def _cancel(self, change: Change, mine: list[Entry], touched: list[Entry]) -> None:
        """What waits is cancelled now, what runs when it has been ended."""
        for entry in mine:
            if entry.stand == "running":
                change.work(entry, cancelled=True)
            elif entry.stand == "waiting" and entry not in touched:
                touched.append(entry)
                self._finish(change, entry, "cancelled", None)
        for entry in [*touched]:
            self._doom(change, entry, "cancelled", touched)

    def _retry(self, change: Change, mine: list[Entry], touched: list[Entry]) -> None:
        """What came to another end than was asked for begins anew, as if nothing had been."""
        for entry in mine:
            if entry.stand in ("failed", "quarantined", "cancelled"):
                touched.append(entry)
                blank = {"losses": {}, "died": (), "parted": (), "cancelled": False}
                change.work(entry, stand="waiting", error=None, **blank)
        self._reconsider(change, touched)

    # From the ledger.

    def _reconsider(self, change: Change, touched: list[Entry]) -> None:
        """What is blocked, from the beginning: other hosts may fit, other works may be done."""
        for entry in self.entries.values():
            if entry.stand == "blocked":
                touched.append(entry)
                change.work(entry, stand="waiting", error=None)
        rooms = {name: Room(one.machine) for name, one in self.hosts.items()}
        known: dict[tuple[tuple[str, ...], Needs], bool] = {}

        def fits(work: Work) -> bool:
            """Whether a host that it may go to is large enough; thousands of works are alike."""
            key = (work.hosts, work.needs)
            if key not in known:
                known[key] = any(n in rooms and rooms[n].can(work) for n in work.hosts)
            return known[key]

        for entry in self.entries.values():
            if entry.stand == "waiting" and not fits(entry.work):
                touched.append(entry)
                self._finish(change, entry, "blocked", without_host(entry, self.hosts))
        for entry in [*self.entries.values()]:
            if entry.stand in FINAL - {"done"}:
                self._doom(change, entry, entry.stand, touched)

    def _recover(self) -> None:
        """Stand where the last dispatcher stood, wherever it was killed."""
        for attempt in self.ledger.attempts():
            span = attempt.span
            if attempt.left:
                self._left.setdefault(span.key, {})[span.attempt] = span.host
            if span.outcome == "done":
                self._warm[span.host].add(self.entries[span.key].work.warm)
        with self._change() as change:
            change.event("dispatcher")
            change.fact("ended", "")
            self._reconsider(change, [])
            for entry in self.entries.values():
                if entry.bound:
                    change.work(entry, fallen=False, until=change.at + self.rules.grace)
        needed = set()
        for entry in self.entries.values():
            if entry.stand == "running":
                self._running[entry.host][entry.work.key] = entry
                needed.add(entry.host)
            elif entry.bound:
                needed.add(entry.bound)
        off = [
            one
            for name, one in self.hosts.items()
            if one.machine.made and one.state != "refused" and name not in needed
        ]
        with self._change() as change:
            for host in off:
                change.host(host, state="off")
        for host in self.hosts.values():
            if host.state == "refused" and self._running[host.machine.name]:
                self._lose(host, host.why)
        self._file_all([*self.entries.values()])
        there = [h for h in self.hosts.values() if h.state != "refused" and h not in off]
        self._ask(*there)
