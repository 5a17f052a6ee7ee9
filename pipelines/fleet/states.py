"""How a fleet stands at this moment, out of its ledger and of what its drivers tell."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from pipelines.fleet.entries import Attempt, Entry, HostEntry
from pipelines.fleet.ledger import Ledger
from pipelines.fleet.model import Doing, FleetState, HostState, Standing, Trouble, Waiting

#: So many of what is shown a few of.
_SOME = 20
_TROUBLED = ("failed", "quarantined", "blocked", "cancelled")


def state(
    ledger: Ledger,
    *,
    doing: Mapping[str, Sequence[Doing]] | None = None,
    entries: Iterable[Entry] | None = None,
    hosts: Iterable[HostEntry] | None = None,
    currency: str = "",
) -> FleetState:
    """Of the ledger; ``doing`` is what its drivers tell, where they are in this process.

    A dispatcher has ``entries`` and ``hosts`` at hand; without them they are read.
    """
    works = [*(ledger.works() if entries is None else entries)]
    known = [*(ledger.hosts() if hosts is None else hosts)]
    attempts = ledger.attempts()
    counts = {one.stand: 0 for one in works}
    for one in works:
        counts[one.stand] += 1
    return FleetState(
        name=ledger.path.name,
        began=ledger.number("began") or 0.0,
        now=time.time(),
        ended=ledger.number("ended"),
        paused=ledger.fact("paused") == "yes",
        works=counts,
        hosts=tuple(_hosts(known, works, attempts, doing or {})),
        waiting=tuple(_waiting(works, {one.machine.name: one for one in known})),
        troubles=tuple(_troubles(works, attempts)),
        latest=tuple(one.span for one in reversed(attempts) if one.span.ended is not None)[:_SOME],
        currency=currency,
    )


def _standing(host: HostEntry, *, busy: bool, worked: bool) -> Standing:
    if host.state == "up":
        if host.drained:
            return "draining" if busy else "drained"
        return "ready"
    if host.state == "coming" and not host.why:  # else it is only looked at again
        return "starting"
    if host.state == "off":
        return "off"
    return "lost" if host.state != "refused" and worked else "aside"


def _hosts(
    hosts: Iterable[HostEntry],
    works: Iterable[Entry],
    attempts: Iterable[Attempt],
    doing: Mapping[str, Sequence[Doing]],
) -> Iterable[HostState]:
    done: dict[str, int] = {}
    worked = {one.span.host for one in attempts}
    running: dict[str, list[Entry]] = {}
    for one in works:
        if one.stand == "done":
            done[one.host] = done.get(one.host, 0) + 1
        elif one.stand == "running":
            running.setdefault(one.host, []).append(one)
    for host in hosts:
        name = host.machine.name
        told = {one.key: one for one in doing.get(name, ())}
        now = tuple(told.get(one.work.key) or _doing(one) for one in running.get(name, ()))
        yield HostState(
            machine=host.machine,
            standing=_standing(host, busy=bool(now), worked=name in worked),
            why=host.why,
            doing=now,
            done=done.get(name, 0),
        )


def _doing(entry: Entry) -> Doing:
    return Doing(key=entry.work.key, kind=entry.work.kind, began=entry.since)


def _waiting(works: Sequence[Entry], hosts: Mapping[str, HostEntry]) -> Iterable[Waiting]:
    done = {one.work.key for one in works if one.stand == "done"}
    up = {name for name, one in hosts.items() if one.state == "up" and not one.drained}
    waiting = [one for one in works if one.stand == "waiting"]
    waiting.sort(key=lambda one: (-one.priority, bool({*one.work.after} - done)))
    for one in waiting[:_SOME]:
        after = tuple(key for key in one.work.after if key not in done)
        why = ""
        if not after and one.bound and one.bound not in up:
            why = f"its host {one.bound} is away"
        elif not after and one.fallen:
            why = "it was left: who goes on with the fleet goes on with it"
        elif not after and one.rest > time.time():
            why = "it is tried again after a pause"
        elif not after and not up.intersection(one.work.hosts):
            why = "no host that fits is up"
        elif not after:
            why = "no host has room"
        yield Waiting(key=one.work.key, kind=one.work.kind, after=after, why=why)


def _troubles(works: Sequence[Entry], attempts: Sequence[Attempt]) -> list[Trouble]:
    """What failed, and attempts that were lost; the latest first."""
    by_key = {one.work.key: one for one in works}
    found = [
        Trouble(key=one.work.key, stand=one.stand, host=one.host, at=one.since, error=one.error)
        for one in works
        if one.stand in _TROUBLED
    ]
    for attempt in attempts:
        span = attempt.span
        entry = by_key.get(span.key)
        if span.outcome == "lost" and entry is not None and entry.stand not in _TROUBLED:
            found.append(
                Trouble(
                    key=span.key,
                    stand=entry.stand,
                    host=span.host,
                    at=span.ended or span.began,
                    error=span.error,
                )
            )
    return sorted(found, key=lambda one: -one.at)[:_SOME]
