"""The scheduler: has tasks begin where the policy says, and the ledger know what became of them.

How it is used::

    ledger = Ledger.find(out, order) or Ledger.create(out, order)  # ``order``: a hash
    ledger.hold()                           # of a found one; refused while another process has it
    ledger.put(tasks, machines, time.time())  # again, too: what is there keeps where it stands
    try:
        summary = Scheduler(ledger, workers).run()  # until nothing is left to be done
    finally:
        workers.close(); ledger.close()

An interrupt just passes through :meth:`Scheduler.run`: the next one over the same ledger resumes.
Other processes look with ``Ledger(path)`` and leave orders with ``ledger.order``.

What must hold: a change is in the ledger before anything follows from it; a task is never begun at
a host while another that can be reached may have it running: what a lost attempt may have left
there is withdrawn first, or as soon as that host is back.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from pipelines.fleet.ledger import Ledger, Transaction
from pipelines.fleet.model import (
    FINAL,
    Ended,
    HostEntry,
    Reached,
    Task,
    TaskEntry,
    Withdrawn,
    Workers,
)
from pipelines.fleet.policy import (
    Limits,
    Room,
    assign_tasks,
    fields_after_attempt,
)
from pipelines.fleet.queue import TaskQueue, execute_order


@dataclass(frozen=True)
class Summary:
    """How a fleet stands when its scheduler ends."""

    tasks: dict[str, int]
    """State -> how many."""
    stuck: str = ""
    """Why some still wait; empty: nothing does, or they were left."""

    @property
    def complete(self) -> bool:
        """Whether all is done as it was asked for."""
        return set(self.tasks) <= {"done"}


class Scheduler:
    """One fleet's. Raises what the ledger and the workers raise."""

    def __init__(self, ledger: Ledger, workers: Workers, limits: Limits | None = None) -> None:
        """The ledger is held by this process."""
        self.ledger, self.workers, self.limits = ledger, workers, limits or Limits()
        self.entries = {one.task.key: one for one in ledger.tasks()}
        self.hosts = {one.machine.name: one for one in ledger.hosts()}
        self._tasks = TaskQueue(self.entries, [one.machine for one in self.hosts.values()])
        self._ends: dict[str, float] = {}
        """When what runs ends, by the plan."""
        self._warm: dict[str, set[str]] = {name: set() for name in self.hosts}
        self._returns: Counter[str] = Counter()
        """Host -> how often it has come up."""
        self._begun_at: dict[str, int] = {}
        """Key of what runs -> how often its host had come up then."""
        self._withdrawals: dict[tuple[str, str], float] = {}
        """(Key, host) -> when it is tried again; infinity while one goes on."""
        self._refusals: Counter[tuple[str, str]] = Counter()
        """(Key, host) -> how many withdrawals failed."""
        self._seen = -1
        self._stuck_since = math.inf
        self._recover()

    def _change(self) -> AbstractContextManager[Transaction]:
        return self.ledger.change(self.workers.now())

    def _recover(self) -> None:
        """Resume where the last scheduler was, wherever it was killed."""
        self.paused = self.ledger.fact("paused") == "yes"
        for span in self.ledger.attempts():
            if span.outcome == "done" and span.host in self._warm:
                self._warm[span.host].add(self.entries[span.key].task.warm)
        with self._change() as change:
            change.event("controller")
            change.fact("ended", "")
            for entry in self.entries.values():
                if entry.state == "blocked":  # other hosts may fit by now
                    change.task(entry, state="waiting", error=None)
                if entry.state == "running":
                    tried = {"key": entry.task.key, "host": entry.host, "attempt": entry.attempt}
                    change.end(Ended.model_validate(tried | {"outcome": "left"}))
                    if entry.cancelled:
                        remains = entry.remains | {entry.host: entry.attempt}
                        change.task(entry, state="cancelled", remains=remains)
                    else:
                        change.task(entry, state="waiting", bound=entry.host)
                if entry.bound:
                    wait_until = change.at + self.limits.grace
                    change.task(entry, suspended=False, wait_until=wait_until)
            self._tasks.block(change, self.hosts)
        for entry in self.entries.values():
            self._tasks.file(entry)
        for host in self.hosts.values():
            if host.state != "refused":
                self._reach(host)

    def run(self, on_round: Callable[[], None] = lambda: None) -> Summary:
        """Until nothing is left to be done; ``on_round`` is called once a round."""
        self._read_orders()  # one may be to retry what is over
        while not self._finished():
            self.step()
            on_round()
        tasks = Counter(str(one.state) for one in self.entries.values())
        if set(tasks) <= FINAL:
            with self._change() as change:
                change.fact("ended", str(change.at))
        return Summary(dict(tasks), self._stuck())

    def step(self) -> None:
        """One round: orders, hosts, what begins, what has ended."""
        self._read_orders()
        self._look_at_hosts()
        self._withdraw()
        self._begin()
        for event in self.workers.wait(self.limits.poll):
            if isinstance(event, Ended):
                self._end(event)
            elif isinstance(event, Withdrawn):
                self._withdrawn(event)
            else:
                self._reached(event)

    # When it ends.

    def _finished(self) -> bool:
        if self._tasks.running:
            return False
        if not self._tasks.waiting:  # but for what is withdrawn where that can be
            there = {n for n, one in self.hosts.items() if one.state in ("up", "coming")}
            return not any(there.intersection(one.remains) for one in self._tasks.busy.values())
        return all(one.suspended for one in self._tasks.waiting.values()) or bool(self._stuck())

    def _stuck(self) -> str:
        """Why nothing more can be done though tasks wait; empty: it can."""
        now = self.workers.now()
        waiting = [one.task for one in self._tasks.waiting.values() if not one.suspended]
        usable = {name for name, one in self.hosts.items() if one.state != "refused"}
        up = [h.machine for h in self.hosts.values() if h.state == "up" and not h.drained]
        could = any(one.name in task.hosts and one.can(task) for task in waiting for one in up)
        if self._tasks.running or self.paused or not waiting or could:
            self._stuck_since = math.inf
            return ""
        if not any(usable.intersection(task.hosts) for task in waiting):
            return "no suitable host takes part"
        self._stuck_since = min(self._stuck_since, now)
        if now - self._stuck_since < self.limits.stuck:
            return ""
        return "no suitable host could be used for a long time"

    # Tasks.

    def _rooms(self, now: float) -> dict[str, Room]:
        """What every host that is up has left, without what runs or may run there."""
        rooms = {
            name: Room(one.machine, self._warm[name])
            for name, one in self.hosts.items()
            if one.state == "up"
        }
        for key, entry in self._tasks.busy.items():
            at = {entry.bound, *entry.remains, entry.host if entry.state == "running" else ""}
            for name in at & rooms.keys():
                rooms[name].take(entry.task, self._ends.get(key, now))
        return rooms

    def _ready(self, now: float) -> Iterator[tuple[TaskEntry, tuple[str, ...]]]:
        """What could begin now, the first ones first, and where."""
        for entry in self._tasks.in_order():
            rested = entry.not_before == 0.0 or self.limits.past(entry.not_before, now)
            if entry.suspended or not rested:
                continue
            if entry.bound:
                if self.hosts[entry.bound].state == "up":
                    yield entry, (entry.bound,)
                    continue
                refused = self.hosts[entry.bound].state == "refused"
                if not refused and not self.limits.past(entry.wait_until, now):
                    continue
                self._give_up(entry)
            if not any(self.hosts[name].state == "up" for name in entry.remains):
                hosts = entry.task.hosts
                yield entry, tuple(one for one in hosts if one not in entry.avoid) or hosts

    def _give_up(self, entry: TaskEntry) -> None:
        """Its host did not come back in time: another may have the task."""
        host = entry.bound
        with self._change() as change:
            remains = entry.remains | {host: entry.attempt}
            avoid = tuple(dict.fromkeys([*entry.avoid, host]))
            change.task(entry, bound="", remains=remains, avoid=avoid)
            change.event("elsewhere", entry.task.key, host)

    def _begin(self) -> None:
        """Have what can begin do so."""
        now = self.workers.now()
        rooms = self._rooms(now)
        begun: list[tuple[TaskEntry, Room]] = []
        waiting: list[tuple[Task, tuple[str, ...]]] = []
        for entry, hosts in () if self.paused else self._ready(now):
            if entry.bound:  # it has its room there
                begun.append((entry, rooms[entry.bound]))
            else:
                waiting.append((entry.task, hosts))
        takers = {name: room for name, room in rooms.items() if not self.hosts[name].drained}
        chosen = assign_tasks(waiting, takers, now)
        begun += [(self.entries[task.key], room) for task, room in chosen]
        if begun:
            with self._change() as change:
                for entry, room in begun:
                    attempt, host = entry.attempt + 1, room.machine.name
                    change.begin(entry.task.key, attempt, host)
                    again = {"attempt": attempt, "host": host, "bound": "", "not_before": 0.0}
                    change.task(entry, state="running", **again)
        for entry, room in begun:
            self._ends[entry.task.key] = now + room.seconds(entry.task)
            self._begun_at[entry.task.key] = self._returns[entry.host]
            self._tasks.file(entry)
            self.workers.start(entry.task, entry.host, entry.attempt)

    def _end(self, ended: Ended) -> None:
        """An attempt has ended: what it means for the task, what comes after it, and the host."""
        entry, host = self.entries[ended.key], self.hosts[ended.host]
        back = self._begun_at[ended.key] != self._returns[ended.host]
        elsewhere = {*entry.task.hosts} - {*entry.avoid, ended.host}
        usable = any(h.state != "refused" for name, h in self.hosts.items() if name in elsewhere)
        with self._change() as change:
            change.end(ended)
            values = fields_after_attempt(entry, ended, self.limits, change.at, elsewhere=usable)
            change.task(entry, **values)
            if entry.state in FINAL - {"done"}:
                if entry.state != ended.outcome:
                    change.event(entry.state, ended.key, ended.host)
                self._tasks.block(change, self.hosts)
            elif entry.state == "done":
                self._warm[ended.host].add(entry.task.warm)
                self._tasks.done(ended.key)
                if host.retries:
                    change.host(host, retries=0)
        self._tasks.file(entry)
        if ended.gone and not back:
            self._lose(host, ended.error.message if ended.error else "it is gone")

    # What a lost attempt may have left running.

    def _withdraw(self) -> None:
        """End it where it can be; what nothing else has begun since is resumed there instead."""
        now = self.workers.now()
        for entry in [*self._tasks.busy.values()]:
            for host, attempt in entry.remains.items():
                pair = (entry.task.key, host)
                if self.hosts[host].state != "up" or self._withdrawals.get(pair, now) > now:
                    continue
                tried = entry.losses.get(host, 0) >= self.limits.tries and host not in entry.died
                fresh = entry.state == "waiting" and not entry.bound and entry.attempt == attempt
                if fresh and not tried:
                    self._resume(entry, host)
                    break
                self._withdrawals[pair] = math.inf
                self.workers.withdraw(entry.task, host)

    def _resume(self, entry: TaskEntry, host: str) -> None:
        remains = {name: one for name, one in entry.remains.items() if name != host}
        avoid = tuple(name for name in entry.avoid if name != host)
        with self._change() as change:
            until = change.at + self.limits.grace
            change.task(entry, bound=host, wait_until=until, remains=remains, avoid=avoid)
        self._tasks.file(entry)

    def _withdrawn(self, event: Withdrawn) -> None:
        """Nothing of it runs there any more; or that is not known, which is as good as gone."""
        pair, entry = (event.key, event.host), self.entries[event.key]
        self._withdrawals.pop(pair, None)
        if event.host not in entry.remains:
            return
        if not event.why:
            remains = {name: one for name, one in entry.remains.items() if name != event.host}
            with self._change() as change:
                change.task(entry, remains=remains)
                change.event("withdrawn", *pair)
            del self._refusals[pair]
            self._tasks.file(entry)
            return
        self._refusals[pair] += 1
        self._withdrawals[pair] = self.workers.now() + self.limits.pause
        if event.gone or self._refusals[pair] > self.limits.tries:
            self._lose(self.hosts[event.host], event.why)

    # Hosts.

    def _look_at_hosts(self) -> None:
        now = self.workers.now()
        for host in self.hosts.values():
            if host.state == "coming" and self.limits.past(host.since + self.limits.boot, now):
                minutes = self.limits.boot / 60
                self._lose(host, f"it was not ready within {minutes:.0f} minutes")
            elif host.state == "aside" and self.limits.past(host.retry_at, now):
                self._reach(host)

    def _reach(self, host: HostEntry) -> None:
        with self._change() as change:
            change.host(host, state="coming")
            change.event("asked", host=host.machine.name)
        self.workers.reach(host.machine.name)

    def _reached(self, event: Reached) -> None:
        host = self.hosts[event.host]
        if host.state not in ("coming", "aside"):
            return
        if event.why:
            self._lose(host, event.why)
            return
        with self._change() as change:
            change.host(host, state="up", why="")
            change.event("up", host=event.host)
        self._returns[event.host] += 1

    def _lose(self, host: HostEntry, why: str) -> None:
        """It is gone, or did not come: set aside until it is tried again."""
        if host.state not in ("coming", "up"):
            return
        with self._change() as change:
            retry_at = change.at + self.limits.pause_after(host.retries)
            retries = host.retries + 1
            change.host(host, state="aside", why=why, retry_at=retry_at, retries=retries)
            change.event("aside", host=host.machine.name, message=why)
        self.workers.disconnect(host.machine.name, why)

    # Orders.

    def _read_orders(self) -> None:
        if (seen := self.ledger.foreign_changes()) == self._seen:
            return
        self._seen = seen
        for order in self.ledger.open_orders():
            with self._change() as change:
                running = execute_order(order, change, self._tasks, self.hosts, self.limits)
            self.paused = self.ledger.fact("paused") == "yes"
            for entry in running:
                self.workers.cancel(entry.task.key)
