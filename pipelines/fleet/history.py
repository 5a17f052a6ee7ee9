"""What a fleet does and did, out of its ledger: what terminal, page and JUnit are made of."""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pydantic import Field

from pipelines.core.model import Model
from pipelines.fleet.ledger import Ledger
from pipelines.fleet.model import (
    HostEntry,
    HostStatus,
    Kind,
    Logged,
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
#: What happened to a host -> how it stood from then on.
_STATUS: dict[str, HostStatus] = {
    "asked": "starting",
    "up": "ready",
    "aside": "aside",
    "given back": "off",
    "drain": "drained",
    "undrain": "ready",
}
Interval = tuple[float, float]


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
    tasks: dict[TaskState, int] = Field(default={})
    """How many are in which state."""
    hosts: tuple[HostView, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    """The next ones first; not necessarily all."""
    troubles: tuple[Trouble, ...] = ()
    """The latest first; not necessarily all."""


def state(ledger: Ledger, progress: Mapping[str, Sequence[Progress]] | None = None) -> FleetState:
    """Of the ledger; ``progress`` is that of each host, where its tasks run in this process."""
    entries, hosts, attempts = ledger.tasks(), ledger.hosts(), ledger.attempts()
    up = {one.machine.name for one in hosts if one.state == "up" and not one.drained}
    return FleetState(
        name=ledger.path.name,
        began=ledger.number("began") or 0.0,
        now=time.time(),
        ended=ledger.number("ended"),
        paused=ledger.fact("paused") == "yes",
        tasks=Counter(one.state for one in entries),
        hosts=tuple(_host_views(hosts, entries, attempts, progress or {})),
        waiting=tuple(_waiting(entries, up)),
        troubles=tuple(_troubles(entries, attempts)),
    )


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
    if host.state == "off":
        return "off"
    return "lost" if host.state != "refused" and worked else "aside"


def _waiting(entries: Sequence[TaskEntry], up: set[str]) -> Iterable[Waiting]:
    done = {one.task.key for one in entries if one.state == "done"}
    waiting = [one for one in entries if one.state == "waiting"]
    waiting.sort(key=lambda one: (-one.priority, bool({*one.task.after} - done)))
    for one in waiting[:_MOST]:
        after = tuple(key for key in one.task.after if key not in done)
        if after:
            why = ""
        elif one.bound and one.bound not in up:
            why = f"its host {one.bound} is away"
        elif one.suspended:
            why = "it was interrupted: the same command resumes it"
        elif one.not_before > time.time():
            why = "it is tried again after a pause"
        elif not up.intersection(one.task.hosts):
            why = "no host that fits is up"
        else:
            why = "no host has room"
        yield Waiting(key=one.task.key, kind=one.task.kind, after=after, why=why)


def _troubles(entries: Sequence[TaskEntry], attempts: Sequence[Span]) -> list[Trouble]:
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


# -- all of it ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stretch:
    """A time in which a host took no task, and why: it started, was lost, or was set aside."""

    host: str
    status: HostStatus
    began: float
    ended: float | None = None
    """None: it is so still."""
    why: str = ""


@dataclass(frozen=True)
class FleetHistory:
    """All that a fleet did."""

    name: str
    began: float
    ended: float | None = None
    machines: tuple[Machine, ...] = ()
    tasks: tuple[TaskEntry, ...] = ()
    spans: tuple[Span, ...] = ()
    """Every attempt."""
    stretches: tuple[Stretch, ...] = ()
    resumed: tuple[float, ...] = ()
    """When another process resumed it: the one before had ended, or was killed."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Host -> why it took no part."""

    @cached_property
    def bounds(self) -> Interval:
        """When the first thing began and the last one ended, whatever a clock did since."""
        every: list[Span | Stretch] = [*self.spans, *self.stretches]
        first = min([self.began, *(one.began for one in every)])
        ends = [one.ended for one in every if one.ended is not None]
        last = max([self.began, *(one.began for one in every), *ends, self.ended or self.began])
        return first, last

    @property
    def seconds(self) -> float:
        """From its beginning to its end."""
        return self.bounds[1] - self.bounds[0]

    def interval(self, one: Span | Stretch) -> Interval:
        """From when to when; what goes on lasts until now. No clock makes it negative."""
        ended = self.bounds[1] if one.ended is None else one.ended
        return one.began, max(one.began, ended)


def history(ledger: Ledger) -> FleetHistory:
    """What the ledger tells; :class:`ConfigError` where it is damaged."""
    hosts, attempts, events = ledger.hosts(), ledger.attempts(), ledger.events()
    began, ended = ledger.number("began"), ledger.number("ended")
    worked = {one.host for one in attempts}
    aside = [one for one in hosts if one.state in ("refused", "aside")]
    return FleetHistory(
        name=ledger.path.name,
        began=min((one.began for one in attempts), default=0.0) if began is None else began,
        ended=ended,
        machines=tuple(host.machine for host in hosts),
        tasks=tuple(ledger.tasks()),
        spans=tuple(attempts),
        stretches=tuple(one for h in hosts for one in stretches(h.machine, events, ended)),
        resumed=tuple(event.at for event in events if event.what == "controller")[1:],
        refused={h.machine.name: h.why for h in aside if h.machine.name not in worked},
    )


def stretches(machine: Machine, events: Iterable[Logged], ended: float | None) -> list[Stretch]:
    """The times in which a host took no task, by the events of its fleet.

    Only one that is made on demand starts: others are tried. One that was up and is not, is lost.
    """
    found: list[Stretch] = []
    status: HostStatus = "off" if machine.made else "ready"
    since, why, was_up = None, "", False

    def close(at: float | None) -> None:
        if status != "ready" and since is not None:
            last = None if at is None else max(since, at)
            found.append(Stretch(machine.name, status, since, last, why))

    for event in events:
        if event.host != machine.name or (now := _STATUS.get(event.what)) is None:
            continue
        if now == "starting" and status != "off":
            continue
        if now == "aside" and was_up:
            now = "lost"
        if now != status:
            close(event.at)
            status, since, why = now, event.at, event.message
        was_up = was_up or event.what == "up"
    close(ended)
    return found


# -- what the time went into ----------------------------------------------------------------------


@dataclass(frozen=True)
class HostAccount:
    """What one host did. Seconds."""

    machine: Machine
    outcomes: Counter[str | None]
    """Of its attempts."""
    busy: float
    """With at least one task."""
    utilisation: float
    """Of its slots over the fleet's whole time, 0 to 1."""


def host_accounts(history: FleetHistory) -> list[HostAccount]:
    """What became of the time of every host."""
    spans: dict[str, list[Span]] = defaultdict(list)
    for span in history.spans:
        spans[span.host].append(span)
    return [_account(history, one, spans[one.name]) for one in history.machines]


def _account(history: FleetHistory, machine: Machine, spans: list[Span]) -> HostAccount:
    builds = [history.interval(span) for span in spans if span.kind != "test"]
    whole = machine.slots * history.seconds
    return HostAccount(
        machine,
        outcomes=Counter(span.outcome for span in spans),
        busy=union(history.interval(span) for span in spans),
        utilisation=min(1.0, sum(end - begin for begin, end in builds) / whole) if whole else 0.0,
    )


def union(intervals: Iterable[Interval]) -> float:
    """Seconds that at least one of them covers."""
    covered, reached = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        if end > reached:
            covered += end - max(begin, reached)
            reached = end
    return covered


def numbered(name: str) -> tuple[object, ...]:
    """The order of names in which ``lab2`` comes before ``lab10``."""
    parts = re.split(r"(\d{1,9})", name)
    return tuple((1, int(part)) if part.isdecimal() else (0, part) for part in parts)
