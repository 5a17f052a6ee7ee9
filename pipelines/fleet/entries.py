"""What a ledger has of works, hosts, attempts, orders and events, as its rows are read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pipelines.fleet.model import Machine, Span, Stand, Work
from pipelines.record import ErrorResult

#: ``coming``: asked for, and not there yet. ``off``: made on demand, and nobody asked. ``refused``:
#: not as it must be, or not to be used at all; nobody looks again.
HostStanding = Literal["coming", "up", "aside", "off", "refused"]
Verb = Literal["pause", "resume", "drain", "undrain", "cancel", "priority", "retry"]


@dataclass
class Entry:
    """A work and where it stands; changed by a :class:`Change` only."""

    work: Work
    stand: Stand = "waiting"
    priority: int = 0
    host: str = ""
    """Where it runs, or ran last."""
    attempt: int = 0
    since: float = 0.0
    bound: str = ""
    """The host that has begun it and may have it running: it goes on there, or is withdrawn."""
    until: float = 0.0
    """When it is no longer waited for ``bound`` to come back."""
    rest: float = 0.0
    """It does not begin before."""
    fallen: bool = False
    """Whether it was left (paused, time up): the next dispatcher goes on with it."""
    cancelled: bool = False
    losses: dict[str, int] = field(default_factory=dict)
    """Host -> how many attempts were lost there."""
    died: tuple[str, ...] = ()
    """Hosts that were gone with it."""
    parted: tuple[str, ...] = ()
    """Hosts that it was taken from: it goes there only if there is no other."""
    error: ErrorResult | None = None


@dataclass
class HostEntry:
    """A host and how the fleet stands with it; changed by a :class:`Change` only."""

    machine: Machine
    state: HostStanding = "coming"
    why: str = ""
    since: float = 0.0
    look: float = 0.0
    """When it is looked at again."""
    looks: int = 0
    """How often in vain since it last did a work."""
    drained: bool = False


@dataclass(frozen=True)
class Order:
    """What a person wants of a fleet that goes on."""

    id: int
    verb: Verb
    subject: str
    number: int


@dataclass(frozen=True)
class Attempt:
    """One try at a work."""

    span: Span
    gone: bool
    told: dict[str, str | int | float]
    left: bool
    """Whether it may still run at its host though the work was given elsewhere."""


@dataclass(frozen=True)
class Event:
    """Something that happened, for people and charts."""

    id: int
    at: float
    what: str
    key: str
    host: str
    said: str
