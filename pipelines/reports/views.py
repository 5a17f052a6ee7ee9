"""The view of a run for reports: frozen, bounded, with all host texts safe to print."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from pipelines.core.evidence import Evidence
from pipelines.core.finding import Finding
from pipelines.core.target import Target
from pipelines.reports.model import Case

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
    """``evidence: run with genuine Windows binaries, not on Windows``."""
    return f"evidence: {level.meaning}"


def verdict_text(verdict: Verdict, tested: str) -> str:
    """A verdict in words; ``tested`` names what replaced a missing suite."""
    return f"{WORDS[verdict]}, {tested}" if tested and verdict == "passed" else WORDS[verdict]


def verdict_tone(verdict: Verdict, tested: str) -> Verdict:
    """The verdict that determines the colour: passed without a suite counts as untested."""
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
    message: str = ""
    """Why it failed."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A compile unit; seconds since the build's start."""

    name: str
    start: float
    end: float
    lane: int
    """Lane of its job, from 0."""

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Timeline:
    """Host metrics during compilation."""

    units: tuple[Unit, ...]
    samples: tuple[tuple[float, float, float], ...]
    """Seconds since the build's start, share of busy cores, bytes of memory used."""
    cpus: int
    memory: float
    """Total memory of the host; 0: unknown."""
    lanes: int
    left_out: int
    """Dropped units: too many, or with invalid times."""

    @property
    def end(self) -> float:
        """Seconds from the build's start to its last event."""
        ends = [unit.end for unit in self.units] + [sample[0] for sample in self.samples[-1:]]
        return max(ends, default=0.0)

    @property
    def slowest(self) -> tuple[Unit, ...]:
        """The ten slowest units, the slowest first."""
        return tuple(sorted(self.units, key=lambda unit: (-unit.seconds, unit.name))[:10])

    @property
    def busy(self) -> float | None:
        """Mean share of busy cores, 0 to 1; ``None``: not measured.

        Busy with anything: other programs are not distinguished from the build.
        """
        pairs = list(itertools.pairwise(self.samples))
        span = sum(b[0] - a[0] for a, b in pairs)
        if span <= 0:
            return self.samples[0][1] if self.samples else None
        return sum((a[1] + b[1]) / 2 * (b[0] - a[0]) for a, b in pairs) / span

    @property
    def core_seconds(self) -> float | None:
        """Busy cores over time, other load included; ``None``: not measured.

        Near to what ``invoke plan`` estimates, which is the time of the units alone.
        """
        if self.busy is None or not self.cpus:
            return None
        first, last = self.samples[0], self.samples[-1]
        return self.cpus * (first[0] * first[1] + self.busy * (last[0] - first[0]))

    @property
    def peak(self) -> float:
        """Peak memory among the samples."""
        return max((sample[2] for sample in self.samples), default=0.0)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Lines of a log, one of them marked."""

    source: str
    first: int
    """Number of the first line, from 1; 0: unknown, the last lines."""
    lines: tuple[str, ...]
    mark: int = 0
    """Number of the marked line; 0: none."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure."""

    kind: Kind
    where: str
    title: str
    message: str = ""
    hint: str = ""
    signature: str = ""
    """Id in the catalogue of diagnoses, if known."""
    cause: str = ""
    """Equal for failures with the same cause."""
    links: tuple[str, ...] = ()
    excerpt: Excerpt | None = None
    file: str = ""
    """Path in the repository, and line, for annotations."""
    line: int = 0


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured number of the smoke suite."""

    key: str
    """Identifies the same figure in another run."""
    group: Group
    subject: str
    series: str
    value: float
    unit: str
    better: Better
    shape: str = ""
    """The subject, by which figures are grouped."""
    rival: str = ""
    """The other implementation that was measured; empty: the package's own."""
    factor: float | None = None
    """The rival's value divided by the package's own in the same case."""


@dataclass(frozen=True, slots=True)
class Capability:
    """A capability of a wheel, found by its smoke suite."""

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
    """Whether it differs from the manifest."""
    link: str = ""
    """Percent-encoded path below the run's directory; empty if missing."""


@dataclass(frozen=True, slots=True)
class RunView:
    """Everything that reports show of a run."""

    id: str
    created: str
    verdict: Verdict
    headline: str
    target: Target
    stages: tuple[StageView, ...]
    failures: tuple[Failure, ...]
    caveats: tuple[str, ...] = ()
    """Important notes besides the verdict."""
    evidence: Evidence | None = None
    gpu: str = ""
    timeline: Timeline | None = None
    cases: tuple[Case, ...] = ()
    """Those of the smoke suite, without what they printed."""
    skips: tuple[tuple[str, int], ...] = ()
    """Reasons with the number of skipped cases."""
    figures: tuple[Figure, ...] = ()
    capabilities: tuple[Capability, ...] = ()
    checks: tuple[Finding, ...] = ()
    files: tuple[FileView, ...] = ()
    provenance: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    """Sections of names with values."""
    jobs: int | None = None
    """Parallel jobs; ``None``: no known build."""
    place: str = ""
    """The run's local directory; reports only show relative links."""
    tested: str = ""
    """``import only`` or the like, if no test of the package ran."""
    gpu_way: str = ""
    """The driver model, and how GPUs are attached; ``none`` if a test saw none."""

    @property
    def gpu_summary(self) -> str:
        """The GPU, its driver model and how it is attached: ``NVIDIA L4: WDDM, the host's own``."""
        return ": ".join(filter(None, (self.gpu, self.gpu_way)))

    @property
    def seconds(self) -> float:
        """Total of all stages."""
        return sum(stage.seconds or 0.0 for stage in self.stages)

    @property
    def counts(self) -> dict[str, int]:
        """Non-zero counts of smoke cases by outcome."""
        made: dict[str, int] = {}
        for outcome in ("passed", "failed", "error", "skipped"):
            if count := sum(case.outcome == outcome for case in self.cases):
                made[outcome] = count
        return made

    @property
    def word(self) -> str:
        """The verdict in words, including that no suite ran."""
        return verdict_text(self.verdict, self.tested)

    @property
    def tone(self) -> Verdict:
        """The verdict that determines the colour."""
        return verdict_tone(self.verdict, self.tested)

    def link(self, path: str) -> str:
        """The percent-encoded link to the file ``path``; empty if missing."""
        return next((file.link for file in self.files if file.path == path), "")

    @property
    def wheels(self) -> tuple[FileView, ...]:
        """The wheels that passed the audit or have not been audited."""
        return tuple(f for f in self.files if f.path.startswith("wheels/"))

    def stage(self, name: str) -> StageView | None:
        """The stage of that name, if it was reached."""
        stages = (s for s in self.stages if s.name == name and s.state != "not reached")
        return next(stages, None)


def start_time_text(view: RunView) -> str:
    """When the run started: ``2026-11-22 07:17:28``; empty if not recorded."""
    return view.created[:19].replace("T", " ")


def unique_run_names(views: Sequence[RunView]) -> list[str]:
    """A unique name for each of ``views``: its cell, and as much more as needed.

    That is the package and the host where there are several, then when it began, then its id.
    """
    made = [view.target.label for view in views]
    parts: tuple[Callable[[RunView], str], ...] = (
        lambda view: view.target.package,
        lambda view: view.target.host,
    )
    for part in parts:
        if len({part(view) for view in views}) > 1:
            made = [f"{name}, {part(view)}" for name, view in zip(made, views, strict=True)]
    for part in (start_time_text, lambda view: view.id):
        many = Counter(made)
        made = [
            f"{name}, {part(view)}" if many[name] > 1 and part(view) else name
            for name, view in zip(made, views, strict=True)
        ]
    return made
