"""All that a fleet did, out of its ledger: what its page, accounts and JUnit are made of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from pipelines.fleet.entries import Attempt, Entry, Event, HostEntry
from pipelines.fleet.ledger import Ledger
from pipelines.fleet.model import Finished, FleetHistory, Machine, Standing, Stretch

#: What happened to a host -> how it stood from then on.
_STANDINGS: dict[str, Standing] = {
    "asked": "starting",
    "up": "ready",
    "aside": "aside",
    "given back": "off",
    "refused": "aside",
    "drain": "drained",
    "undrain": "ready",
}
#: Of these the host is what was typed.
_OF_PERSONS = ("drain", "undrain")


def history(ledger: Ledger, currency: str = "") -> FleetHistory:
    """What the ledger tells; :class:`ConfigError` where it is damaged."""
    began, ended = ledger.number("began"), ledger.number("ended")
    hosts, entries = ledger.hosts(), ledger.works()
    attempts = ledger.attempts()
    done = {
        one.span.key: one.span.ended
        for one in attempts
        if one.span.outcome == "done" and one.span.ended is not None
    }
    began = began if began is not None else min((one.span.began for one in attempts), default=0.0)
    events: dict[str, list[Event]] = {host.machine.name: [] for host in hosts}
    every = ledger.events()
    for event in every:
        of = event.key if event.what in _OF_PERSONS else event.host
        if of in events and event.what in _STANDINGS:
            events[of].append(event)
    return FleetHistory(
        name=ledger.path.name,
        began=began,
        ended=ended,
        machines=tuple(host.machine for host in hosts),
        works=tuple(_finished(entry, done, began) for entry in entries),
        spans=tuple(one.span for one in attempts),
        stretches=tuple(
            stretch
            for host in hosts
            for stretch in stretches(host.machine, events[host.machine.name], ended)
        ),
        resumed=tuple(event.at for event in every if event.what == "dispatcher")[1:],
        currency=currency,
        refused=_refused(hosts, attempts),
    )


def stretches(machine: Machine, events: Iterable[Event], ended: float | None) -> list[Stretch]:
    """The times in which a host took no work, by its events.

    Only one that is made on demand starts: others are looked at. One that was up and is not, is
    lost.
    """
    made: list[Stretch] = []
    standing: Standing = "off" if machine.made else "ready"
    since, why, was_up = -math.inf, "", False
    for event in events:
        now = _STANDINGS[event.what]
        if now == "starting" and standing != "off":
            continue
        if now == "aside" and was_up and event.what != "refused":
            now = "lost"
        if now != standing and not (now == "aside" and standing == "lost"):
            if standing != "ready" and since > -math.inf:
                made.append(_stretch(machine, standing, since, event.at, why))
            standing, since, why = now, event.at, event.said
        was_up = was_up or event.what == "up"
    if standing != "ready" and since > -math.inf:
        made.append(_stretch(machine, standing, since, ended, why))
    return made


def _stretch(
    machine: Machine, standing: Standing, began: float, ended: float | None, why: str
) -> Stretch:
    last = None if ended is None else max(began, ended)
    return Stretch(host=machine.name, standing=standing, began=began, ended=last, why=why)


def _finished(entry: Entry, done: dict[str, float], began: float) -> Finished:
    after = [done[key] for key in entry.work.after if key in done]
    return Finished(
        work=entry.work,
        stand=entry.stand,
        queued=max(after, default=began),
        error=entry.error if entry.stand != "done" else None,
    )


def _refused(hosts: Sequence[HostEntry], attempts: Sequence[Attempt]) -> dict[str, str]:
    """Hosts that did nothing and were not to, or could not be used."""
    worked = {one.span.host for one in attempts}
    return {
        host.machine.name: host.why
        for host in hosts
        if host.state in ("refused", "aside") and host.machine.name not in worked
    }
