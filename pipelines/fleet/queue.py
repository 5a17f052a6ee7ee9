"""The tasks of a fleet by where they stand: what waits and in which order, what may run somewhere.

All of it follows from the ledger's entries.
"""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Iterator, Mapping

from pipelines.fleet.ledger import Transaction
from pipelines.fleet.model import HostEntry, Machine, TaskEntry
from pipelines.fleet.policy import blocked, followers, ranks


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
        self._rank = ranks([tasks[key] for key in self.order], machines)
        self._turn = {key: turn for turn, key in enumerate(entries)}
        self._next = followers(tasks.values())
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
        for key, error in blocked(self.entries, self.order, hosts).items():
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
