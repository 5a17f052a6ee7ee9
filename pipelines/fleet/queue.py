"""The tasks of a fleet, from the ledger's entries: which wait, their order, orders of people."""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Iterator, Mapping

from pipelines.core.units import join_first
from pipelines.fleet.ledger import Transaction
from pipelines.fleet.model import HostEntry, Machine, Order, TaskEntry
from pipelines.fleet.policy import Limits, direct_dependents, downstream_seconds, find_blocked_tasks


class TaskQueue:
    """Those of one fleet."""

    def __init__(self, entries: Mapping[str, TaskEntry], machines: Iterable[Machine]) -> None:
        self.entries = entries
        tasks = {key: one.task for key, one in entries.items()}
        graph = {key: task.after for key, task in tasks.items()}
        self.order = [*graphlib.TopologicalSorter(graph).static_order()]
        """Every key; none is before what it comes after."""
        self.waiting: dict[str, TaskEntry] = {}
        self.busy: dict[str, TaskEntry] = {}
        """What runs, or may run somewhere."""
        self._rank = downstream_seconds([tasks[key] for key in self.order], machines)
        self._turn = {key: turn for turn, key in enumerate(entries)}
        self._next = direct_dependents(tasks.values())
        self._undone = {
            key: sum(entries[one].state != "done" for one in set(task.after))
            for key, task in tasks.items()
        }
        """Key -> how many of those before it are not done."""
        self._sorted = False

    @property
    def running(self) -> bool:
        """Whether any of them runs."""
        return any(one.state == "running" for one in self.busy.values())

    def file(self, entry: TaskEntry) -> None:
        """Follow what has become of a task."""
        key = entry.task.key
        if entry.state != "waiting":
            self.waiting.pop(key, None)
        elif key not in self.waiting:
            self.waiting[key] = entry
            self._sorted = False
        if entry.state == "running" or entry.bound or entry.remains:
            self.busy[key] = entry
        else:
            self.busy.pop(key, None)

    def finish(self, change: Transaction, entry: TaskEntry, state: str, **values: object) -> None:
        """A task that does not run comes to its end."""
        remains = entry.remains | ({entry.bound: entry.attempt} if entry.bound else {})
        change.task(entry, state=state, remains=remains, bound="", suspended=False, **values)
        self.file(entry)

    def block(self, change: Transaction, hosts: Mapping[str, HostEntry]) -> None:
        """Finish what can never begin."""
        for key, error in find_blocked_tasks(self.entries, self.order, hosts).items():
            self.finish(change, self.entries[key], "blocked", error=error)

    def done(self, key: str) -> None:
        """What comes after it waits for one less."""
        for one in self._next.get(key, ()):
            self._undone[one] -= 1

    def reorder(self) -> None:
        """Some have another priority."""
        self._sorted = False

    def in_order(self) -> Iterator[TaskEntry]:
        """What waits for a host alone, the first ones first."""
        if not self._sorted:
            self.waiting = dict(sorted(self.waiting.items(), key=lambda item: self._place(item[1])))
            self._sorted = True
        return (one for key, one in self.waiting.items() if not self._undone[key])

    def _place(self, entry: TaskEntry) -> tuple[object, ...]:
        key = entry.task.key
        return -entry.priority, not entry.task.needs.gpu, -self._rank[key], self._turn[key]


def execute_order(
    order: Order,
    change: Transaction,
    tasks: TaskQueue,
    hosts: Mapping[str, HostEntry],
    limits: Limits,
) -> list[TaskEntry]:
    """Do it, with its answer, in one transaction; what runs and is to be ended."""
    verb, subject = order.verb, order.subject
    mine = [e for e in tasks.entries.values() if subject in (e.task.key, e.task.cell)]
    running = [one for one in mine if one.state == "running"] if verb == "cancel" else []
    if verb in ("pause", "resume"):
        change.fact("paused", "yes" if verb == "pause" else "")
        for entry in tasks.waiting.values() if verb == "resume" else ():
            if entry.suspended:
                change.task(entry, suspended=False, wait_until=change.at + limits.grace)
    elif verb in ("drain", "undrain"):
        change.host(hosts[subject], drained=verb == "drain")
    elif verb == "priority":
        for entry in mine:
            change.task(entry, priority=order.number)
        tasks.reorder()
    touched = [*running]
    if verb == "cancel":
        touched += _cancel(change, tasks, mine)
    elif verb == "retry":
        touched = _retry(change, tasks, mine)
    tasks.block(change, hosts)
    nothing = verb in ("cancel", "retry") and not touched
    states = join_first(sorted({one.state for one in mine}))
    change.answer(order, f"nothing to do: it is {states}" if nothing else "done")
    host = subject if verb in ("drain", "undrain") else ""
    message = str(order.number) if verb == "priority" else ""
    change.event(verb, "" if host else subject, host, message)
    return running


def _cancel(change: Transaction, tasks: TaskQueue, mine: list[TaskEntry]) -> list[TaskEntry]:
    """What waits is cancelled now, what runs when it has been ended."""
    waiting = [one for one in mine if one.state == "waiting"]
    for entry in mine:
        if entry.state == "running":
            change.task(entry, cancelled=True)
        elif entry in waiting:
            tasks.finish(change, entry, "cancelled")
    return waiting


def _retry(change: Transaction, tasks: TaskQueue, mine: list[TaskEntry]) -> list[TaskEntry]:
    """What came to another end than was asked for begins again, as if nothing had been."""
    again = [one for one in mine if one.state in ("failed", "quarantined", "cancelled")]
    after = [one for one in tasks.entries.values() if one.state == "blocked" and again]
    for entry in again:
        change.task(entry, losses={}, died=(), avoid=(), cancelled=False)
    for entry in [*again, *after]:
        change.task(entry, state="waiting", error=None)
        tasks.file(entry)
    return again
