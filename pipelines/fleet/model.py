"""What a fleet works on: works, hosts and how a work ended. Bytes and seconds."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pipelines.model import Model
from pipelines.record import ErrorResult, Seconds, Size
from pipelines.units import GIB

Kind = Literal["cell", "shard", "link", "test"]
#: ``done``: it is as it was asked for. ``failed``: the work itself is to blame, it would fail
#: elsewhere too. ``lost``: the host is, or the way to it; what it did is found again or redone.
#: ``left``: nobody is to blame, it was paused or its time was up; the same host goes on with it.
Outcome = Literal["done", "failed", "lost", "left"]


class Needs(Model):
    """What of a host a work takes for itself while it goes on."""

    slots: Annotated[int, Field(ge=0)] = 1
    """Of those for builds; a test takes none."""
    memory: Size = 2 * GIB
    gpu: tuple[str, ...] = ()
    """Compute capabilities such as 9.0, of which the host's GPU has one; empty: it takes no GPU."""


class Work(Model):
    """Something that one host does at a time: a cell, a share of its compile units, its link."""

    key: str
    """Unique in its fleet: ``flash-attn-2.8.3-cp312-torch2.8-cu128``, ``<that>/3of8``."""
    kind: Kind
    cell: str
    """Whose it is."""
    core_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """Of one core for all of it, by the plan."""
    width: Annotated[int, Field(ge=1)] = 1
    """How many cores it can use: its compile units at a time."""
    needs: Needs = Needs()
    after: tuple[str, ...] = ()
    """Keys of works that must be done before it begins."""
    priority: int = 0
    """Those of a higher one begin first, however long they take."""
    hosts: tuple[str, ...] = ()
    """Those that fit, by name."""
    refused: dict[str, str] = Field(default={})
    """Host -> why it does not fit."""
    warm: str = ""
    """What a host keeps of a work that makes the next one of the same name cheaper: tool chain,
    source, compile cache."""
    cold_seconds: Seconds = 60.0
    """How much longer it takes on a host that keeps nothing of ``warm`` yet."""


class Machine(Model):
    """A host of ``pipeline.yaml``, as far as a fleet must know it."""

    name: str
    slots: Annotated[int, Field(ge=1)] = 1
    """Builds at a time."""
    cores: Annotated[int, Field(ge=1)]
    """That all its builds have together."""
    memory: Size
    gpus: tuple[str, ...] = ()
    """Compute capabilities, one a GPU."""
    price: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Per hour, in the currency of ``pipeline.yaml``."""
    made: bool = False
    """Whether it is started and given back by us, as the queue needs."""


class Ended(Model):
    """How one attempt at a work ended."""

    key: str
    host: str
    attempt: Annotated[int, Field(ge=1)]
    outcome: Outcome
    began: float
    """Since the epoch, as ``ended``: of the controller's clock, whatever the host's says."""
    ended: float
    error: ErrorResult | None = None
    gone: bool = False
    """Whether the host cannot be used any more, as far as is known, and not just this work lost."""
    run: str = ""
    """The run's directory, where there is one."""
    told: dict[str, str | int | float] = Field(default={})
    """What else is to be shown of it: size and sha256 of the wheel, units compiled."""


class Span(Model):
    """What a host did from when to when, for the chart: a finished attempt, or one that goes on."""

    key: str
    kind: Kind
    host: str
    began: float
    ended: float | None = None
    outcome: Outcome | None = None
    attempt: Annotated[int, Field(ge=1)] = 1
    run: str = ""
    """The run's directory, where there is one."""
    error: ErrorResult | None = None


Standing = Literal["ready", "starting", "draining", "drained", "aside", "lost", "off"]
#: Where a work stands in its ledger. ``quarantined``: two different hosts died under it;
#: ``blocked``: it comes after one that failed, or no host fits.
Stand = Literal["waiting", "running", "done", "failed", "quarantined", "cancelled", "blocked"]


class Stretch(Model):
    """A time in which a host took no work, and why: it started, was lost, or was set aside."""

    host: str
    standing: Standing
    began: float
    ended: float | None = None
    """None: it is so still."""
    why: str = ""


class Doing(Model):
    """What a host does at this moment."""

    key: str
    kind: Kind
    began: float
    stage: str = ""
    """Such as ``build``; empty: not told."""
    done: Annotated[int, Field(ge=0)] | None = None
    """Compile units; ``None``: not told."""
    total: Annotated[int, Field(ge=0)] | None = None


class HostState(Model):
    """A host, as the fleet stands with it."""

    machine: Machine
    standing: Standing
    why: str = ""
    """Why it is aside, lost or draining."""
    doing: tuple[Doing, ...] = ()
    done: Annotated[int, Field(ge=0)] = 0
    """Works that came to their end there as they were asked for."""


class Waiting(Model):
    """A work that has not begun, and what for."""

    key: str
    kind: Kind
    after: tuple[str, ...] = ()
    """Works that are not done yet and must be before; empty: it waits for a host."""
    why: str = ""
    """Such as ``no host has room``; empty: it is next."""


class Trouble(Model):
    """A work that did not come to the end that was asked for, or an attempt that was lost."""

    key: str
    stand: Stand
    """Of the work now: a lost attempt of one that runs elsewhere is ``running``."""
    host: str = ""
    at: float
    error: ErrorResult | None = None


class FleetState(Model):
    """A fleet at one moment: what the terminal shows. Filled from the ledger and the drivers."""

    name: str
    """Its directory: ``fleet-<stamp>``."""
    began: float
    now: float
    ended: float | None = None
    paused: bool = False
    works: dict[Stand, Annotated[int, Field(ge=0)]]
    """How many stand how."""
    hosts: tuple[HostState, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    """The next ones first; not necessarily all."""
    troubles: tuple[Trouble, ...] = ()
    """The latest first; not necessarily all."""
    latest: tuple[Span, ...] = ()
    """Attempts that ended, the latest first; not necessarily all."""
    currency: str = ""
    dashboard: str = ""
    """Address of Dask's own page; empty: there is none."""


class Finished(Model):
    """A work as it stands in the end, or now."""

    work: Work
    stand: Stand
    queued: float
    """Since when all that it comes after was done."""
    why: str = ""
    """Of what is not done."""
    error: ErrorResult | None = None


class FleetHistory(Model):
    """All that a fleet did, from its ledger: what its page is made of."""

    name: str
    began: float
    ended: float | None = None
    machines: tuple[Machine, ...] = ()
    works: tuple[Finished, ...] = ()
    spans: tuple[Span, ...] = ()
    """Every attempt."""
    stretches: tuple[Stretch, ...] = ()
    resumed: tuple[float, ...] = ()
    """When another process went on with it: the one before had ended, or was killed."""
    currency: str = ""
    refused: dict[str, str] = Field(default={})
    """Host -> why it took no part."""
