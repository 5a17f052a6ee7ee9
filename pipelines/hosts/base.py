"""The stages' view of a host: a name, capabilities, a session with the Python on it."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, ClassVar, Protocol

from pydantic import Field

from pipelines.core.evidence import Bridge, Evidence, Origin
from pipelines.core.finding import Finding
from pipelines.core.model import Model
from pipelines.core.toolsets import MSVC, STUB, Api, Toolset
from pipelines.core.versions import minor_release, python_order
from pipelines.hosts.bounds import Bounds
from pipelines.remote import facts, limits
from pipelines.session.base import Bars, Session
from pipelines.toolchain.lock import Cache, ToolchainLock


@dataclass(frozen=True)
class Existing:
    """An environment that is used unchanged: nothing is installed into it."""

    root: str
    """Directory on the host for the pipeline's files."""
    toolkit: str = ""
    """Directory of the CUDA toolkit; empty when there is none."""
    sccache: str = ""
    """Path of the program; empty when there is none."""
    fixed: str = ""
    """Directory for reproducible builds, the same wherever ``root`` is; empty: one below it."""


class Events(Protocol):
    """Receives progress events while a host is prepared; provides progress bars for transfers."""

    def step(self, text: str) -> None:
        """A new step begins."""

    def bars(self) -> AbstractContextManager[Bars]:
        """Shows the progress of transfers while the context is active."""


class Silent:
    """Events that are discarded."""

    def step(self, text: str) -> None:
        """Do nothing."""

    def bars(self) -> AbstractContextManager[Bars]:
        """Show nothing."""
        return nullcontext(lambda _what, _done, _total: None)


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What a host can do; skips and refusals depend on these, never on its class."""

    windows: bool
    msvc: bool
    gpu: bool
    publishable: bool
    """Whether wheels built there may be published; the sandbox's never may."""
    services: bool = False
    """Whether it is a complete Windows: WinRM, Task Scheduler, Defender, page file, reboot."""
    toolkit: bool = False
    """Whether it has its own CUDA toolkit, which is used unchanged."""
    emulated: bool = False
    """Whether it is emulated on this machine and shares its disk and memory."""


@dataclass(frozen=True, kw_only=True)
class GpuWay:
    """How programs on a host access GPUs, and what a test there must therefore see."""

    way: str = "none"
    """For people and reports."""
    requested: str = ""
    """As written in ``pipeline.yaml``, such as ``gpu: true``; empty: none."""
    count: int | None = None
    """How many were requested; ``None``: any number, if any."""
    visible: tuple[int, ...] = ()
    """nvidia-smi's numbers of the visible ones; empty: all."""
    bridged: bool = False
    """Whether a bridge to another system's driver is to replace Windows' own; :meth:`Host.bridge`
    describes it."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment variables that make only these visible to CUDA.

        By default CUDA numbers the fastest first, nvidia-smi by bus:
        https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables
        """
        if not self.visible:
            return {}
        numbers = ",".join(map(str, self.visible))
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": numbers}


@dataclass(frozen=True, kw_only=True)
class Supply:
    """What a host can provide to a build, before connecting; ``None``: everything."""

    cuda: tuple[str, ...] | None = None
    """CUDA versions, such as 12.8."""
    python: tuple[str, ...] | None = None
    """Python versions, such as 3.11."""
    torch: tuple[str, ...] | None = None
    """torch versions, such as 2.10."""
    toolset: Toolset = MSVC
    """The compilers available to a build."""
    slot: str = ""
    """How to get other compilers on this host; empty if it cannot have any."""
    programs: bool = True
    """Whether it can have the programs that recipes name in ``host_requires``."""
    origin: str
    """Where this information comes from, for people."""
    existing: bool = False
    """Whether its environment is used unchanged: nothing of the lock is installed into it."""
    missing: tuple[Finding, ...] = ()
    """What the host needs and this machine does not have."""
    driver: str = ""
    """The newest CUDA version its GPU driver supports; empty: not known before connecting."""
    replacements: Mapping[str, str] = field(default_factory=dict)
    """As :attr:`Host.replacements`."""
    msvc_tools: bool = False
    """Whether the pipeline installs the tools of ``resources.yaml`` that go with MSVC."""


def supply_of(lock: ToolchainLock) -> Supply:
    """Of a Windows host that the pipeline provisions: what the lock has for one."""
    tools = lock.tools.values()
    return Supply(
        cuda=_releases(t.cuda for t in tools if t.name == "cuda_nvcc" and t.pinned),
        python=_releases(t.python for t in tools if t.name == "python"),
        origin="toolchain.lock.yaml",
        msvc_tools=True,
    )


#: What the sandbox uses from the lock instead of the requested tool. PyPI has no wheels of torch
#: with CUDA for Windows, and none is known to have run under Wine without a GPU.
IN_SANDBOX: Mapping[str, str] = MappingProxyType(
    {"torch": "torch-cpu", "numpy": "numpy-in-sandbox"}
)


def supply_of_sandbox(lock: ToolchainLock) -> Supply:
    """Of the sandbox: the one CUDA version available as wheels, and the Pythons with headers."""
    tools = lock.tools.values()
    return Supply(
        cuda=tuple(minor_release(t.version) for t in tools if t.name == "nvidia-cuda-nvcc"),
        python=tuple(t.python for t in tools if t.name == "cpython-headers" and t.python),
        torch=_releases(minor_release(t.version) for t in tools if t.name == IN_SANDBOX["torch"]),
        toolset=STUB,
        programs=False,
        replacements=IN_SANDBOX,
        origin="toolchain.lock.yaml",
    )


def _releases(versions: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(sorted(filter(None, set(versions)), key=python_order))


class Lifecycle(Protocol):
    """A host that the pipeline creates, starts and removes itself."""

    def start(self, *, ephemeral: bool) -> object:
        """Start it unless it is running. ``ephemeral``: it ends with this process."""

    def stop(self) -> bool:
        """Stop it and everything in it; whether it was running."""

    def describe(self) -> str:
        """Its state and the location of its files, in one line."""

    def address(self) -> str:
        """Its address while it runs; otherwise empty."""

    def teardown(self) -> bool:
        """Stop it and remove its files; whether there were any."""


class Host(Protocol):
    """Where a wheel is built or tested."""

    name: str
    capabilities: Capabilities
    evidence: Evidence
    """Highest evidence level of what runs there."""
    existing: Existing | None = None
    """Existing tools to use unchanged; ``None`` where the pipeline installs its tools."""

    executable: str
    """The Python that runs there, which is also the build target."""

    gpu_way: GpuWay = GpuWay()
    """How GPUs are made available there, and which were requested."""

    bounds: Bounds = Bounds()
    """Limits on the machine's resources, where they are below what it reports."""

    replacements: Mapping[str, str] = MappingProxyType({})
    """Name of a tool -> the lock entry used for it there."""

    tools: tuple[str, ...] = ()
    """Lock entries it may fetch to become reachable, before anything is provisioned."""

    image: str = ""
    """The image it starts from; only the engine knows whether it has it."""

    always_sent: tuple[str, ...] = ()
    """Kinds of resources whose files it cannot have yet; ``tool`` stands for :attr:`tools`."""

    @property
    def origin(self) -> Origin:
        """Its image, once connected; empty if it is not on an engine."""
        return Origin()

    @property
    def inputs(self) -> str:
        """Identifies its files, including its compilers; once connected.

        Empty if that is determined by the lock and by what is found on the host.
        """
        return self.origin.image_key or self.origin.image

    def missing_image(self) -> str:
        """The image that starting it would have to create, taking minutes or hours; for people.

        Empty if there is none; nothing is started to find out.
        """
        return ""

    def unmade(self) -> str:
        """What :meth:`connect` would have to create, as :meth:`missing_image`.

        Empty for a host that runs, also where today's image of it would be another one.
        """
        runs = self.lifecycle is not None and self.lifecycle.address()
        return "" if runs else self.missing_image()

    @property
    def lifecycle(self) -> Lifecycle | None:
        """How it is created, started and removed; ``None`` if the pipeline does not do that."""
        return None

    def emulator(self) -> str:
        """Version of the Windows emulator on this machine; empty if there is none.

        Raises :class:`SetupError` if it is missing.
        """
        return ""

    def ended(self) -> str:
        """Why the host :meth:`connect` reached has ended, with all its processes; else empty.

        Based on this machine's knowledge only: a host that does not answer may still be running.
        """
        return ""

    def prerequisites(self) -> Mapping[str, object] | None:
        """Its prerequisites, checked without starting anything; ``None`` if there are none.

        In the format of :func:`pipelines.hosts.passthrough.prerequisites.survey_prerequisites`.
        """
        return None

    def bridge(self) -> Bridge | None:
        """What replaces Windows' GPU driver there, if anything; nothing is started."""
        return None

    def inspect_only(self) -> bool:
        """Skip what only builds and tests need; returns whether this disabled a driver."""
        return False

    def is_gone(self) -> bool:
        """Whether the host :meth:`connect` reached is gone, including its files.

        After a :meth:`close`, the next :meth:`connect` creates another one.
        """
        return False

    def prepare(self, *, repair: bool = False) -> None:  # noqa: ARG002 - of those that keep some
        """Repair what would keep it from starting, if the pipeline manages it.

        ``repair``: verify every byte of its files.
        """
        return

    def cache_entries(self) -> Iterable[CacheEntry]:
        """Its entries in this machine's cache."""
        return ()

    def connect(self) -> Session:
        """Make the host reachable, starting it if necessary, and open a session."""

    def restart(self, session: Session) -> Session:
        """Restart the host of ``session``, wait for it, and open a new session."""

    def close(self) -> None:
        """Stop what :meth:`connect` started; harmless if nothing was."""


@dataclass(frozen=True)
class OpenOptions:
    """Arguments of an adapter besides its configuration."""

    python: str
    """Python version to build for, such as 3.11."""
    cache: Cache
    events: Events = field(default_factory=Silent)
    register_secret: Callable[[str], str] = str
    """Receives every secret, so that it can be kept out of the output."""
    api: Api = "plain"
    """The C++ features the package to be built needs."""


@dataclass(frozen=True)
class CacheEntry:
    """Something cached on this machine to speed up the next command."""

    what: str
    path: Path
    useful: bool
    """Whether a current command would use it."""
    damage: str = ""
    """What is wrong with it, in which case nothing uses it."""


@dataclass(frozen=True, kw_only=True)
class OwnedItem:
    """Something the pipeline has created on a host's engine or machine."""

    what: str
    """Such as container, volume, sandbox."""
    name: str
    host: str
    """From ``pipeline.yaml``, current or former; empty if it belongs to no single host."""
    state: str
    size: int | None
    """Bytes of its own; ``None`` if unknown."""
    who: str
    """user@machine that created it."""
    unowned: str = ""
    """Why it no longer has an owner; empty if it has one."""
    remove: Callable[[], None] = field(repr=False)
    """Remove it; does nothing if it is gone."""


#: The place of a host that is the machine the pipeline runs on.
HERE = "this machine"


class HostConfig(Model):
    """One host of ``pipeline.yaml``; each kind has a model of its own, see :mod:`.kinds`."""

    kind: str
    slots: Annotated[int, Field(ge=1, le=64)] = 1
    """Builds a fleet runs on it at a time; they share its cores and memory."""
    #: What ``--gpu`` means for a host without ``gpu``.
    flagged_gpu: ClassVar[object] = True
    #: A class of :class:`Host`, called with the arguments of :meth:`open` and this.
    adapter: ClassVar[str]

    @property
    def is_windows(self) -> bool:
        """Whether it runs Windows, as far as known before it is opened."""
        return True

    @property
    def size(self) -> tuple[int, int]:
        """Its cores and bytes of memory; 0 where they are not known before it is opened."""
        return (limits.cores(), facts.memory().get("total", 0)) if self.place == HERE else (0, 0)

    def supply(self, lock: ToolchainLock) -> Supply:
        """What it can provide to a build; nothing is started or fetched to find out."""
        return supply_of(lock)

    def open(self, name: str, options: OpenOptions) -> Host:
        """Its adapter, imported only now; nothing is started yet."""
        opened: Host = pkgutil.resolve_name(self.adapter)(name, self, options)
        return opened

    @property
    def place(self) -> str:
        """Its location, for people; hosts with the same one share :meth:`owned_items`."""
        return ""

    def owned_items(self, hosts: Mapping[str, HostConfig]) -> Iterable[OwnedItem]:  # noqa: ARG002 - as above
        """What the pipeline has created there; ``hosts`` are all of ``pipeline.yaml``."""
        return ()

    def missing(self) -> Iterable[Finding]:
        """Why no build can start there now, as far as that shows without asking it."""
        return ()

    def notes(self, name: str) -> Iterable[str]:  # noqa: ARG002 - of every kind
        """Remarks for a plan, one per line; nothing is started to find out."""
        return ()

    def cache_entries(self, cache: Cache) -> Iterable[CacheEntry]:  # noqa: ARG002 - of the kinds that keep some
        """The cache entries of this kind of host on this machine."""
        return ()
