"""What a fleet does at this moment, out of its ledger."""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from pydantic import Field

from pipelines.core.model import Model
from pipelines.fleet.ledger import Ledger
from pipelines.fleet.model import (
    FINAL,
    HostEntry,
    HostStatus,
    Kind,
    Machine,
    Progress,
    Span,
    TaskEntry,
    TaskState,
)
from pipelines.record.results import ErrorResult

#: How many are shown where there may be thousands.
_MOST = 20
_TROUBLED = ("failed", "quarantined", "blocked", "cancelled")


class HostView(Model):
    """A host at this moment."""

    machine: Machine
    status: HostStatus
    why: str = ""
    """Why it is aside or lost."""
    running: tuple[Progress, ...] = ()
    done: int = 0
    """Tasks that came to their end there as they were asked for."""


class Waiting(Model):
    """A task that has not begun, and what for."""

    key: str
    kind: Kind
    after: tuple[str, ...] = ()
    """Tasks that are not done yet and must be before; empty: it waits for a host."""
    why: str = ""


class Trouble(Model):
    """A task that did not come to the end that was asked for, or an attempt that was lost."""

    key: str
    state: TaskState
    """Of the task now: a lost attempt of one that runs elsewhere is ``running``."""
    host: str = ""
    at: float
    error: ErrorResult | None = None


class FleetState(Model):
    """A fleet at one moment."""

    name: str
    """Its directory: ``fleet-<stamp>``."""
    began: float
    now: float
    ended: float | None = None
    paused: bool = False
    left: tuple[float, float] | None = None
    """Seconds until all is done, from and to, at the pace of what is done; ``None``: not known."""
    tasks: dict[TaskState, int] = Field(default={})
    """How many are in which state."""
    hosts: tuple[HostView, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    """The next ones first; not necessarily all."""
    troubles: tuple[Trouble, ...] = ()
    """The latest first; not necessarily all."""


def fleet_state(
    ledger: Ledger, progress: Mapping[str, Sequence[Progress]] | None = None
) -> FleetState:
    """Of the ledger; ``progress`` is that of each host, where its tasks run in this process."""
    entries, hosts, attempts = ledger.tasks(), ledger.hosts(), ledger.attempts()
    up = {one.machine.name for one in hosts if one.state == "up" and not one.drained}
    now = time.time()
    return FleetState(
        name=ledger.path.name,
        began=ledger.number("began") or 0.0,
        now=now,
        ended=ledger.number("ended"),
        paused=ledger.fact("paused") == "yes",
        left=estimate_remaining(
            entries, attempts, [one.machine for one in hosts if one.state == "up"], now
        ),
        tasks=Counter(one.state for one in entries),
        hosts=tuple(_host_views(hosts, entries, attempts, progress or {})),
        waiting=tuple(_explain_waiting_tasks(entries, up)),
        troubles=tuple(_collect_troubles(entries, attempts)),
    )


def estimate_remaining(
    entries: Sequence[TaskEntry], attempts: Iterable[Span], machines: Sequence[Machine], now: float
) -> tuple[float, float] | None:
    """Seconds until all tasks are done, at least and at most, from the times of finished ones.

    At least: the remaining work spread over the slots, or the longest chain of tasks. At most: both
    together (Graham's bound). Tests count like builds.
    """
    tasks = {one.task.key: one.task for one in entries}
    by_name = {one.name: one for one in machines}
    took = [
        (span.ended - span.began, by_name[span.host].seconds(tasks[span.key]))
        for span in attempts
        if span.ended and span.outcome == "done" and span.host in by_name
    ]
    planned = sum(plan for _, plan in took)
    if not planned or all(one.state in FINAL for one in entries):
        return None
    pace, left = sum(seconds for seconds, _ in took) / planned, 0.0
    chains: dict[str, float] = {}
    for one in reversed(entries):  # what comes after a task is put after it
        task, seconds = one.task, 0.0
        if one.state not in FINAL:
            seconds = pace * sum(host.seconds(task) for host in machines) / len(machines)
            seconds = max(seconds - (now - one.since) * (one.state == "running"), 0.0)
        left += seconds
        chains[task.key] = seconds + chains.get(task.key, 0.0)
        for before in task.after:
            chains[before] = max(chains.get(before, 0.0), chains[task.key])
    longest, spread = max(chains.values()), left / sum(one.slots for one in machines)
    return max(longest, spread), longest + spread


def _host_views(
    hosts: Iterable[HostEntry],
    entries: Iterable[TaskEntry],
    attempts: Iterable[Span],
    progress: Mapping[str, Sequence[Progress]],
) -> Iterable[HostView]:
    worked = {one.host for one in attempts}
    done = Counter(one.host for one in entries if one.state == "done")
    running: dict[str, list[Progress]] = defaultdict(list)
    for entry in entries:
        if entry.state == "running":
            task = entry.task
            known = (one for one in progress.get(entry.host, ()) if one.key == task.key)
            own = next(known, Progress(key=task.key, kind=task.kind, began=entry.since))
            running[entry.host].append(own)
    for host in hosts:
        name = host.machine.name
        status = _status(host, busy=name in running, worked=name in worked)
        yield HostView(
            machine=host.machine,
            status=status,
            why=host.why,
            running=tuple(running.get(name, ())),
            done=done[name],
        )


def _status(host: HostEntry, *, busy: bool, worked: bool) -> HostStatus:
    if host.state == "up":
        if host.drained:
            return "draining" if busy else "drained"
        return "ready"
    if host.state == "coming" and not host.why:  # else it is only tried again
        return "starting"
    return "lost" if host.state != "refused" and worked else "aside"


def _explain_waiting_tasks(entries: Sequence[TaskEntry], up: set[str]) -> Iterable[Waiting]:
    done = {one.task.key for one in entries if one.state == "done"}
    waiting = [one for one in entries if one.state == "waiting"]
    waiting.sort(key=lambda one: (-one.priority, bool({*one.task.after} - done)))
    for one in waiting[:_MOST]:
        after = tuple(key for key in one.task.after if key not in done)
        if after:
            why = ""
        elif one.bound and one.bound not in up:
            why = f"its host {one.bound} is unavailable"
        elif one.suspended:
            why = "it was interrupted: the same command resumes it"
        elif one.not_before > time.time():
            why = "it is tried again after a pause"
        elif not up.intersection(one.task.hosts):
            why = "no host that fits is up"
        else:
            why = "no host has room"
        yield Waiting(key=one.task.key, kind=one.task.kind, after=after, why=why)


def _collect_troubles(entries: Sequence[TaskEntry], attempts: Sequence[Span]) -> list[Trouble]:
    """What failed, and attempts that were lost; the latest first."""
    states = {one.task.key: one.state for one in entries}
    found = [
        Trouble(key=one.task.key, state=one.state, host=one.host, at=one.since, error=one.error)
        for one in entries
        if one.state in _TROUBLED
    ]
    for span in attempts:
        state = states[span.key]
        if span.outcome == "lost" and state not in _TROUBLED:
            at = span.ended or span.began
            trouble = Trouble(key=span.key, state=state, host=span.host, at=at, error=span.error)
            found.append(trouble)
    return sorted(found, key=lambda one: -one.at)[:_MOST]


def natural_sort_key(name: str) -> tuple[object, ...]:
    """The order of names in which ``lab2`` comes before ``lab10``."""
    parts = re.split(r"(\d{1,9})", name)
    return tuple((1, int(part)) if part.isdecimal() else (0, part) for part in parts)
