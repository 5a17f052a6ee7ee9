"""What the stages leave: frozen, typed, versioned.

Stages return these, the record keeps them, reports and job ids read them. Bytes and seconds.
Text of a host is as it said it, but bounded and redacted: :mod:`pipelines.core.hosttext` shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, StringConstraints

from pipelines.core.evidence import Bridge, Evidence, GpuResult, Origin
from pipelines.core.finding import Finding
from pipelines.core.hosttext import line
from pipelines.core.model import Model
from pipelines.record.checkout import Checkout
from pipelines.record.compared import Comparison
from pipelines.record.diagnosed import DiagnosisResult, HealedResult
from pipelines.record.divided import Divided
from pipelines.record.materials import Materials
from pipelines.record.taken import Company, PrebuiltFile, Sha256
from pipelines.record.target import Archs, Target

#: Of the record; one with another number is not read.
SCHEMA = 3

Size = Annotated[int, Field(ge=0, le=1 << 50)]
#: A path or name of a host's; none of Windows' is longer.
HostPath = Annotated[str, StringConstraints(max_length=32_767)]
Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
State = Literal["running", "passed", "failed", "interrupted"]


class StageResult(Model):
    """What a stage found out; one that fails leaves as much of it as there was."""

    stage: ClassVar[str]
    """The stage's name."""
    tail: tuple[str, ...] = ()
    """The last lines of its log, if it has one."""


class ResourceResult(Model):
    """A resource of the host: what is wanted, what was found, what was done."""

    id: str
    kind: str
    why: str = ""
    wanted: str
    found: str
    plan: str = ""
    uploads: tuple[str, ...] | None = None
    """Of its tools those that must be brought for it; ``None``: all of them."""
    sha256: dict[str, Sha256] = Field(default={})
    """Of its tools, what was computed: when it was sent, unpacked or looked at."""
    values: dict[str, str] = Field(default={})
    """What was found, for programs: versions, numbers, paths."""
    ok: bool
    changed: bool = False
    seconds: Seconds = 0.0
    reboot: str = ""
    """Why Windows must start anew, if it must."""


class ProvisionResult(StageResult):
    """The host's state, resource by resource."""

    stage = "provision"
    resources: tuple[ResourceResult, ...] = ()


class PrebuiltResult(StageResult):
    """Whether somebody else's wheel was taken, and why not."""

    stage = "prebuilt"
    origin: str = ""
    taken: PrebuiltFile | None = None
    refused: dict[str, str] = Field(default={})
    """File -> why it is not used."""
    company: Company | None = None
    """What came with a wheel that was given: it was neither built nor looked for here."""


class SkipResult(StageResult):
    """The package is not built at all."""

    stage = "skip"
    skipped: str = ""


class HostFile(Model):
    """A file that a build left on the host, which may say more of it."""

    model_config = ConfigDict(extra="ignore")

    path: HostPath
    size: Size
    sha256: Sha256


class Units(Model):
    """Compile units, as the build's own log counts them."""

    done: int = 0
    total: int = 0


class Timeline(Model):
    """What the host did while it compiled; times since the build's start."""

    model_config = ConfigDict(extra="ignore")

    units: Annotated[tuple[tuple[HostPath, float, float], ...], Field(max_length=20_000)] = ()
    """Name, start, end."""
    samples: Annotated[tuple[tuple[float, float, float], ...], Field(max_length=50_000)] = ()
    """Time, share of the cores that was busy, bytes of memory used."""
    cpus: int = 0
    memory: float = 0.0


class BuildResult(StageResult):
    """A build on the host, on its way or at its end."""

    stage = "build"
    job: str
    directory: str
    jobs: int
    """Compile units at a time."""
    environment: dict[str, str] = Field(default={})
    source_sha256: str = ""
    checkout: Checkout | None = None
    """Of a source that is a directory here, and in git."""
    toolset: str = ""
    """What compiled it, as the plan has it: name, and version where that is known."""
    materials: Materials = Materials()
    """Everything that decides the wheel, by which the job is named."""
    bill: str = ""
    """Its wheel's bill of materials, but for what the wheel is called."""
    leftovers: tuple[str, ...] = ()
    """Of a reproducible build: what was taken out of the wheel, and what could not be."""
    units: Units = Units()
    attempt: int = 0
    lost: tuple[str, ...] = ()
    """Why attempts ended without a result."""
    kept: bool = False
    """Whether it is an earlier command's result, taken as it is."""
    exit: int | None = None
    timed_out: bool = False
    wheels: tuple[HostFile, ...] = ()
    library: HostFile | None = None
    """Of a crate's kernels."""
    programs: tuple[HostFile, ...] = ()
    timeline: Timeline | None = None
    cache: dict[str, str | int | float | bool | None] = Field(default={})
    """Figures of the compile cache."""
    divided: Divided | None = None
    """Of a share of its compile units, or of a wheel that shares were linked to."""
    process_seconds: Seconds = 0.0
    """Of the build's own process, without anything of ours."""
    healed: tuple[HealedResult, ...] = ()
    diagnosis: DiagnosisResult | None = None

    @property
    def story(self) -> tuple[str, ...]:
        """What was healed, a line a change: for the log, JUnit and reports."""
        return tuple(
            f"healed {n} of {len(self.healed)}: {one.what} - because of line {one.line}, {one.why}"
            for n, one in enumerate(self.healed, 1)
        )

    @property
    def made_up(self) -> str:
        """What the build was told that is not so; empty: nothing."""
        cuda = self.environment.get("WCW_CPU_TORCH")
        return f"a CPU build of torch was taken for one with CUDA {cuda}" if cuda else ""


class FileResult(Model):
    """A file of the run; ``path`` is below the run's directory, with ``/``."""

    path: str
    size: Size
    sha256: Sha256


class CollectResult(StageResult):
    """What came home, with the sha256 that the builder stated and the arrival has."""

    stage = "collect"
    files: tuple[FileResult, ...] = ()


class AuditedFile(Model):
    """A file that was looked into."""

    file: str
    sha256: Sha256
    version: str = ""
    cuda: str = ""
    """The release that its device code tells, where nobody asked for one."""
    archs: Archs | None = None
    """Those that it was judged by; ``None``: nobody said which it should have."""
    checks: tuple[Finding, ...] = ()


class AuditResult(StageResult):
    """What is inside of what came home."""

    stage = "audit"
    files: tuple[AuditedFile, ...] = ()


class RebuildResult(StageResult):
    """Whether a published wheel, built again, is the same bytes."""

    stage = "rebuild"
    compared: Comparison | None = None


class TorchSuite(Model):
    """The smoke suite with one of several releases of torch."""

    asked: str
    """Such as 2.15."""
    loaded: str
    """What the suite imported, such as 2.15.0+cpu."""
    report: str
    """The file in the run's directory."""
    outcomes: dict[str, int]


class SmokeResult(StageResult):
    """What the smoke suite said."""

    stage = "test"
    wheel: str = ""
    sha256: str = ""
    """Of the wheel as it reached the host."""
    exit: int | None = None
    step: str = ""
    """The step that ended it: venv, install or pytest."""
    outcomes: dict[str, int] = Field(default={})
    """How many cases ended how; their report is ``smoke.xml``."""
    report: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{64})?$")] = ""
    """The sha256 of ``smoke.xml``."""
    torches: tuple[TorchSuite, ...] = ()
    """Where it ran with several releases of torch: each of which there is a report."""
    untested: tuple[str, ...] = ()
    """Releases of torch that it should have run with and did not: the environment has another."""
    gpus: tuple[GpuResult, ...] = ()
    """Those that the suite saw."""
    gpu_way: str = ""
    """How they came in; ``none`` where it saw none, empty where it did not say."""
    gpu_asked: str = ""
    """What was asked for, such as ``gpu: true``; empty: for none."""
    bridge: Bridge | None = None
    """What stood in for Windows' driver, where the suite was told that something does."""
    system: str = ""
    """That it ran on, as it says: Windows 10.0.26100, or Wine 10.0."""
    instead: Literal["", "verify", "import", "given", "skipped"] = ""
    """What stood in for a suite, where the recipe names none; or every test of it was skipped."""
    script: str = ""
    """The user's own file or directory that was run with a wheel that was given."""

    @property
    def driver_models(self) -> str:
        """Each that there is, once."""
        return ", ".join(dict.fromkeys(filter(None, (one.driver_model for one in self.gpus))))

    @property
    def limits(self) -> str:
        """What a reader must know where no test of the package ran; else empty."""
        if self.instead == "skipped":
            return "none of your own tests ran: every one was skipped"
        if self.instead == "given":
            return "only the import of its packages was tested: no --script was given"
        tested = "the recipe's verify" if self.instead == "verify" else "the import of its modules"
        return f"only {tested} was tested: the recipe names no smoke suite" if self.instead else ""


#: Every stage's result, by the stage's name.
RESULTS: dict[str, type[StageResult]] = {
    kind.stage: kind
    for kind in (
        ProvisionResult,
        SkipResult,
        PrebuiltResult,
        BuildResult,
        CollectResult,
        AuditResult,
        RebuildResult,
        SmokeResult,
    )
}

#: The stages of a run that builds and tests, in their order.
ORDER = tuple(
    kind.stage for kind in (ProvisionResult, BuildResult, CollectResult, AuditResult, SmokeResult)
)


class ErrorResult(Model):
    """Why a stage ended."""

    kind: str
    """The class of the error, such as ``BuildError``; ``Interrupted``, or one that nobody meant."""
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
    """Longer than nothing only once it has ended."""
    error: ErrorResult | None = None
    result: StageResult | None = None
    unread: str = ""
    """Why there is no result though the record has one."""


class HostFacts(Origin):
    """The host as the build found it."""

    platform: str = ""
    machine: str = ""
    python: str = ""
    cpus: int = 0
    windows: str = ""
    """Its version; empty elsewhere."""

    @classmethod
    def of(cls, told: Mapping[str, object], origin: Origin) -> HostFacts:
        """From ``remote.facts`` and ``Host.origin``; what is not known, or no sense, is empty."""
        windows = told.get("windows")
        version = windows.get("version") if isinstance(windows, Mapping) else ""
        cpus = told.get("cpus")
        texts = dict(origin) | {k: line(told.get(k), 80) for k in ("platform", "machine", "python")}
        return cls(**texts, cpus=cpus if isinstance(cpus, int) else 0, windows=line(version, 80))


class UsedTool(Model):
    """A tool of the lock as a run has used it, whatever the lock of a later command has."""

    version: str
    sha256: Sha256 | None
    """As it was computed; ``None`` where nothing was: it was installed on the host before."""


class RunFacts(Model):
    """What is known of a run besides its stages."""

    schema_version: int = SCHEMA
    run: str = ""
    """Name of its directory when it began: a copy may have another."""
    created: str = ""
    """ISO 8601."""
    target: Target = Target()
    jobs: int | None = None
    """As asked for; ``None``: the host's cores."""
    evidence: Evidence | None = None
    publishable: bool | None = None
    origin: str = ""
    """Of a wheel that was not built."""
    taken_from: dict[str, str] = Field(default={})
    """Recipe, smoke suite, resources, signatures -> where each was found: built in, in the user's
    repository, or in which package; see :mod:`pipelines.core.plugins`."""
    given: bool = False
    """Whether it is somebody else's, which is only tested."""
    rebuilds: str = ""
    """The sha256 of a published wheel that is built again."""
    share: str = ""
    """Such as 3/20, of a run that compiles no more than that of its wheel."""
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
    """Why the host was made anew under the run, each time: of the one before nothing is left."""
