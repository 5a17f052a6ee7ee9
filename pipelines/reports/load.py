"""Loads a run's record and files into the view that all reports use: pure, total, bounded.

The record's models say what is in it, not how much: rows and lengths are cut here, and for
failures, timeline and files where those are read.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from pipelines.core import units
from pipelines.core.errors import ConfigError, SmokeError
from pipelines.core.files import sha256_of
from pipelines.core.finding import Finding
from pipelines.core.hosttext import safe_block, safe_last_lines, safe_line
from pipelines.core.target import Target
from pipelines.record import results as record
from pipelines.record.manifest import Schema
from pipelines.record.results import (
    ORDER,
    AuditResult,
    BuildResult,
    FileResult,
    PrebuiltResult,
    RebuildResult,
    RunFacts,
    SmokeResult,
    StageRecord,
    StageResult,
)
from pipelines.record.run import Run
from pipelines.reports.failures import collect_failures, is_stage_unfinished
from pipelines.reports.figures import extract_capabilities, extract_figures
from pipelines.reports.junit import read_pytest
from pipelines.reports.levels import evidence_of
from pipelines.reports.model import Case, Suite
from pipelines.reports.provenance import provenance_sections
from pipelines.reports.views import (
    Failure,
    FileView,
    RunView,
    StageView,
    Timeline,
    Unit,
    Verdict,
    evidence_line,
)

_STAGES = 50
_FILES, _CHECKS = 20, 100  # of an audit, of a file
_CASES = 20_000
_GPU = re.compile(r"gpu\d{0,3}_name")
_WARNING = re.compile(r"(?:torch\d{1,3}\.\d{1,3}\.)?warning\d{1,3}")  # of one of several torches
_VARIABLE = "PATH and os.add_dll_directory (on Linux LD_LIBRARY_PATH)"
_UNPUBLISHED = "wheels from this host cannot be published"
_SEEN = 5  # a shorter unobserved part of a build is not mentioned

Result = TypeVar("Result", bound=StageResult)


def load_view(run: Run) -> RunView:
    """The view of ``run``: the same record and files give the same view.

    Raises :class:`ConfigError` when there is no record that can be read. Whatever a record
    is missing is empty in the view; an unreadable result of a stage becomes a caveat.
    """
    view = _view(run, run.facts(), list(run.stages().values())[:_STAGES])
    return replace(view, caveats=(*filter(None, [run.recorded_by]), *view.caveats))


def load_any(run: Run) -> RunView:
    """Like :func:`load_view`; an unreadable record becomes an unfinished run."""
    try:
        return load_view(run)
    except ConfigError as error:
        return replace(_view(run, RunFacts(), []), headline=safe_line(error.message))


@dataclass(frozen=True)
class NotBegun:
    """A cell without a run."""

    name: str
    target: Target
    why: str
    hint: str
    failed: bool
    """Whether it failed; otherwise it can be retried unchanged."""

    @property
    def headline(self) -> str:
        """The reason in one line."""
        return f"no finished run: {safe_line(self.why)}"


def view_without(cell: NotBegun) -> RunView:
    """The view of a cell without a run."""
    stages, _, _ = summarize_outcome([])
    failure = Failure(
        "stage",
        "before the run",
        cell.headline,
        safe_block(cell.why, 2000),
        safe_block(cell.hint, 2000),
    )
    return RunView(
        id=safe_line(cell.name, 120),
        created="",
        verdict="failed" if cell.failed else "unfinished",
        headline=cell.headline,
        target=cell.target,
        stages=stages,
        failures=(failure,),
    )


def result_of(stages: Sequence[StageRecord], kind: type[Result]) -> Result | None:
    """The result of that kind, if a stage has it."""
    return next((stage.result for stage in stages if isinstance(stage.result, kind)), None)


def _view(run: Run, facts: RunFacts, stages: Sequence[StageRecord]) -> RunView:
    build = result_of(stages, BuildResult)
    test = result_of(stages, SmokeResult)
    facts = facts.model_copy(update={"evidence": evidence_of(facts, test)})
    warnings = test.bridge.warnings if test and test.bridge else ()
    results, why = read_smoke(run.path, test)
    suite = results or Suite("")
    timeline = read_timeline(build.timeline) if build and build.timeline else None
    shown, verdict, headline = summarize_outcome(stages, timeline.end if timeline else 0.0)
    reasons = Counter(safe_line(c.message) for c in suite.cases if c.outcome == "skipped")
    audit, present = result_of(stages, AuditResult), list_run_files(run.path)
    checks, changed = _audit_findings(audit), changed_wheels(run.path, stages)
    if changed and verdict in ("passed", "untested"):  # another file than this one did
        verdict, headline = "failed", changed[0]
    return RunView(
        id=safe_line(run.id, 120),
        created=safe_line(facts.created, 40),
        verdict=verdict,
        headline=headline,
        caveats=(
            *_unread_result_notes(stages),
            *([safe_line(why)] if why else []),
            *changed,
            *_taken_up(stages, shown),
            *_caveats(facts, suite, build, result_of(stages, PrebuiltResult)),
            *_idle(test),
            *_untested(test),
            *[f"GPU bridge: {warning}" for warning in safe_last_lines(warnings, 10)],
        ),
        target=facts.target,
        evidence=facts.evidence,
        gpu=next((safe_line(v) for k, v in suite.properties.items() if _GPU.fullmatch(k)), ""),
        stages=shown,
        timeline=timeline,
        failures=collect_failures(stages, checks, suite.cases, facts.target, run.path),
        cases=tuple(
            Case(
                safe_line(c.name),
                safe_line(c.classname, 120),
                c.seconds,
                c.outcome,
                safe_line(c.message),
            )
            for c in suite.cases[:_CASES]
        ),
        skips=tuple(reasons.most_common(50)),
        figures=extract_figures(suite.properties, suite.cases),
        capabilities=extract_capabilities(suite.properties, suite.cases),
        checks=checks,
        files=present,
        provenance=provenance_sections(
            run,
            facts,
            build,
            result_of(stages, PrebuiltResult),
            suite,
            rebuilt=again.compared if (again := result_of(stages, RebuildResult)) else None,
        ),
        jobs=build.jobs if build else None,
        place=str(run.path),
        tested=stand_in_of(test),
        gpu_way=_gpu_way(test),
    )


def changed_wheels(path: Path, stages: Sequence[StageRecord]) -> list[str]:
    """What is wrong with the wheels in ``path`` that its audit let pass: not one is another."""
    audit = next((stage for stage in stages if stage.name == AuditResult.stage), None)
    if audit is None or audit.state != "passed" or not isinstance(audit.result, AuditResult):
        return []
    audited = {one.file: one.sha256 for one in audit.result.files}
    return [
        f"wheels/{safe_line(wheel.name)} was "
        f"{'changed' if wheel.name in audited else 'added'} after the audit"
        for wheel in sorted((path / "wheels").glob("*.whl"))
        if not wheel.is_file() or sha256_of(wheel) != audited.get(wheel.name)
    ]


def _idle(test: SmokeResult | None) -> Iterator[str]:
    """A note if the GPU of a bridge was not used."""
    if test is not None and test.bridge and test.bridge.name and not test.bridge.cases:
        why = "no case passed on it"
        if test.script and not test.outcomes.get("failed"):
            why = f"{safe_line(test.script, 80)} created no context on it"
        yield f"not tested on the available GPU: {why}"


def _untested(test: SmokeResult | None) -> Iterator[str]:
    """Versions of torch that the wheel is for and was not tested with."""
    if test is not None and test.untested:
        yield f"not tested with torch {safe_line(', '.join(test.untested), 100)}"


def summarize_outcome(
    stages: Sequence[StageRecord], compiled: float = 0.0
) -> tuple[tuple[StageView, ...], Verdict, str]:
    """The stages as shown, the verdict and headline; a build took at least ``compiled``."""
    shown, unread = _build_stage_views(stages, compiled), _unread_result_notes(stages)
    verdict, headline = _derive_verdict(shown)
    test = result_of(stages, SmokeResult)
    if verdict == "passed" and test is not None and test.limits:
        headline = f"{headline.partition(',')[0]} and audited; {test.limits}"
    if verdict == "unfinished" and (share := _share(stages)):
        verdict, headline = "untested", share
    if unread and verdict in ("passed", "untested"):  # the unreadable part may contradict that
        verdict, headline = "unfinished", unread[0]
    return shown, verdict, headline


def _share(stages: Sequence[StageRecord]) -> str:
    """The headline of a complete share; empty for other runs."""
    build = result_of(stages, BuildResult)
    home = any(stage.name == "collect" for stage in stages)
    if not build or not build.divided or build.divided.mode == "link" or not home:
        return ""
    well = all(stage.state == "passed" for stage in stages)
    return f"{safe_line(build.divided.summary)}, not linked into a wheel yet" if well else ""


def stand_in_of(test: SmokeResult | None) -> str:
    """``import only``, ``verify only`` or ``own tests skipped`` if no test of the package ran."""
    if test is None or not test.instead:
        return ""
    words = {"skipped": "own tests skipped", "given": "import only"}
    return words.get(test.instead, f"{test.instead} only")


def _unread_result_notes(stages: Sequence[StageRecord]) -> list[str]:
    return [safe_line(stage.unread) for stage in stages if stage.unread]


def _build_stage_views(stages: Sequence[StageRecord], compiled: float) -> tuple[StageView, ...]:
    """The recorded stages in order, then those not reached.

    A build goes on without the command that began it: it took at least the ``compiled`` seconds
    of its timeline, though the record has those of the last command.
    """
    made = [
        StageView(
            safe_line(s.name, 40),
            "unfinished" if s.state == "failed" and is_stage_unfinished(s) else s.state,
            s.started,
            max(s.seconds, compiled) if s.seconds is not None and s.name == "build" else s.seconds,
            safe_line(s.error.message if s.error else "", 600),
            safe_line(s.error.kind if s.error else "", 40),
            _stage_end_reason(s),
        )
        for s in stages
    ]
    names = {stage.name for stage in made}
    prebuilt = result_of(stages, PrebuiltResult)
    if prebuilt is not None and prebuilt.taken is not None and "build" not in names:
        names |= {"build", "collect"}  # a prebuilt wheel has neither
    return (*made, *(StageView(name, "not reached") for name in ORDER if name not in names))


def _stage_end_reason(stage: StageRecord) -> str:
    """Why a stage ended: the diagnosis, or the first line of its error.

    What follows in an error is the end of the log: the failures tell it.
    """
    if isinstance(stage.result, BuildResult) and stage.result.diagnosis:
        return safe_line(stage.result.diagnosis.summary)
    return (
        safe_line(safe_block(stage.error.message).partition("\n")[0].rstrip(": "))
        if stage.error
        else ""
    )


def _derive_verdict(stages: Sequence[StageView]) -> tuple[Verdict, str]:
    halted = next((stage for stage in stages if stage.state not in ("passed", "not reached")), None)
    if halted is not None:
        return _halted(halted)
    done = {stage.name for stage in stages if stage.state == "passed"}
    if "skip" in done:
        return "untested", "not built: the recipe skips this cell"
    # A prebuilt wheel has no build stage; after an unsuccessful search there is one.
    taken = "prebuilt" in done and not any(
        stage.name == "build" and stage.state != "not reached" for stage in stages
    )
    how = "external or prebuilt" if taken else "built"
    if "rebuild" in done:
        return "passed", "rebuilt: byte for byte identical to the published wheel"
    if {"prebuilt" if taken else "build", "audit", "test"} <= done:
        return "passed", f"{how}, audited and smoke-tested"
    if {"prebuilt" if taken else "build", "audit"} <= done:
        return "untested", f"{how} and audited; the wheel was not smoke-tested"
    missing = next((name for name in ORDER if name not in done), "test")
    return "unfinished", f"no record of {missing}"


def _halted(stage: StageView) -> tuple[Verdict, str]:
    if stage.state == "unfinished":
        return "unfinished", f"{stage.name} will continue with the next command: {stage.error}"
    if stage.state == "running":
        return "unfinished", f"{stage.name} has no outcome: it is running or was killed"
    if stage.state == "interrupted":
        return "unfinished", f"{stage.name} was interrupted"
    return "failed", f"{stage.name} {stage.state}: {stage.message or 'without a message'}"


def read_smoke(path: Path, test: SmokeResult | None) -> tuple[Suite | None, str]:
    """The smoke suite of this run's ``test``, or why it cannot be read.

    A report without a test that has read it is an earlier test's.
    """
    smoke = path / "smoke.xml"
    if test is None or not test.outcomes:
        return None, ""
    if not smoke.is_file() or smoke.is_symlink():
        return None, "smoke.xml is missing: no smoke cases or figures"
    data = smoke.read_bytes()
    if test.report and sha256(data).hexdigest() != test.report:
        return None, "smoke.xml was changed after the test: it does not match the record"
    try:
        return read_pytest(data), ""
    except SmokeError as error:
        return None, error.message


def _gpu_way(test: SmokeResult | None) -> str:
    if test is None:
        return ""
    requested = (
        f"although {test.gpu_asked} was requested" if test.gpu_asked and not test.gpus else ""
    )
    return safe_line(", ".join(filter(None, (test.driver_models, test.gpu_way, requested))))


def _taken_up(stages: Sequence[StageRecord], shown: Sequence[StageView]) -> list[str]:
    """Notes on a build time that differs from that of the recorded command."""
    notes = []
    for stage, view in zip(stages, shown, strict=False):
        if stage.seconds is None or not view.seconds or view.seconds - stage.seconds <= _SEEN:
            continue
        took = units.format_seconds(view.seconds)
        if isinstance(stage.result, BuildResult) and stage.result.kept:
            notes.append(
                f"nothing was rebuilt: the wheel is from an earlier build, which took {took}"
            )
        else:
            notes.append(
                f"the build continued in the background: it took {took}, and the last command saw "
                f"{units.format_seconds(stage.seconds)} of it"
            )
    return notes


def _caveats(
    facts: RunFacts, suite: Suite, build: BuildResult | None, taken: PrebuiltResult | None
) -> list[str]:
    notes = [safe_line(facts.origin, 600)] if facts.given else []
    dependencies = taken.company if taken is not None else None
    if dependencies is not None:
        notes += safe_last_lines(dependencies.notes, 10)
        if dependencies.libraries:
            notes.append(
                f"with {_VARIABLE} set for {safe_line(', '.join(dependencies.libraries), 600)}"
            )
    if facts.remade:
        times = "once" if len(facts.remade) == 1 else f"{len(facts.remade)} times"
        why = safe_line(facts.remade[-1], 200)
        notes.append(f"the host was recreated {times} during this run: {why}")
    skipped = [case for case in suite.cases if case.outcome == "skipped"]
    if skipped:
        reason = Counter(safe_line(case.message, 200) for case in skipped).most_common(1)[0][0]
        why = f", mostly because: {reason}" if reason else ""
        notes.append(f"{len(skipped)} of {len(suite.cases)} smoke cases were skipped{why}")
    notes += [safe_line(v) for k, v in suite.properties.items() if _WARNING.fullmatch(k)][:10]
    if facts.evidence is not None:
        notes.append(evidence_line(facts.evidence))
        if facts.evidence.unshown:
            notes.append(f"not covered: {', '.join(facts.evidence.unshown)}")
    if facts.publishable is False:
        notes.append("cannot be published" if facts.given else _UNPUBLISHED)
    if build is not None:
        divided = build.divided.summary if build.divided else ""
        notes += safe_last_lines(
            [note for note in (divided, build.made_up, *build.story) if note], 12
        )
        notes += [f"an attempt was lost: {why}" for why in safe_last_lines(build.lost, 10)]
    return notes


def _audit_findings(audit: AuditResult | None) -> tuple[Finding, ...]:
    files = (audit.files if audit else ())[:_FILES]
    return tuple(check for file in files for check in file.checks[:_CHECKS])


def format_utc_time(seconds: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """A time in UTC, in seconds; ``""`` for none."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime(form) if seconds else ""
    except (OverflowError, ValueError, OSError):
        return ""


_UNITS = 4000
_SAMPLES = 20_000
_LANES = 64
_LONGEST = 1e7  # seconds
_BYTES = 1e15
_CORES = 100_000
_EXACT = 0.05  # seconds; clocks of a host's log are not finer


def read_timeline(recorded: record.Timeline) -> Timeline | None:
    """The timeline of a build, or ``None`` if it is empty.

    Whatever makes no sense in it (times that run backwards, no numbers) is left out and counted.
    """
    units, samples = _plausible_compile_units(recorded.units), _samples(recorded.samples)
    if not units and not samples:
        return None
    placed, lanes = _assign_lanes(units)
    return Timeline(
        units=tuple(placed),
        samples=tuple(samples),
        cpus=recorded.cpus if 0 <= recorded.cpus <= _CORES else 0,
        memory=_plausible_byte_count(recorded.memory),
        lanes=lanes,
        left_out=len(recorded.units) - len(placed),
    )


def _plausible_compile_units(
    recorded: tuple[tuple[str, float, float], ...],
) -> list[tuple[str, float, float]]:
    """Name, start and end of the units, by start."""
    made = [
        (safe_line(name, 160), start, end)
        for name, start, end in recorded
        if 0 <= start <= end <= _LONGEST
    ]
    if len(made) > _UNITS:  # the short ones matter least
        made = sorted(made, key=lambda unit: unit[1] - unit[2])[:_UNITS]
    return sorted(made, key=lambda unit: (unit[1], unit[2], unit[0]))


def _samples(recorded: tuple[tuple[float, float, float], ...]) -> list[tuple[float, float, float]]:
    return sorted(
        (at, min(busy, 1.0), _plausible_byte_count(used))
        for at, busy, used in recorded[:_SAMPLES]
        if 0 <= at <= _LONGEST and 0 <= busy < math.inf
    )


def _plausible_byte_count(value: float) -> float:
    """``value`` if it is a plausible number of bytes, else 0."""
    return value if 0 <= value <= _BYTES else 0.0


def _assign_lanes(units: list[tuple[str, float, float]]) -> tuple[list[Unit], int]:
    """Assign every unit to the first free lane: as many lanes as concurrent jobs.

    Units for which there is no lane any more are not among them.
    """
    ends: list[float] = []
    placed = []
    for name, start, end in units:
        lane = next((n for n, free in enumerate(ends) if free <= start + _EXACT), len(ends))
        if lane == len(ends):
            if lane == _LANES:
                continue
            ends.append(end)
        ends[lane] = end
        placed.append(Unit(name, start, end, lane))
    return placed, len(ends)


#: Generated from the record, or the record itself: not listed in a report.
UNLISTED = ("report.html", "summary.md", "manifest.json")
_MOST = 500
_MANIFEST = 16 << 20  # bytes
_LINK = 1000  # characters


class _Manifest(BaseModel):
    """The relevant part of ``manifest.json``."""

    schema_: Schema
    files: tuple[FileResult, ...]


def list_run_files(path: Path) -> tuple[FileView, ...]:
    """Every file of the run in ``path``, and those only in ``manifest.json``, as from CI."""
    known = _read_manifest_rows(path / "manifest.json")
    made = []
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path).as_posix()
        hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
        if hidden or name in UNLISTED or name.startswith("record.sqlite"):
            continue
        if file.is_file() and not file.is_symlink():
            made.append(_build_file_view(file, name, known.pop(name, None)))
            if len(made) == _MOST:
                break
    made += [
        FileView(safe_line(name), row.size, row.sha256, "not here; from manifest.json")
        for name, row in known.items()
        if name not in UNLISTED
    ]
    return tuple(sorted(made[:_MOST], key=lambda row: row.path))


def _build_file_view(file: Path, name: str, recorded: FileResult | None) -> FileView:
    status, link = file.stat(), quote(os.fsencode(name))
    link = link if len(link) <= _LINK else ""
    sha256 = sha256_of(file)
    # Logs and reports are rewritten by later stages, wheels are not.
    differs = recorded is not None and name.endswith(".whl") and recorded.sha256 != sha256
    note = "differs from manifest.json" if differs else ""
    return FileView(safe_line(name), status.st_size, sha256, note, differs, link)


def _read_manifest_rows(path: Path) -> dict[str, FileResult]:
    """Its rows by path; empty if it cannot be read."""
    try:
        if path.is_symlink() or path.stat().st_size > _MANIFEST:
            return {}
        manifest = _Manifest.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return {}
    return {row.path: row for row in manifest.files}
