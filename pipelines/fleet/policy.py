"""What runs next and where, what is retried, what is blocked: pure functions.

Tasks start in this order: by priority, those that need a GPU (there are few), the longest chain of
later tasks. Each goes to the host that finishes it first by the plan, even if that is still busy.
The rule is known as HEFT, https://doi.org/10.1109/71.993206.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.core.units import format_gib, join_first, pluralize
from pipelines.fleet.model import FINAL, Ended, HostEntry, Machine, Task, TaskEntry
from pipelines.record.results import ErrorResult


@dataclass(frozen=True)
class Limits:
    """How patient a scheduler is. Seconds, unless it says otherwise."""

    grace: float = 300.0
    """That a task waits for the host that has begun it, before it is given to another."""
    pause: float = 15.0
    """Before a lost host or task is tried again: each time twice as long."""
    max_pause: float = 900.0
    boot: float = 900.0
    """In which a host that was asked for must be there."""
    tries: int = 2
    """Attempts lost at a host that is there, after which the task goes elsewhere."""
    deaths: int = 2
    """Different hosts that were gone with a task, after which it is quarantined."""
    losses: int = 6
    """Attempts lost in all, after which it is quarantined."""
    stuck: float = 7200.0
    """With nothing running and no host for what is left, after which the scheduler ends."""
    poll: float = 1.0
    """At most between two looks at orders and hosts."""

    def past(self, moment: float, now: float) -> bool:
        """Whether a moment has come; no limit is further ahead, unless the clock was put back."""
        longest = max(self.grace, self.max_pause, self.boot) + 1.0
        return not 0 < moment - now <= longest

    def pause_after(self, failures: int) -> float:
        """Until the next try: each pause is twice the last."""
        return min(self.pause * math.exp2(min(failures, 30)), self.max_pause)


class Room:
    """A host that takes tasks: what it has left, and when it has more."""

    def __init__(self, machine: Machine, warm: Collection[str] = ()) -> None:
        """``warm`` is what it keeps of the tasks that it has done."""
        self.machine, self.warm = machine, warm
        self.slots, self.memory, self.gpus = machine.slots, machine.memory, [*machine.gpus]
        self.held: list[Task] = []
        self._ends: list[tuple[float, bool]] = []
        self._reserved = 0

    def fits(self, task: Task) -> bool:
        """Whether there is room for it now."""
        needs = task.needs
        if needs.slots > self.slots:
            return False
        if needs.gpu:
            return needs.memory <= self.memory and any(gpu in needs.gpu for gpu in self.gpus)
        if not needs.slots and sum(map(_is_light, self.held)) >= self.machine.slots:
            return False
        return needs.memory <= self.memory - self._reserved

    def take(self, task: Task, end: float) -> None:
        """It begins, or may still run from before; then there may be less than nothing left."""
        self.held.append(task)
        self._ends.append((end, task.needs.slots > 0))
        self.slots -= task.needs.slots
        self.memory -= task.needs.memory
        if gpu := next((one for one in self.gpus if one in task.needs.gpu), ""):
            self.gpus.remove(gpu)

    def seconds(self, task: Task) -> float:
        """What a task takes here, with what must be brought first."""
        cold = task.cold_seconds if task.warm and task.warm not in self.warm else 0.0
        return self.machine.seconds(task) + cold

    def start(self, task: Task, now: float) -> float:
        """When it could begin, by the plan."""
        if self.fits(task):
            return now
        builds = task.needs.slots > self.slots
        ends = (end for end, build in self._ends if build or not builds)
        return min((_expected_end(end, now) for end in ends), default=math.inf)

    def reserve(self, task: Task, now: float) -> None:
        """Have it be next here; the memory of a test that waits for a GPU is not for builds."""
        if task.needs.gpu:
            held = sum(one.needs.memory for one in self.held if one.needs.gpu)
            self._reserved = max(self._reserved, task.needs.memory - held)
        if task.needs.slots and self._ends:
            first = min(self._ends)
            self._ends.remove(first)
            self._ends.append((_expected_end(first[0], now) + self.seconds(task), first[1]))


def _is_light(task: Task) -> bool:
    """Neither a build nor with a GPU: of those a host has as many at a time as it has slots."""
    return not task.needs.slots and not task.needs.gpu


def _expected_end(end: float, now: float) -> float:
    """When something ends that was to end before: it is late by half as much again."""
    return max(end, now + (now - end) / 2)


def assign_tasks(
    waiting: Iterable[tuple[Task, Collection[str]]], rooms: Mapping[str, Room], now: float
) -> list[tuple[Task, Room]]:
    """What starts where; ``waiting`` has tasks in order, each with its possible hosts.

    ``rooms`` are those of hosts that are up, reduced by what starts.
    """
    begun: list[tuple[Task, Room]] = []
    slots = sum(max(0, room.slots) for room in rooms.values())
    for task, hosts in waiting:
        if task.needs.slots > slots:
            continue
        best: tuple[Any, ...] = (math.inf,)
        for name, room in rooms.items():
            if name in hosts and room.machine.can(task):
                start = room.start(task, now)
                if start + room.machine.seconds(task) <= best[0]:
                    machine = room.machine
                    # Of hosts alike the emptiest, then one without a GPU, for tests to use.
                    emptiness, gpus = -room.slots / machine.slots, len(machine.gpus)
                    best = min(
                        best, (start + room.seconds(task), emptiness, gpus, name, start, room)
                    )
        if len(best) == 1:
            continue
        start, chosen = best[4:]
        if start > now or not chosen.fits(task):
            chosen.reserve(task, now)
            continue
        chosen.take(task, now + chosen.seconds(task))
        slots -= task.needs.slots
        begun.append((task, chosen))
    return begun


def direct_dependents(tasks: Iterable[Task]) -> dict[str, list[str]]:
    """Key -> keys of those that come right after it."""
    found: dict[str, list[str]] = {}
    for task in tasks:
        for key in dict.fromkeys(task.after):
            found.setdefault(key, []).append(task.key)
    return found


def downstream_seconds(ordered: Iterable[Task], machines: Iterable[Machine]) -> dict[str, float]:
    """Key -> planned seconds from its start to the end of everything that depends on it.

    ``ordered``: in the order of dependencies.
    """
    tasks = [*ordered]
    cores = sorted(max(1, one.cores // one.slots) for one in machines) or [1]
    usual = cores[len(cores) // 2]
    after = direct_dependents(tasks)
    found: dict[str, float] = {}
    for task in reversed(tasks):
        longest = max((found[key] for key in after.get(task.key, ())), default=0.0)
        found[task.key] = task.core_seconds / min(task.width, usual) + longest
    return found


def fields_after_attempt(
    entry: TaskEntry, ended: Ended, limits: Limits, now: float, *, elsewhere: bool
) -> dict[str, Any]:
    """The fields of ``entry`` that change when an attempt has ended.

    ``elsewhere``: whether another host could do it.
    """
    if ended.outcome == "done":
        return {"state": "done", "error": None}
    fields: dict[str, Any] = {"error": ended.error}
    remains = {}
    if ended.outcome == "lost":
        fields["losses"] = entry.losses | {ended.host: entry.losses.get(ended.host, 0) + 1}
        if ended.gone:
            fields["died"] = tuple(dict.fromkeys([*entry.died, ended.host]))
        remains = {"remains": entry.remains | {ended.host: ended.attempt}}
    if entry.cancelled or ended.outcome == "failed":
        return fields | remains | {"state": "cancelled" if entry.cancelled else "failed"}
    bound = {"state": "waiting", "bound": ended.host, "wait_until": now + limits.grace}
    if ended.outcome == "left":
        return fields | bound | {"suspended": True}
    died, losses = fields.get("died", entry.died), fields["losses"]
    lost = sum(losses.values())
    if len(died) >= limits.deaths or lost >= limits.losses:
        error = _quarantine(ended, died, losses)
        return fields | remains | {"state": "quarantined", "error": error}
    if elsewhere and not ended.gone and losses[ended.host] >= limits.tries:
        return fields | remains | {"state": "waiting", "avoid": (*entry.avoid, ended.host)}
    pause = 0.0 if ended.gone else limits.pause_after(lost - 1)
    return fields | bound | {"not_before": now + pause}


def _quarantine(ended: Ended, died: tuple[str, ...], losses: dict[str, int]) -> ErrorResult:
    if len(died) > 1:
        said = f"{join_first(died, ' and ')} were lost while working on {ended.key}"
    else:
        said = f"{pluralize(sum(losses.values()), 'attempt')} of {ended.key} were lost"
    return ErrorResult(
        kind="HostError",
        title="quarantined",
        message=said + (f"; the last error: {ended.error.message}" if ended.error else ""),
        hint="Check its log and these hosts. When the cause is fixed, build it again.",
    )


def find_blocked_tasks(
    entries: Mapping[str, TaskEntry], order: Iterable[str], hosts: Mapping[str, HostEntry]
) -> dict[str, ErrorResult]:
    """Waiting tasks that can never start, and why, such as shards that are no longer needed.

    ``order``: in the order of dependencies.
    """
    found: dict[str, ErrorResult] = {}
    after = direct_dependents(entry.task for entry in entries.values())
    fits: dict[object, bool] = {}  # thousands of tasks are alike
    for key in order:
        entry = entries[key]
        if entry.state != "waiting":
            continue
        task, alike = entry.task, (entry.task.hosts, entry.task.needs)
        if alike not in fits:
            known = (hosts[name].machine for name in task.hosts if name in hosts)
            fits[alike] = any(machine.can(task) for machine in known)
        for before in task.after:
            state = "blocked" if before in found else entries[before].state
            if state in FINAL - {"done"}:
                found[key] = _blocked(f"it comes after {before}, which is {state}", before)
                break
        else:
            if not fits[alike]:
                found[key] = _no_host(task, hosts)
    for key, entry in entries.items():
        if entry.state == "waiting" and entry.task.kind == "shard" and key not in found:
            needing = after.get(key, ())
            if needing and all(one in found or entries[one].state in FINAL for one in needing):
                cell = entry.task.cell
                found[key] = _blocked(f"nothing is left that needs it: {cell} is blocked", cell)
    return found


def _blocked(message: str, cause: str) -> ErrorResult:
    hint = f"Check {cause}."
    return ErrorResult(kind="BuildError", title="blocked", message=message, hint=hint)


def _no_host(task: Task, hosts: Mapping[str, HostEntry]) -> ErrorResult:
    why = []
    for name, host in hosts.items():
        small = _machine_shortfall(task, host.machine) if name in task.hosts else ""
        why += [f"{name}: {one}" for one in [task.refused.get(name) or small] if one]
    return ErrorResult(
        kind="ConfigError",
        title="configuration",
        message=f"no host fits: {join_first(why, '; ') or 'none was given'}",
        hint="invoke plan --host NAME says what a host can build.",
    )


def _machine_shortfall(task: Task, machine: Machine) -> str:
    needs = task.needs
    if needs.gpu and not set(needs.gpu) & set(machine.gpus):
        return f"it needs a GPU of {join_first(needs.gpu, ' or ')}"
    if needs.memory > machine.memory:
        has = format_gib(machine.memory, 1)
        return f"it needs {format_gib(needs.memory, 1)} of memory, there are {has}"
    return f"it needs {pluralize(needs.slots, 'slot')}" if needs.slots > machine.slots else ""
