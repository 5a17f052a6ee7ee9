"""Results of the stages: frozen, typed, versioned.

Stages return these, the record keeps them, reports and job ids read them. Bytes and seconds.
Text of a host is as it said it, but bounded and redacted: :mod:`pipelines.core.hosttext` shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, StringConstraints

from pipelines.core.checkout import Checkout
from pipelines.core.comparison import Comparison
from pipelines.core.evidence import HOSTS, PUBLISHING, Bridge, Evidence, GpuResult, Origin
from pipelines.core.finding import Finding
from pipelines.core.hosttext import safe_line
from pipelines.core.model import Model
from pipelines.core.target import Archs, Target
from pipelines.record.diagnosis import DiagnosisResult, HealedResult
from pipelines.record.materials import Materials
from pipelines.record.prebuilt import Dependencies, PrebuiltFile, Sha256
from pipelines.record.shards import ShardsResult

#: Version of the record; others are refused.
SCHEMA = 3

Size = Annotated[int, Field(ge=0, le=1 << 50)]
#: A path or name of a host; Windows has no longer ones.
HostPath = Annotated[str, StringConstraints(max_length=32_767)]
Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
State = Literal["running", "passed", "failed", "interrupted"]


class StageResult(Model):
    """The result of a stage; partial if the stage failed."""

    stage: ClassVar[str]
    """The stage's name."""
    tail: tuple[str, ...] = ()
    """The last lines of its log, if it has one."""


class ResourceResult(Model):
    """A resource of the host: expected state, actual state, and changes."""

    id: str
    kind: str
    why: str = ""
    wanted: str
    found: str
    plan: str = ""
    uploads: tuple[str, ...] | None = None
    """Which of its tools must be uploaded; ``None``: all of them."""
    sha256: dict[str, Sha256] = Field(default={})
    """Computed hashes of its tools."""
    values: dict[str, str] = Field(default={})
    """The actual state as data: versions, numbers, paths."""
    ok: bool
    changed: bool = False
    seconds: Seconds = 0.0
    reboot: str = ""
    """Why Windows must be restarted, if it must."""


class ProvisionResult(StageResult):
    """The host's state, resource by resource."""

    stage = "provision"
    resources: tuple[ResourceResult, ...] = ()


class PrebuiltResult(StageResult):
    """Which prebuilt wheel is used, or why none is."""

    stage = "prebuilt"
    origin: str = ""
    taken: PrebuiltFile | None = None
    refused: dict[str, str] = Field(default={})
    """File -> why it is not used."""
    company: Dependencies | None = None
    """The dependencies of an external wheel."""


class SkipResult(StageResult):
    """The package is not built at all."""

    stage = "skip"
    skipped: str = ""


class HostFile(Model):
    """A file that a build left on the host and that may explain more."""

    model_config = ConfigDict(extra="ignore")

    path: HostPath
    size: Size
    sha256: Sha256


class Units(Model):
    """Compile units, as counted by the build's log."""

    done: int = 0
    total: int = 0


class Timeline(Model):
    """Host metrics during compilation; times since the build's start."""

    model_config = ConfigDict(extra="ignore")

    units: Annotated[tuple[tuple[HostPath, float, float], ...], Field(max_length=20_000)] = ()
    """Name, start, end."""
    samples: Annotated[tuple[tuple[float, float, float], ...], Field(max_length=50_000)] = ()
    """Time, share of busy cores, bytes of memory used."""
    cpus: int = 0
    memory: float = 0.0


class BuildResult(StageResult):
    """A build on the host, running or finished."""

    stage = "build"
    job: str
    directory: str
    jobs: int
    """Compile units at a time."""
    environment: dict[str, str] = Field(default={})
    source_sha256: str = ""
    checkout: Checkout | None = None
    """For a source that is a local git checkout."""
    toolset: str = ""
    """The planned toolset: name, and version if known."""
    materials: Materials = Field(default_factory=Materials)
    """Everything that determines the wheel and the job's id."""
    bill: str = ""
    """Its wheel's SBOM, except the wheel's name."""
    leftovers: tuple[str, ...] = ()
    """For a reproducible build: what was removed from the wheel, and what could not be."""
    units: Units = Field(default_factory=Units)
    attempt: int = 0
    lost: tuple[str, ...] = ()
    """Why attempts ended without a result."""
    kept: bool = False
    """Whether it is an earlier command's result."""
    exit: int | None = None
    timed_out: bool = False
    wheels: tuple[HostFile, ...] = ()
    library: HostFile | None = None
    """For a crate's kernels."""
    programs: tuple[HostFile, ...] = ()
    timeline: Timeline | None = None
    cache: dict[str, str | int | float | bool | None] = Field(default={})
    """Statistics of the compile cache."""
    divided: ShardsResult | None = None
    """For a share of its compile units, or a wheel linked from shares."""
    process_seconds: Seconds = 0.0
    """Time of the build process itself."""
    healed: tuple[HealedResult, ...] = ()
    diagnosis: DiagnosisResult | None = None

    @property
    def story(self) -> tuple[str, ...]:
        """The changes before retries, one in each line: for the log, JUnit and reports."""
        return tuple(
            f"retry {n} of {len(self.healed)} with {healed.what} (line {healed.line}, {healed.why})"
            for n, healed in enumerate(self.healed, 1)
        )

    @property
    def made_up(self) -> str:
        """What was simulated for the build; empty: nothing."""
        cuda = self.environment.get("WCW_CPU_TORCH")
        return f"a CPU build of torch was presented as one with CUDA {cuda}" if cuda else ""


class FileResult(Model):
    """A file of the run; ``path`` is below the run's directory, with ``/``."""

    path: str
    size: Size
    sha256: Sha256


class CollectResult(StageResult):
    """The downloaded files, with the sha256 that both ends computed."""

    stage = "collect"
    files: tuple[FileResult, ...] = ()


class AuditedFile(Model):
    """An audited file."""

    file: str
    sha256: Sha256
    version: str = ""
    cuda: str = ""
    """The CUDA version of its device code, if none was requested."""
    archs: Archs | None = None
    """The requested architectures; ``None``: none were."""
    sboms: dict[str, Sha256] = Field(default={})
    """Those in the wheel, by name."""
    checks: tuple[Finding, ...] = ()


class AuditResult(StageResult):
    """The audit of the downloaded files."""

    stage = "audit"
    files: tuple[AuditedFile, ...] = ()


class RebuildResult(StageResult):
    """Whether a rebuilt wheel is identical to the published one."""

    stage = "rebuild"
    compared: Comparison | None = None


class TorchSuite(Model):
    """The smoke suite with one of several torch versions."""

    asked: str
    """Such as 2.15."""
    loaded: str
    """The imported version, such as 2.15.0+cpu."""
    report: str
    """The file in the run's directory."""
    outcomes: dict[str, int]


class SmokeResult(StageResult):
    """The result of the smoke suite."""

    stage = "test"
    wheel: str = ""
    sha256: str = ""
    """Of the wheel on the host."""
    exit: int | None = None
    step: str = ""
    """The last step: venv, install or pytest."""
    outcomes: dict[str, int] = Field(default={})
    """Number of cases by outcome; their report is ``smoke.xml``."""
    report: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{64})?$")] = ""
    """The sha256 of ``smoke.xml``."""
    torches: tuple[TorchSuite, ...] = ()
    """If it ran with several torch versions: each with a report."""
    untested: tuple[str, ...] = ()
    """Torch versions it should have run with and did not, as the environment has another."""
    gpus: tuple[GpuResult, ...] = ()
    """GPUs that the suite saw."""
    gpu_way: str = ""
    """How they are attached; ``none`` if it saw none, empty if unknown."""
    gpu_asked: str = ""
    """What was requested, such as ``gpu: true``; empty: none."""
    bridge: Bridge | None = None
    """The bridge that replaced Windows' driver, if any."""
    system: str = ""
    """The operating system it ran on: Windows 10.0.26100, or Wine 10.0."""
    instead: Literal["", "verify", "import", "given", "skipped"] = ""
    """What replaced a missing suite, or that all its tests were skipped."""
    script: str = ""
    """The user's test that was run with an external wheel."""

    @property
    def kinds(self) -> frozenset[str]:
        """The kind of host that it ran on; all of them, if the system is unknown."""
        kind = {"Windows": "windows", "Wine": "sandbox"}.get(self.system.partition(" ")[0], "linux")
        return frozenset({kind} if self.system else HOSTS)

    @property
    def driver_models(self) -> str:
        """Each driver model once."""
        return ", ".join(dict.fromkeys(filter(None, (gpu.driver_model for gpu in self.gpus))))

    @property
    def limits(self) -> str:
        """A note if no test of the package ran; else empty."""
        if self.instead == "skipped":
            return "all of your own tests were skipped"
        if self.instead == "given":
            return "only the import of its packages was tested, as there was no --script"
        tested = "the recipe's verify" if self.instead == "verify" else "the import of its modules"
        return f"only {tested} was tested: the recipe names no smoke suite" if self.instead else ""


#: Every stage's result, by the stage's name.
RESULTS: dict[str, type[StageResult]] = {kind.stage: kind for kind in StageResult.__subclasses__()}

#: The stages of a run that builds and tests, in their order.
ORDER = tuple(
    kind.stage for kind in (ProvisionResult, BuildResult, CollectResult, AuditResult, SmokeResult)
)


class ErrorResult(Model):
    """Why a stage ended."""

    kind: str
    """The class of the error, such as ``BuildError``, ``Interrupted`` or an internal one."""
    title: str
    message: str
    hint: str = ""


class StageRecord(Model):
    """One stage of a run."""

    name: str
    state: State
    started: float
    """Since the epoch."""
    seconds: Seconds | None = None
    """0 until it has ended."""
    error: ErrorResult | None = None
    result: StageResult | None = None
    unread: str = ""
    """Why the recorded result cannot be read."""


class HostFacts(Origin):
    """The host at the time of the build."""

    platform: str = ""
    machine: str = ""
    python: str = ""
    cpus: int = 0
    windows: str = ""
    """Its version; empty elsewhere."""

    @classmethod
    def of(cls, values: Mapping[str, object], origin: Origin) -> HostFacts:
        """From ``remote.facts`` and ``Host.origin``; unknown or invalid values are empty."""
        windows = values.get("windows")
        version = windows.get("version") if isinstance(windows, Mapping) else ""
        cpus = values.get("cpus")
        texts = dict(origin) | {
            k: safe_line(values.get(k), 80) for k in ("platform", "machine", "python")
        }
        return cls(
            **texts, cpus=cpus if isinstance(cpus, int) else 0, windows=safe_line(version, 80)
        )


class UsedTool(Model):
    """A tool of the lock as the run used it."""

    version: str
    sha256: Sha256 | None
    """The computed hash; ``None`` if it was already installed on the host."""


class RunFacts(Model):
    """Facts of a run besides its stages."""

    schema_version: int = SCHEMA
    run: str = ""
    """Name of its directory when it began: a copy may have another."""
    created: str = ""
    """ISO 8601."""
    target: Target = Field(default_factory=Target)
    jobs: int | None = None
    """As requested; ``None``: the host's cores."""
    evidence: Evidence | None = None
    publishable: bool | None = None
    origin: str = ""
    """Where a wheel that was not built comes from."""
    taken_from: dict[str, str] = Field(default={})
    """Recipe, smoke suite, resources, signatures -> where each was found: built in, in the user's
    repository, or in which package; see :mod:`pipelines.core.plugins`."""
    given: bool = False
    """Whether it is an external wheel, which is only tested."""
    rebuilds: str = ""
    """The sha256 of the published wheel that is rebuilt."""
    share: str = ""
    """Such as 3/20, for a run that compiles one share of its wheel."""
    linked: tuple[str, ...] = ()
    """The runs whose objects are linked."""
    job: str = ""
    source_sha256: str = ""
    toolset: str = ""
    """As its :class:`BuildResult` has it."""
    host: HostFacts | None = None
    tools: dict[str, UsedTool] = Field(default={})
    """By their names in the lock."""
    remade: tuple[str, ...] = ()
    """Why the host was recreated during the run, each time."""

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of host that have its level, and may publish if it says so."""
        kinds = {kind for kind, levels in HOSTS.items() if self.evidence in (None, *levels)}
        return frozenset(kinds & PUBLISHING if self.publishable else kinds)
