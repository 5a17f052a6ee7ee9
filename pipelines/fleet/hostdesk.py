"""The hosts of a fleet, as its dispatcher stands with them: there, aside, made and given back."""

from __future__ import annotations

import functools

from pipelines.fleet.desk import Desk
from pipelines.fleet.engine import Engine
from pipelines.fleet.entries import Entry, HostEntry
from pipelines.fleet.ledger import Ledger
from pipelines.fleet.model import Ended
from pipelines.fleet.policy import pause_after, wanted
from pipelines.fleet.rooms import Room
from pipelines.fleet.rules import Rules
from pipelines.record import ErrorResult


class HostDesk(Desk):
    """The works and hosts of one fleet. Raises what the ledger and the engine raise."""

    def __init__(self, ledger: Ledger, engine: Engine, rules: Rules | None = None) -> None:
        """The ledger is held by this process."""
        super().__init__(ledger, engine, rules)
        self.paused = ledger.fact("paused") == "yes"
        self._alive: frozenset[str] | None = None
        self._idle: dict[str, float] = {}

    def _look_at_hosts(self) -> None:
        alive = self.engine.alive()
        coming = [one for one in self.hosts.values() if one.state == "coming"]
        if alive != self._alive:
            self._alive = alive
            for name in [*self.rooms]:
                if name not in alive:
                    why = self.engine.why(name) or "its driver has ended"
                    self._lose(self.hosts[name], why)
        for host in coming:
            name = host.machine.name
            if name in alive:
                self._back(host)
            elif why := self.engine.why(name):
                self._lose(host, why)

    def _late(self, host: HostEntry, since: float) -> None:
        if (host.state, host.since) == ("coming", since):
            minutes = self.rules.boot / 60
            self._lose(host, f"it did not come within {minutes:.0f} minutes")

    def _ask(self, *hosts: HostEntry) -> None:
        """Have them come, and see to it that none is waited for without end."""
        with self._change() as change:
            for host in hosts:
                change.host(host, state="coming")
                change.event("asked", host=host.machine.name)
        self._alive = None
        for host in hosts:
            self._in(self.rules.boot, functools.partial(self._late, host, host.since))
            self.engine.ask(host.machine.name)

    def _look_again(self, host: HostEntry, look: float) -> None:
        if (host.state, host.look) != ("aside", look):
            return
        name = host.machine.name
        left = {where for each in self._left.values() for where in each.values()}
        if host.machine.made and name not in left | {one.bound for one in self._bound.values()}:
            with self._change() as change:
                change.host(host, state="off")
        else:
            self._ask(host)

    def _lose(self, host: HostEntry, why: str, told: Ended | None = None) -> None:
        """It is gone, or did not come: aside until it is looked at; what ran there is lost.

        One that is refused stays so.
        """
        name = host.machine.name
        touched = [*self._running[name].values()]
        with self._change() as change:
            look = change.at + pause_after(host.looks, self.rules.pause, self.rules.most_pause)
            if host.state != "refused":
                change.host(host, state="aside", why=why, look=look, looks=host.looks + 1)
                change.event("aside", host=name, said=why)
            for entry in [*touched]:
                error = ErrorResult(kind="HostError", title="host", message=f"{name}: {why}")
                ended = Ended(
                    key=entry.work.key,
                    host=name,
                    attempt=entry.attempt,
                    outcome="lost",
                    began=change.at,
                    ended=change.at,
                    error=error,
                    gone=True,
                )
                same = told is not None and told.key == entry.work.key
                self._settle(change, entry, told if told and same else ended, touched)
        self._close(name)
        self._file_all(touched)
        for key, attempts in [*self._left.items()]:  # may go elsewhere, now that it is gone
            if name in attempts.values():
                self._file(self.entries[key])
        for entry in [one for one in self._bound.values() if one.bound == name]:
            self._file(entry)
        self._in(look - self.engine.now(), lambda: self._look_again(host, look))

    def _withdrawn(self, ended: Ended) -> None:
        """Nothing of a lost attempt runs at its host any more; or nobody could look.

        A host at which nobody can look is as good as gone: what waits for that goes elsewhere.
        """
        entry, attempt = self.entries[ended.key], (ended.key, ended.attempt)
        if ended.outcome == "lost":
            self._unseen[attempt] += 1
            if ended.host in self.rooms and (
                ended.gone or self._unseen[attempt] > self.rules.tries
            ):
                why = ended.error.message if ended.error else "nobody can look what runs there"
                self._lose(self.hosts[ended.host], why)
            else:
                self._in(self.rules.pause, lambda: self._withdraw(entry, ended.attempt))
            return
        with self._change() as change:
            change.left(ended.key, ended.attempt, still=False)
            change.event("withdrawn", ended.key, ended.host)
        del self._left[ended.key][ended.attempt]
        del self._unseen[attempt]
        self._file(entry)

    def _close(self, name: str) -> None:
        if (room := self.rooms.pop(name, None)) is not None:
            for key in room.held:
                self._holding[key].discard(name)

    def _back(self, host: HostEntry) -> None:
        """It is there: what it has begun goes on, what others have taken over is ended."""
        name, now = host.machine.name, self.engine.now()
        mine = [
            (self.entries[key], attempt)
            for key, attempts in self._left.items()
            for attempt, where in attempts.items()
            if where == name
        ]
        again = [(e, attempt) for e, attempt in mine if self._goes_on(e, attempt, name)]
        with self._change() as change:
            change.host(host, state="up", why="")
            change.event("up", host=name)
            for entry, attempt in again:
                change.left(entry.work.key, attempt, still=False)
                parted = tuple(one for one in entry.parted if one != name)
                change.work(entry, bound=name, until=now + self.rules.grace, parted=parted)
        self.rooms[name] = Room(host.machine, self._warm[name], idle_since=now)
        for entry, attempt in again:
            del self._left[entry.work.key][attempt]
        there = [*self._running[name].values(), *(e for e, _ in mine)]
        there += [one for one in self._bound.values() if one.bound == name]
        for entry in there:
            self._file(entry)
        for entry, attempt in mine:
            self._withdraw(entry, attempt)
        for entry in self._running[name].values():  # since before this dispatcher
            self.engine.start(entry.work, name, entry.attempt)
            if entry.cancelled:
                self.engine.cancel(entry.work.key)

    def _goes_on(self, entry: Entry, attempt: int, name: str) -> bool:
        """Whether nobody else has begun it since, so that it goes on where it was."""
        untouched = entry.stand == "waiting" and not entry.bound and entry.attempt == attempt
        return untouched and (name in entry.died or entry.losses.get(name, 0) < self.rules.tries)

    def _call_for_hosts(self) -> None:
        """Ask for hosts that are made on demand, and give back those that nothing waits for."""
        made = [one for one in self.hosts.values() if one.machine.made]
        if not made:
            return
        now = self.engine.now()
        off = [one.machine for one in made if one.state == "off" and not one.drained]
        if off and len(self.queue) and not self.paused:
            there = [
                self.rooms.get(name) or Room(one.machine)
                for name, one in self.hosts.items()
                if one.state in ("up", "coming") and not one.drained
            ]
            for machine in wanted(self.queue, off, there, self.rules.worth):
                self._ask(self.hosts[machine.name])
        for host in made:
            room = self.rooms.get(host.machine.name)
            if room is None or room.held:
                continue
            if any(room.name in one.hosts and room.can(one.work) for one in self.queue.heads()):
                continue
            room.idle_since = min(room.idle_since, now)
            if (rest := room.idle_since + self.rules.idle - now) > 0:
                if self._idle.get(room.name) != room.idle_since:
                    self._idle[room.name] = room.idle_since
                    self._in(rest, lambda: None)  # so that it is looked at then
                continue
            with self._change() as change:
                change.host(host, state="off", why="")
                change.event("given back", host=room.name)
            self._close(room.name)
            self.engine.give(room.name)
