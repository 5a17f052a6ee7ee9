"""A run as its readers see it: frozen, bounded, every text of a host already harmless to print."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal

from pipelines.core.evidence import Evidence
from pipelines.core.finding import Finding
from pipelines.record.target import Target
from pipelines.reports.model import Outcome

Verdict = Literal["passed", "untested", "unfinished", "failed"]
#: Each in words.
WORDS: dict[Verdict, str] = {
    "passed": "passed",
    "untested": "not tested",
    "unfinished": "unfinished",
    "failed": "failed",
}
MARKS: dict[Verdict, str] = {"passed": "✓", "untested": "◐", "unfinished": "…", "failed": "✗"}
Group = Literal["speed", "ratio", "memory", "accuracy", "number"]
Better = Literal["lower", "higher", "neither"]
Kind = Literal["stage", "resource", "check", "case"]

#: From best to worst.
VERDICTS: tuple[Verdict, ...] = ("passed", "untested", "unfinished", "failed")


def evidence_line(level: Evidence) -> str:
    """``evidence B: run with genuine Windows binaries, not on Windows``."""
    return f"evidence {level}: {level.meaning}"


def worded(verdict: Verdict, tested: str) -> str:
    """A verdict in words; ``tested`` says what stood in for a suite, if there was none."""
    return f"{WORDS[verdict]}, {tested}" if tested and verdict == "passed" else WORDS[verdict]


def toned(verdict: Verdict, tested: str) -> Verdict:
    """The verdict whose colour it has: passed without a suite is as good as not tested."""
    return "untested" if tested and verdict == "passed" else verdict


@dataclass(frozen=True, slots=True)
class StageView:
    """One stage; ``state`` is the record's, or ``"not reached"``."""

    name: str
    state: str
    started: float = 0.0
    """Seconds since the epoch."""
    seconds: float | None = None
    error: str = ""
    kind: str = ""
    """The class of that error."""
    said: str = ""
    """Why it failed, in a sentence."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A compile unit; seconds since the build's start."""

    name: str
    start: float
    end: float
    lane: int
    """Of the job that compiled it, from 0."""

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Timeline:
    """What the host did while it compiled."""

    units: tuple[Unit, ...]
    samples: tuple[tuple[float, float, float], ...]
    """Seconds since the build's start, share of the cores that was busy, bytes of memory used."""
    cpus: int
    memory: float
    """Bytes of the host; 0: not known."""
    lanes: int
    left_out: int
    """Units that were not kept: too many, or their times make no sense."""

    @property
    def end(self) -> float:
        """Seconds from the build's start to the last thing known of it."""
        ends = [unit.end for unit in self.units] + [sample[0] for sample in self.samples[-1:]]
        return max(ends, default=0.0)

    @property
    def slowest(self) -> tuple[Unit, ...]:
        """The ten slowest units, the slowest first."""
        return tuple(sorted(self.units, key=lambda unit: (-unit.seconds, unit.name))[:10])

    @property
    def busy(self) -> float | None:
        """Mean share of the host's cores that was busy, 0 to 1; ``None``: not measured.

        Busy with whatever it was: other programs are not told apart from the build.
        """
        pairs = list(itertools.pairwise(self.samples))
        span = sum(b[0] - a[0] for a, b in pairs)
        if span <= 0:
            return self.samples[0][1] if self.samples else None
        return sum((a[1] + b[1]) / 2 * (b[0] - a[0]) for a, b in pairs) / span

    @property
    def core_seconds(self) -> float | None:
        """Busy cores over time, whatever else the host did included; ``None``: not measured.

        Near to what ``invoke plan`` estimates, which is the time of the units alone.
        """
        if self.busy is None or not self.cpus:
            return None
        first, last = self.samples[0], self.samples[-1]
        return self.cpus * (first[0] * first[1] + self.busy * (last[0] - first[0]))

    @property
    def peak(self) -> float:
        """Most bytes of memory used at a sample."""
        return max((sample[2] for sample in self.samples), default=0.0)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Lines of a log, the marked one among them."""

    source: str
    first: int
    """Number of the first line, from 1; 0: not known, these are the last ones kept."""
    lines: tuple[str, ...]
    mark: int = 0
    """Number of the line that says it; 0: none."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that went wrong."""

    kind: Kind
    where: str
    title: str
    message: str = ""
    hint: str = ""
    signature: str = ""
    """Id in the catalogue of diagnoses, if it is known."""
    cause: str = ""
    """Equal in the failures of other runs and stages that have the same cause."""
    links: tuple[str, ...] = ()
    excerpt: Excerpt | None = None
    file: str = ""
    """Path in the repository that it is about, and line in it, for annotations."""
    line: int = 0


@dataclass(frozen=True, slots=True)
class CaseView:
    """A smoke case."""

    name: str
    suite: str
    outcome: Outcome
    seconds: float
    message: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured number of the smoke suite."""

    key: str
    """Finds the same figure in another run."""
    group: Group
    subject: str
    series: str
    value: float
    unit: str
    better: Better
    shape: str = ""
    """What is drawn together: the subject, whichever implementation was measured beside it."""
    rival: str = ""
    """The other implementation whose value this is; empty: the package's own."""
    factor: float | None = None
    """The rival's value by the package's own, measured in the same case."""


@dataclass(frozen=True, slots=True)
class Capability:
    """What a wheel has, as its smoke suite found."""

    name: str
    state: str

    @property
    def there(self) -> bool:
        """Whether it has it."""
        return self.state.casefold() in ("yes", "true", "1", "ok", "available")


@dataclass(frozen=True, slots=True)
class FileView:
    """A file of the run."""

    path: str
    size: int
    """Bytes."""
    sha256: str
    note: str = ""
    differs: bool = False
    """Whether it is not what the manifest says."""
    link: str = ""
    """Percent-encoded, below the run's directory; empty: it is not here."""


@dataclass(frozen=True, slots=True)
class RunView:
    """A run: everything that its reports tell."""

    id: str
    created: str
    verdict: Verdict
    headline: str
    caveats: tuple[str, ...]
    """What a reader must know besides the verdict."""
    target: Target
    evidence: Evidence | None
    gpu: str
    stages: tuple[StageView, ...]
    timeline: Timeline | None
    failures: tuple[Failure, ...]
    cases: tuple[CaseView, ...]
    skips: tuple[tuple[str, int], ...]
    """Reasons with the number of cases skipped for it."""
    figures: tuple[Figure, ...]
    capabilities: tuple[Capability, ...]
    checks: tuple[Finding, ...]
    files: tuple[FileView, ...]
    provenance: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    """Sections of names with values."""
    jobs: int | None
    """Compile units at a time; ``None``: nothing is known of a build."""
    place: str = ""
    """The run's directory on this machine; nothing of it but relative links is told."""
    tested: str = ""
    """``import only`` or the like, where no test of the package ran."""
    gpu_way: str = ""
    """The driver model, and how GPUs came in; ``none`` where a test saw none."""

    @property
    def gpu_told(self) -> str:
        """The GPU, its driver model and how it came in: ``NVIDIA L4: WDDM, the host's own``."""
        return ": ".join(filter(None, (self.gpu, self.gpu_way)))

    @property
    def seconds(self) -> float:
        """Of all stages together."""
        return sum(stage.seconds or 0.0 for stage in self.stages)

    @property
    def counts(self) -> dict[str, int]:
        """Smoke cases by outcome; none that is 0."""
        made: dict[str, int] = {}
        for outcome in ("passed", "failed", "error", "skipped"):
            if count := sum(case.outcome == outcome for case in self.cases):
                made[outcome] = count
        return made

    @property
    def word(self) -> str:
        """The verdict in words; that it passed without a suite is a part of it."""
        return worded(self.verdict, self.tested)

    @property
    def tone(self) -> Verdict:
        """The verdict whose colour it has."""
        return toned(self.verdict, self.tested)

    def link(self, path: str) -> str:
        """That of the file ``path`` of the run, percent-encoded; empty: it is not here."""
        return next((file.link for file in self.files if file.path == path), "")

    @property
    def wheels(self) -> tuple[FileView, ...]:
        """The wheels that passed the audit, or were not yet audited."""
        return tuple(f for f in self.files if f.path.startswith("wheels/"))

    def stage(self, name: str) -> StageView | None:
        """The stage of that name, if it was reached."""
        found = (s for s in self.stages if s.name == name and s.state != "not reached")
        return next(found, None)
