"""From a run's record and files to the view that every report is made of: pure, total, bounded."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipelines import units
from pipelines.errors import ConfigError, SmokeError, StorageError, TimeUpError
from pipelines.hosttext import block, line, texts
from pipelines.reports.failures import failures
from pipelines.reports.figures import capabilities, figures
from pipelines.reports.files import files
from pipelines.reports.junit import read_pytest
from pipelines.reports.model import Suite
from pipelines.reports.read import mapping, number, rows
from pipelines.reports.timeline import read_timeline
from pipelines.reports.views import CaseView, Cell, Check, RunView, StageView, Verdict
from pipelines.run import Run, StageRecord

#: The way through, in order.
STAGES = ("provision", "build", "collect", "audit", "test")
EVIDENCE = {
    "W": "nothing of this is shown for Windows",
    "S": "checked statically",
    "F": "run against a simulator",
    "B": "run with genuine Windows binaries, not on Windows",
    "G": "run on a real GPU",
    "R": "run on real Windows",
}
_GPU, _WARNING = re.compile(r"gpu\d{0,3}_name"), re.compile(r"warning\d{1,3}")
_CASES = 20_000
_SUITE_FACTS = 200
_SEEN = 5  # seconds of a build that nobody misses


def load_view(run: Run) -> RunView:
    """The view of ``run``: the same record and files give the same view.

    Raises :class:`ConfigError` when there is no record that can be read. Whatever a record
    lacks is empty in the view.
    """
    try:
        facts, records = run.facts(), list(run.stages().values())
    except (sqlite3.Error, ValueError, TypeError, StorageError) as error:
        there = (run.path / "record.sqlite").is_file()
        raise ConfigError(
            f"{run.path} holds no record that can be read: {line(error)}",
            advice="Its record.sqlite is damaged or of another version: report.html and junit.xml "
            "there, if any, are as they were made. Copy the run anew, or build again."
            if there
            else "Name the directory of a run: it holds record.sqlite.",
        ) from error
    stages = [
        StageRecord(str(s.name), s.state, number(s.started) or 0.0, number(s.seconds), mapping(d))
        for s in records
        for d in [s.detail]
    ]
    return _view(run, facts, stages)


def load_any(run: Run) -> RunView:
    """As :func:`load_view`; a record that cannot be read is an unfinished run that says so."""
    try:
        return load_view(run)
    except ConfigError as error:
        return replace(_view(run, {}, []), headline=line(error.message))


def _view(run: Run, facts: dict[str, Any], stages: list[StageRecord]) -> RunView:
    details = {stage.name: stage.detail for stage in stages}
    suite, unread = _smoke(run.path, details.get("test", {}))
    cell = Cell(
        **{
            key: line(facts.get(key), 120)
            for key in ("host", "recipe", "version", "python", "torch", "cuda", "archs")
        }
    )
    build = details.get("build", {})
    timeline = read_timeline(build.get("timeline"))
    shown = _stages(stages, timeline.end if timeline else 0.0)
    verdict, headline = _verdict(shown)
    reasons = Counter(line(c.message) for c in suite.cases if c.outcome == "skipped")
    gpu = next((line(v) for k, v in suite.properties.items() if _GPU.fullmatch(k)), "")
    return RunView(
        id=line(run.id, 120),
        created=line(facts.get("created"), 40),
        verdict=verdict,
        headline=headline,
        caveats=(*unread, *_taken_up(stages, shown), *_caveats(facts, suite, details)),
        cell=cell,
        gpu=gpu,
        stages=shown,
        timeline=timeline,
        failures=failures(stages, suite.cases, cell.recipe, run.path),
        cases=tuple(
            CaseView(line(c.name), line(c.classname, 120), c.outcome, c.seconds, line(c.message))
            for c in suite.cases[:_CASES]
        ),
        skips=tuple(reasons.most_common(50)),
        figures=figures(suite.properties, suite.cases),
        capabilities=capabilities(suite.properties, suite.cases),
        checks=_checks(details.get("audit", {})),
        resources=tuple(
            (line(row.get("id")), line(row.get("found")), row.get("changed") is True)
            for row in rows(details.get("provision", {}).get("resources"), 200)
        ),
        files=files(run.path),
        provenance=_provenance(run, facts, build, suite),
        jobs=line(build.get("jobs"), 20),
    )


def _stages(stages: Sequence[StageRecord], compiled: float) -> tuple[StageView, ...]:
    """Those of the record in their order, then those that were not reached.

    A build goes on without the command that began it: it took at least the ``compiled`` seconds
    of its timeline, though the record has those of the last command.
    """
    made = [
        StageView(
            line(s.name, 40),
            line(s.state, 20),
            s.started,
            max(s.seconds, compiled) if s.seconds is not None and s.name == "build" else s.seconds,
            line(s.detail.get("error"), 600),
            line(s.detail.get("advice"), 600),
            line(s.detail.get("kind"), 40),
            _said(s.detail),
        )
        for s in stages[:50]
    ]
    reached = {stage.name for stage in made}
    return (*made, *(StageView(name, "not reached") for name in STAGES if name not in reached))


def _said(detail: dict[str, Any]) -> str:
    """Why a stage ended, in a sentence: what the diagnosis says, else how its error begins.

    What follows in an error is the end of the log: the failures tell it.
    """
    return line(detail.get("diagnosis")) or line(
        block(detail.get("error")).partition("\n")[0].rstrip(": ")
    )


def _verdict(stages: Sequence[StageView]) -> tuple[Verdict, str]:
    halted = next((stage for stage in stages if stage.state not in ("passed", "not reached")), None)
    if halted is not None:
        return _halted(halted)
    done = {stage.name for stage in stages if stage.state == "passed"}
    if {"build", "audit", "test"} <= done:
        return "passed", "built, audited and smoke-tested"
    if {"build", "audit"} <= done:
        return "untested", "built and audited; the wheel was not smoke-tested"
    missing = next((name for name in STAGES if name not in done), "test")
    return "unfinished", f"nothing is recorded of {missing}"


def _halted(stage: StageView) -> tuple[Verdict, str]:
    if stage.kind == TimeUpError.title:
        return "unfinished", f"{stage.name} goes on with the next command: {stage.error}"
    if stage.state == "running":
        return "unfinished", f"{stage.name} has no outcome: it is going on, or was killed"
    if stage.state == "interrupted":
        return "unfinished", f"{stage.name} was interrupted"
    return "failed", f"{stage.name} {stage.state}: {stage.said or 'and nothing more was said'}"


def _smoke(path: Path, test: dict[str, Any]) -> tuple[Suite, list[str]]:
    """The smoke suite of this run's test, and what must be said where it cannot be read."""
    smoke = path / "smoke.xml"
    if not test.get("outcomes"):
        return Suite(""), []
    if not smoke.is_file() or smoke.is_symlink():
        return Suite(""), ["smoke.xml is not here: smoke cases and figures are not told"]
    try:
        return read_pytest(smoke.read_bytes()), []
    except SmokeError as error:
        return Suite(""), [line(error.message)]


def _taken_up(stages: Sequence[StageRecord], shown: Sequence[StageView]) -> list[str]:
    """Says where a build's time is not that of the command which the record tells of."""
    said = []
    for stage, view in zip(stages, shown, strict=False):
        if stage.seconds is None or not view.seconds or view.seconds - stage.seconds <= _SEEN:
            continue
        took = units.seconds(view.seconds)
        if stage.detail.get("kept") is True:
            said.append(
                f"nothing was built anew: the wheel is an earlier build's, which took {took}"
            )
        else:
            said.append(
                f"the build went on without a command: it took {took}, and the last command saw "
                f"{units.seconds(stage.seconds)} of it"
            )
    return said


def _caveats(facts: dict[str, Any], suite: Suite, details: dict[str, Any]) -> list[str]:
    build, said = details.get("build", {}), []
    skipped = [case for case in suite.cases if case.outcome == "skipped"]
    if skipped:
        reason = Counter(line(case.message, 200) for case in skipped).most_common(1)[0][0]
        why = f", most of them: {reason}" if reason else ""
        said.append(f"{len(skipped)} of {len(suite.cases)} smoke cases were skipped{why}")
    said += [line(v) for k, v in suite.properties.items() if _WARNING.fullmatch(k)][:10]
    if (level := line(facts.get("evidence"), 20)) in EVIDENCE:
        said.append(f"evidence {level}: {EVIDENCE[level]}")
    if facts.get("publishable") is False:
        said.append("this host's wheels are not for publishing")
    said += texts(build.get("healed"), 10)
    said += [f"an attempt was lost: {why}" for why in texts(build.get("lost"), 10)]
    return said


def _checks(audit: dict[str, Any]) -> tuple[Check, ...]:
    return tuple(
        Check(
            line(wheel.get("wheel"), 200),
            line(check.get("name"), 100),
            check.get("ok") is True,
            line(check.get("found")),
            line(check.get("wanted")),
        )
        for wheel in rows(audit.get("wheels"), 20)
        for check in rows(wheel.get("checks"), 100)
    )


def _provenance(
    run: Run, facts: dict[str, Any], build: dict[str, Any], suite: Suite
) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    own = ("created", "host", "evidence", "publishable", "recipe", "version", "python", "torch")
    asked = [(key, facts.get(key)) for key in (*own, "cuda", "archs", "job", "source_sha256")]
    tests = [pair for pair in suite.properties.items() if not pair[0].startswith("has.")]
    tools = mapping(facts.get("tools"))
    sections = (
        ("Run", [("run", run.id), *asked]),
        ("Host", list(mapping(facts.get("host_facts")).items())),
        ("Tools", sorted(tools.items())),
        ("Build environment", sorted(mapping(build.get("environment")).items())),
        ("Smoke test", tests),
    )
    made = [
        (name, tuple((line(k, 100), line(v)) for k, v in pairs[:_SUITE_FACTS] if line(v)))
        for name, pairs in sections
    ]
    return tuple((name, pairs) for name, pairs in made if pairs)


def when(seconds: float) -> str:
    """An instant in UTC, to the second; ``""`` for none."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S") if seconds else ""
    except (OverflowError, ValueError, OSError):
        return ""
