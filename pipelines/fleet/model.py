"""What a fleet works on: tasks, hosts and how an attempt ended. Bytes and seconds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Literal, Protocol

from pydantic import Field

from pipelines.core.model import Model
from pipelines.core.target import Target
from pipelines.core.units import GIB
from pipelines.record.results import ErrorResult, Seconds, Size

Kind = Literal["cell", "shard", "link", "test"]
#: ``done``: it is as it was asked for. ``failed``: the task itself is to blame, it would fail
#: elsewhere too. ``lost``: the host is, or the way to it; what it did is found again or redone.
#: ``left``: neither is to blame, it was interrupted or its time was up; the same host resumes it.
Outcome = Literal["done", "failed", "lost", "left"]
#: ``quarantined``: two different hosts died under it; ``blocked``: it comes after one that failed,
#: or no host fits.
TaskState = Literal["waiting", "running", "done", "failed", "quarantined", "cancelled", "blocked"]
#: States in which nothing more is done.
FINAL = frozenset({"done", "failed", "quarantined", "cancelled", "blocked"})
#: ``coming``: asked for, and not there yet.
#: ``refused``: not as it must be, or not to be used at all; it is not tried again.
HostState = Literal["coming", "up", "aside", "refused"]
#: What is shown of a host.
HostStatus = Literal["ready", "starting", "draining", "drained", "aside", "lost"]
Verb = Literal["pause", "resume", "drain", "undrain", "cancel", "priority", "retry"]
Details = dict[str, str | int | float]


class Needs(Model):
    """What of a host a task takes for itself while it runs."""

    slots: Annotated[int, Field(ge=0)] = 1
    """Of those for builds; a test takes none."""
    memory: Size = 2 * GIB
    gpu: tuple[str, ...] = ()
    """Compute capabilities such as 9.0: the host's GPU needs one of them; empty: none is needed."""


class Task(Model):
    """What one host does at a time: a cell, a shard of its compile units, its link, its test."""

    key: str
    """Unique in its fleet: ``flash-attn-2.8.3-cp312-torch2.8-cu128``, ``<that>/3of8``."""
    kind: Kind
    cell: str
    target: Target = Target()
    """Of the cell, without a host."""
    core_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """Of one core for all of it, by the plan."""
    width: Annotated[int, Field(ge=1)] = 1
    """How many cores it can use: its compile units at a time."""
    needs: Needs = Needs()
    after: tuple[str, ...] = ()
    """Keys of tasks that must be done before it begins."""
    priority: int = 0
    """Those of a higher one begin first, however long they take."""
    hosts: tuple[str, ...] = ()
    """Those that fit, by name."""
    refused: dict[str, str] = Field(default={})
    """Host -> why it does not fit."""
    warm: str = ""
    """What a host keeps of a task that makes the next one of the same name cheaper: tool chain,
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

    def can(self, task: Task) -> bool:
        """Whether it is large enough for the task."""
        needs = task.needs
        if needs.gpu and not set(needs.gpu) & set(self.gpus):
            return False
        return needs.slots <= self.slots and needs.memory <= self.memory

    def seconds(self, task: Task) -> float:
        """What a task takes here by the plan, with its tool chain in place."""
        return task.core_seconds / min(task.width, max(1, self.cores // self.slots))


class Ended(Model):
    """How one attempt at a task ended."""

    key: str
    host: str
    attempt: Annotated[int, Field(ge=1)]
    outcome: Outcome
    error: ErrorResult | None = None
    gone: bool = False
    """Whether the host cannot be used any more, as far as is known, and not just this task lost."""
    run: str = ""
    """The run's directory, where there is one."""
    details: Details = Field(default={})
    """What else is to be shown of it: size and sha256 of the wheel, units compiled."""


@dataclass(frozen=True)
class Reached:
    """What came of reaching a host."""

    host: str
    why: str
    """Why it cannot be used; empty: it can."""


@dataclass(frozen=True)
class Withdrawn:
    """What came of ending what an attempt may have left running at its host."""

    key: str
    host: str
    why: str
    """Why that is not known; empty: nothing of it runs there any more."""
    gone: bool = False
    """Whether the host cannot be used any more."""


Event = Ended | Reached | Withdrawn


class Workers(Protocol):
    """What does tasks at hosts; it decides nothing. Every call but ``wait`` returns at once."""

    def now(self) -> float:
        """Seconds since the epoch."""

    def reach(self, host: str) -> None:
        """Connect to the host and look at it: a :class:`Reached` says what came of it."""

    def start(self, task: Task, host: str, attempt: int) -> None:
        """Begin the task there, or resume what was begun: ends with one :class:`Ended`."""

    def cancel(self, key: str) -> None:
        """End the task that was started; it ends as any other."""

    def withdraw(self, task: Task, host: str) -> None:
        """End what a lost attempt may have left running there: a :class:`Withdrawn` follows."""

    def disconnect(self, host: str, why: str) -> None:
        """Have what was started there end as lost: the host is gone."""

    def wait(self, timeout: float) -> Iterable[Event]:
        """What has happened since the last call; at most ``timeout`` seconds until the first."""


class Span(Model):
    """An attempt: what a host did from when to when."""

    key: str
    kind: Kind
    host: str
    began: float
    """Since the epoch, by the controller's clock."""
    ended: float | None = None
    outcome: Outcome | None = None
    attempt: Annotated[int, Field(ge=1)] = 1
    run: str = ""
    """The run's directory, where there is one."""
    error: ErrorResult | None = None
    details: Details = Field(default={})


class Progress(Model):
    """What a host does at this moment."""

    key: str
    kind: Kind
    began: float
    stage: str = ""
    """Such as ``build``; empty: not known."""
    done: Annotated[int, Field(ge=0)] | None = None
    """Compile units; ``None``: not known."""
    total: Annotated[int, Field(ge=0)] | None = None


@dataclass
class TaskEntry:
    """A task and where it stands in its ledger; changed by a transaction only."""

    task: Task
    state: TaskState = "waiting"
    priority: int = 0
    host: str = ""
    """Where it runs, or ran last."""
    attempt: Annotated[int, Field(ge=0)] = 0
    since: float = 0.0
    bound: str = ""
    """The host that has begun it and may have it running: it is resumed there, or withdrawn."""
    wait_until: float = 0.0
    """Until when it waits for ``bound`` to come back."""
    not_before: float = 0.0
    suspended: bool = False
    """Whether it was left (interrupted, time up): the next controller resumes it."""
    cancelled: bool = False
    losses: dict[str, int] = field(default_factory=dict)
    """Host -> how many attempts were lost there."""
    died: tuple[str, ...] = ()
    """Hosts that were gone with it."""
    avoid: tuple[str, ...] = ()
    """Hosts that it was taken from: it goes there only if there is no other."""
    remains: dict[str, int] = field(default_factory=dict)
    """Host -> the attempt that may still run there though the task was given elsewhere."""
    error: ErrorResult | None = None


@dataclass
class HostEntry:
    """A host and where it stands in the ledger; changed by a transaction only."""

    machine: Machine
    state: HostState = "coming"
    why: str = ""
    since: float = 0.0
    retry_at: float = 0.0
    retries: int = 0
    """Failed tries since it last did a task."""
    drained: bool = False


@dataclass(frozen=True)
class Order:
    """What a person wants of a fleet."""

    id: int
    verb: Verb
    subject: str
    number: int


@dataclass(frozen=True)
class Logged:
    """An event of the ledger, for people and charts."""

    id: int
    at: float
    what: str
    key: str
    host: str
    message: str
