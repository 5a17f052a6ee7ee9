"""What a fleet works on: works, hosts and how a work ended. Bytes and seconds."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pipelines.model import Model
from pipelines.record import ErrorResult, Seconds, Size
from pipelines.units import GIB

Kind = Literal["cell", "units", "shard", "link", "test"]
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
    seconds: Seconds = 0.0
    """That the plan had for it there."""
