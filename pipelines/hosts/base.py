"""What a host is to the stages: a name, capabilities, a session with the Python on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, ClassVar, Protocol

from pydantic import Field

from pipelines.core.evidence import Bridge, Evidence, Origin
from pipelines.core.model import Model
from pipelines.core.versions import minor, python_order
from pipelines.hosts.bounds import Bounds
from pipelines.record.toolsets import MSVC, STAND_IN, Api, ToolSet
from pipelines.session.base import Bars, Session
from pipelines.toolchain.lock import Cache, ToolchainLock


@dataclass(frozen=True)
class Existing:
    """An environment that is used as it is: nothing is installed into it."""

    root: str
    """Directory on the host for what the pipeline leaves there."""
    toolkit: str = ""
    """Directory of the CUDA toolkit; empty when there is none."""
    sccache: str = ""
    """Path of the program; empty when there is none."""
    fixed: str = ""
    """Directory for reproducible builds, the same wherever ``root`` is; empty: one below it."""


class Events(Protocol):
    """Told what goes on while a host is made ready; asked for bars for what takes long."""

    def step(self, text: str) -> None:
        """A new step begins."""

    def bars(self) -> AbstractContextManager[Bars]:
        """Shows the progress of transfers as long as it is entered."""


class Silent:
    """Events that nobody looks at."""

    def step(self, text: str) -> None:
        """Say nothing."""

    def bars(self) -> AbstractContextManager[Bars]:
        """Show nothing."""
        return nullcontext(lambda _what, _done, _total: None)


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What a host can do; skips and refusals are decided by these, never by its class."""

    windows: bool
    msvc: bool
    gpu: bool
    publishable: bool
    """Whether wheels made there may go to an index; the sandbox's never may."""
    services: bool = False
    """Whether it is a whole Windows: WinRM service, Task Scheduler, Defender, page file, reboot."""
    toolkit: bool = False
    """Whether it has a CUDA toolkit of its own, which is used as it is."""
    emulated: bool = False
    """Whether something on this machine stands in for Windows, and shares its disk and memory."""


@dataclass(frozen=True, kw_only=True)
class GpuWay:
    """How GPUs come to what runs on a host, and what a test there must therefore see."""

    way: str = "none"
    """For people and reports."""
    asked: str = ""
    """As it stands in ``pipeline.yaml``, such as ``gpu: true``; empty: none."""
    count: int | None = None
    """How many were asked for; ``None``: any number, if any was asked for."""
    visible: tuple[int, ...] = ()
    """The numbers, as nvidia-smi's, of those that may be seen there; empty: all."""
    bridged: bool = False
    """Whether a bridge to another system's driver is asked to stand in for Windows'; what there is
    of it, :meth:`Host.bridge` tells."""

    @property
    def environment(self) -> Mapping[str, str]:
        """What lets CUDA see these alone.

        Without the order CUDA counts the fastest first, nvidia-smi by the bus:
        https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables
        """
        if not self.visible:
            return {}
        numbers = ",".join(map(str, self.visible))
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": numbers}


@dataclass(frozen=True, kw_only=True)
class Lack:
    """Something of this machine without which a host cannot be what it was asked to be."""

    rule: str
    says: str
    hint: str
    raises: str = "SetupError"
    """Its class of :mod:`pipelines.core.errors`."""


@dataclass(frozen=True, kw_only=True)
class Supply:
    """What a build may ask of a host, as known before it is reached; ``None``: whatever it asks."""

    cuda: tuple[str, ...] | None = None
    """Releases of CUDA, such as 12.8."""
    python: tuple[str, ...] | None = None
    """Releases of Python, such as 3.11."""
    torch: tuple[str, ...] | None = None
    """Releases of torch, such as 2.10."""
    toolset: ToolSet = MSVC
    """The compilers that a build finds there."""
    slot: str = ""
    """What to do for other compilers on this very host; empty where it can have none."""
    programs: bool = True
    """Whether it can have programs that recipes name in ``host_requires``."""
    origin: str
    """What says so, for people."""
    existing: bool = False
    """Whether its environment is used as it is: nothing of the lock is installed into it."""
    lacks: tuple[Lack, ...] = ()
    """What this machine does not have of what the host needs."""
    driver: str = ""
    """The newest CUDA that its GPU driver knows; empty: not known before it is reached."""
    instead: Mapping[str, str] = field(default_factory=dict)
    """As :attr:`Host.instead`."""
    lent: bool = False
    """Whether the pipeline brings the tools of ``resources.yaml`` that go with MSVC."""


def supply_of(lock: ToolchainLock) -> Supply:
    """Of a Windows that the pipeline makes ready: what the lock has for one."""
    tools = lock.tools.values()
    return Supply(
        cuda=_releases(t.cuda for t in tools if t.name == "cuda_nvcc" and t.pinned),
        python=_releases(t.python for t in tools if t.name == "python"),
        origin="toolchain.lock.yaml",
        lent=True,
    )


#: What Windows' stand-in takes of the lock in place of what it is asked for. PyPI has no wheels of
#: torch with CUDA for Windows; nobody is known to have run one under Wine without a GPU.
IN_SANDBOX: Mapping[str, str] = MappingProxyType(
    {"torch": "torch-cpu", "numpy": "numpy-in-sandbox"}
)


def supply_of_sandbox(lock: ToolchainLock) -> Supply:
    """Of Windows' stand-in: the one CUDA that there is as wheels, the Pythons with headers."""
    tools = lock.tools.values()
    return Supply(
        cuda=tuple(minor(t.version) for t in tools if t.name == "nvidia-cuda-nvcc"),
        python=tuple(t.python for t in tools if t.name == "cpython-headers" and t.python),
        torch=_releases(minor(t.version) for t in tools if t.name == IN_SANDBOX["torch"]),
        toolset=STAND_IN,
        programs=False,
        instead=IN_SANDBOX,
        origin="toolchain.lock.yaml",
    )


def _releases(found: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(sorted(filter(None, set(found)), key=python_order))


class Lifecycle(Protocol):
    """A host that the pipeline makes, starts and removes itself."""

    def start(self, *, tied: bool) -> object:
        """Start it unless it runs. ``tied``: it ends with this process."""

    def stop(self) -> bool:
        """Stop it and everything in it; whether it was running."""

    def describe(self) -> str:
        """Its state in a line, and where its files are."""

    def address(self) -> str:
        """How it is reached while it runs; empty when it does not."""

    def teardown(self) -> None:
        """Stop it and remove its files."""


class Host(Protocol):
    """Where a wheel is built or tested."""

    name: str
    capabilities: Capabilities
    evidence: Evidence
    """Highest level of what runs there."""
    existing: Existing | None = None
    """What is there to be used as it is; ``None`` where the pipeline installs its tools."""

    executable: str
    """The Python that runs there, which is also the one to build for."""

    gpu_way: GpuWay = GpuWay()
    """How GPUs come to what runs there, and which of them were asked for."""

    bounds: Bounds = Bounds()
    """What of its machine it may use, where that is less than the machine tells."""

    instead: Mapping[str, str] = MappingProxyType({})
    """Of the lock: name of a tool -> the one whose entry is taken for it there."""

    tools: tuple[str, ...] = ()
    """Entries of the lock that it may take to make it reachable, before anything is provisioned."""

    @property
    def origin(self) -> Origin:
        """What it was made from, once it is reached; empty for what is on no engine."""
        return Origin()

    @property
    def made_of(self) -> str:
        """Of which files it is, with the compilers that are part of it; once it is reached.

        Empty where nobody but the lock and what is found there says so.
        """
        return self.origin.image_key or self.origin.image

    def unmade(self) -> str:
        """What :meth:`connect` would have to make first that takes minutes or hours, for people.

        Empty where there is nothing; nothing is started to know it.
        """
        return ""

    @property
    def lifecycle(self) -> Lifecycle | None:
        """How it is made, started and removed; ``None`` where that is not ours to do."""
        return None

    def emulator(self) -> str:
        """Version of what stands in for Windows on this machine, empty where nothing does.

        Raises :class:`SetupError` when it is missing.
        """
        return ""

    def ended(self) -> str:
        """Why what :meth:`connect` reached is no more, nor anything that ran there; else empty.

        Only what this machine knows counts: a host that merely does not answer may go on.
        """
        return ""

    def groundwork(self) -> Mapping[str, object] | None:
        """What it stands on, looked at without starting or making it; ``None``: nothing of ours.

        As :func:`pipelines.hosts.passthrough.groundwork.survey` tells it.
        """
        return None

    def bridge(self) -> Bridge | None:
        """What stands in for Windows' GPU driver there, as known without starting anything.

        ``None`` where nothing does.
        """
        return None

    def only_look(self) -> bool:
        """Do without what only builds and tests need of it; whether a driver is gone."""
        return False

    def is_gone(self) -> bool:
        """Whether what :meth:`connect` reached is no more, with all its files.

        The next :meth:`connect`, after a :meth:`close`, then makes another one.
        """
        return False

    def prepare(self, *, repair: bool = False) -> None:  # noqa: ARG002 - of those that keep some
        """Before it is provisioned: put in order what keeps it from starting, if that is ours.

        ``repair``: look at every byte of what it is made of.
        """
        return

    def kept(self) -> Iterable[Kept]:
        """What it keeps on this machine besides itself."""
        return ()

    def connect(self) -> Session:
        """Make the host reachable (start it if that is ours to do) and open a session."""

    def restart(self, session: Session) -> Session:
        """Restart the host that ``session`` is with, wait for it, and open a new session."""

    def close(self) -> None:
        """Stop what :meth:`connect` started; harmless when nothing was."""


@dataclass(frozen=True)
class Opening:
    """What an adapter is given besides its configuration."""

    python: str
    """Release to build for, such as 3.11."""
    cache: Cache
    events: Events = field(default_factory=Silent)
    remember: Callable[[str], str] = str
    """Is given every secret, so that it can be kept out of what is printed."""
    api: Api = "plain"
    """What of C++ the package needs that is to be built."""


@dataclass(frozen=True)
class Kept:
    """Something that is kept on this machine to make the next command fast."""

    what: str
    path: Path
    useful: bool
    """Whether a command of today would use it."""
    damage: str = ""
    """In what it is not what it should be; nothing uses it then."""


@dataclass(frozen=True, kw_only=True)
class Thing:
    """Something that the pipeline has made where hosts are."""

    what: str
    """Such as container, volume, sandbox."""
    name: str
    host: str
    """Of ``pipeline.yaml``, now or once; empty for what is of no one host."""
    state: str
    size: int | None
    """Bytes that are its own; ``None`` where that is not told."""
    who: str
    """user@machine that made it."""
    unowned: str = ""
    """Why nobody owns it any more; empty where somebody does."""
    remove: Callable[[], None] = field(repr=False)
    """Remove it; harmless when it is gone."""


class HostConfig(Model):
    """One host of ``pipeline.yaml``; each kind has a model of its own, see :mod:`.kinds`."""

    kind: str
    slots: Annotated[int, Field(ge=1, le=64)] = 1
    """Builds that a fleet gives it at a time; they share its cores and memory."""
    price: Annotated[float, Field(ge=0, le=100_000, allow_inf_nan=False)] = 0.0
    """What an hour of it costs, in the ``currency`` of ``fleet``."""
    #: What ``--gpu`` means for a host that asks for none.
    flagged_gpu: ClassVar[object] = True

    @property
    def is_windows(self) -> bool:
        """Whether it is a Windows, as far as that is known before it is opened."""
        return True

    @property
    def made(self) -> bool:
        """Whether it comes and goes with whoever uses it: nobody starts it just to look."""
        return False

    def supply(self, lock: ToolchainLock) -> Supply:
        """What a build may ask of it; nothing is started or fetched to know it."""
        return supply_of(lock)

    def open(self, name: str, given: Opening) -> Host:  # noqa: ARG002 - of every kind
        """Its adapter, which is imported only now; nothing is started yet."""
        raise TypeError(f"{type(self).__name__} opens no host")

    @property
    def place(self) -> str:
        """Where it is, for people; hosts of one place share what :meth:`things` finds."""
        return ""

    def things(self, hosts: Mapping[str, HostConfig]) -> Iterable[Thing]:  # noqa: ARG002 - as above
        """What the pipeline has made at its place; ``hosts`` are all of ``pipeline.yaml``."""
        return ()

    def notes(self, name: str) -> Iterable[str]:  # noqa: ARG002 - of every kind
        """What is to be said of it in a plan, a line each; nothing is started to know it."""
        return ()

    def kept(self, cache: Cache) -> Iterable[Kept]:  # noqa: ARG002 - of the kinds that keep some
        """What hosts of this kind keep in the cache of this machine."""
        return ()
