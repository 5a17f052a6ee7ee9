"""Converts a run to JUnit suites: stages with resources and checks as cases, and the smoke suite.

Tools that keep a history, or merge the files of many cells, know a case by its classname and name.
So a classname begins with the whole target, and no name holds what a pin decides: that stands in
the output. What is counted as a failure is counted once: a stage that failed because of a case in
it is skipped itself, and says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

from pipelines.core.hosttext import safe_block
from pipelines.core.target import Target
from pipelines.record.results import (
    AuditResult,
    BuildResult,
    PrebuiltResult,
    ProvisionResult,
    RebuildResult,
    RunFacts,
    SkipResult,
    SmokeResult,
    StageRecord,
    StageResult,
    State,
)
from pipelines.record.run import Run
from pipelines.reports.failures import covered_by_cases, is_stage_unfinished
from pipelines.reports.findings import finding_cases
from pipelines.reports.levels import evidence_of
from pipelines.reports.load import (
    NotBegun,
    changed_wheels,
    format_utc_time,
    read_smoke,
    result_of,
    summarize_outcome,
)
from pipelines.reports.model import Case, Outcome, Suite
from pipelines.reports.provenance import recorded_facts

_LINES = 60
_NOT_IN_CLASSES = re.compile(r"[^\w.+-]+")
_OUTCOMES: dict[State, Outcome] = {"passed": "passed", "failed": "failed"}


def junit_suites(run: Run) -> list[Suite]:
    """The suites of a run, a pure function of its record, its ``smoke.xml`` and its wheels.

    Of every wheel, the audit's and the smoke suite's properties have the sha256 under the same
    name. Raises :class:`ConfigError` when there is no record that can be read.
    """
    facts, stages = run.facts(), list(run.stages().values())
    test = result_of(stages, SmokeResult)
    facts = facts.model_copy(update={"evidence": evidence_of(facts, test)})
    properties, host, place = (
        _run_properties(facts),
        facts.target.host,
        _class_name_prefix(facts.target),
    )
    results, why = read_smoke(run.path, test)
    smoke = results.cases if results else ()
    made = [_stage_suite(stage, properties, host, place, smoke) for stage in stages]
    if open_ := _open_ended(run, stages):
        case = Case("run", place, outcome="error", message=open_)
        made.append(Suite(place, (case,), properties, "", host))
    if test is None or not (results or why):
        return made
    custody, name = _custody({test.wheel: test.sha256}), f"{place}.smoke"
    if results is None:  # the connection was lost; see the test stage
        case = Case("smoke.xml", name, outcome="error", message=why)
        return [*made, Suite(name, (case,), properties | custody, "", host)]
    cases = tuple(
        replace(case, classname=".".join(filter(None, (name, case.classname)))) for case in smoke
    )
    ours = custody | _gpu_properties(test)  # not overridden by the host's properties
    merged = properties | custody | dict(results.properties) | ours
    return [*made, Suite(name, cases, merged, results.timestamp, host)]


def _open_ended(run: Run, stages: Sequence[StageRecord]) -> str:
    """Why a run in which every recorded stage has passed has not; empty: it has."""
    _, verdict, headline = summarize_outcome(stages)
    if verdict in ("passed", "untested"):
        return next(iter(changed_wheels(run.path, stages)), "")
    return headline if all(stage.state == "passed" for stage in stages) else ""


def suite_without(cell: NotBegun) -> Suite:
    """The suite of a cell without a run: one case that says so."""
    place = _class_name_prefix(cell.target)
    case = Case(
        "run", place, outcome="error", message=cell.headline, detail=safe_block(cell.hint, 2000)
    )
    return Suite(
        place, (case,), _stringify_known_values(cell.target.values()), "", cell.target.host
    )


def _class_name_prefix(target: Target) -> str:
    """The class name prefix of all cases: ``flash-attn-2.8.3.cp312-torch2.8-cu128.80-90.lab``.

    Every axis is in it: two cells, or two hosts, have no case in common.
    """
    parts = (target.package, target.cell, str(target.archs), target.host)
    return ".".join(_NOT_IN_CLASSES.sub("-", part) for part in parts if part)


def _run_properties(facts: RunFacts) -> dict[str, str]:
    """Properties of the run: axes of its target, host, tools."""
    known = recorded_facts(facts)
    more = {f"{kind}.{key}": text for kind in ("host", "tool") for key, text in known[kind].items()}
    return _stringify_known_values(known["run"] | more)


def _stringify_known_values(values: Mapping[str, object]) -> dict[str, str]:
    """As text, without unknown values."""
    return {name: str(value) for name, value in values.items() if value not in (None, "")}


def _custody(files: Mapping[str, str]) -> dict[str, str]:
    """The sha256 of files as properties."""
    return _stringify_known_values({f"sha256.{file}": sha256 for file, sha256 in files.items()})


def _stage_suite(
    stage: StageRecord, properties: dict[str, str], host: str, place: str, smoke: Sequence[Case]
) -> Suite:
    result, error, name = stage.result, stage.error, f"{place}.{stage.name}"
    cases = _inner(result, name)
    if isinstance(result, AuditResult):
        properties = properties | _custody({file.file: file.sha256 for file in result.files})
    log = "\n".join(result.tail[-_LINES:]) if result else ""
    story = result.story if isinstance(result, BuildResult) else ()
    limits = [result.limits] if isinstance(result, SmokeResult) and result.limits else []
    outcome, why = _stage_outcome(stage)
    passed = outcome == "passed"
    detail = "" if passed else "\n".join(filter(None, (error.hint if error else "", log)))
    if covered_by_cases(stage, smoke if isinstance(result, SmokeResult) else cases):
        for n, case in enumerate(cases):  # the stage's message is about the first failed case
            if case.outcome == "failed":
                texts = filter(None, (case.detail or why, detail))
                cases[n] = replace(case, detail="\n".join(texts))
                break
        outcome, why = "skipped", f"see the failed cases: {why}"
    own = Case(
        name=stage.name,
        classname=name,
        seconds=max(0.0, (stage.seconds or 0.0) - sum(case.seconds for case in cases)),
        outcome=outcome,
        message="" if passed else why,
        detail=detail,
        stdout="\n".join((*story, *limits, log)) if passed else "",
        properties=_stage_properties(result) | _stringify_known_values({"unread": stage.unread}),
    )
    began = format_utc_time(stage.started, "%Y-%m-%dT%H:%M:%S+00:00")
    return Suite(name, (own, *cases), properties, began, host)


def _stage_outcome(stage: StageRecord) -> tuple[Outcome, str]:
    """The outcome of the stage itself, with the reason if it did not pass."""
    skipped = stage.result.skipped if isinstance(stage.result, SkipResult) else ""
    message = stage.error.message if stage.error else ""
    if is_stage_unfinished(stage):  # JUnit has no outcome for that
        return "error", f"unfinished: {message or stage.state}"
    outcome = _OUTCOMES[stage.state]
    if outcome == "passed" and (skipped or stage.unread):
        outcome = "skipped" if skipped else "error"
    return outcome, skipped or message or stage.unread or stage.state


def _stage_properties(result: StageResult | None) -> dict[str, str]:
    """Properties of a stage: lost attempts, retries, the origin of a wheel."""
    values: dict[str, object] = {}
    if isinstance(result, BuildResult):
        diagnosis = result.diagnosis
        values = {"attempt": result.attempt or None, "diagnosis": diagnosis and diagnosis.summary}
        values |= {"made up": result.made_up or None}
        values |= {f"lost {n}": why for n, why in enumerate(result.lost, 1)}
        values |= {f"healed {n}": what for n, what in enumerate(result.story, 1)}
        values |= {f"cache {name}": value for name, value in result.cache.items()}
    if isinstance(result, RebuildResult) and (made := result.compared):
        values |= dict(islice(made.rows.items(), 100))
    if isinstance(result, SmokeResult):
        values = {"limits": result.limits, "script": result.script, **_gpu_properties(result)}
    if isinstance(result, PrebuiltResult):
        values = {"origin": result.origin}
        if taken := result.taken:
            values |= {f"prebuilt {name}": value for name, value in taken}
            values["prebuilt unstated"] = ", ".join(taken.unstated)
        if dependencies := result.company:
            values |= {
                f"with {package.file}": f"{package.place} {package.sha256}"
                for package in dependencies.packages
            }
            values |= {f"note {number}": text for number, text in enumerate(dependencies.notes, 1)}
            values["libraries"] = ", ".join(dependencies.libraries)
        values |= {f"refused {file}": why for file, why in result.refused.items()}
    return _stringify_known_values(values)


def _gpu_properties(test: SmokeResult) -> dict[str, str]:
    """How GPUs are attached, and their driver model."""
    values = {"gpu_way": test.gpu_way, "gpu_asked": test.gpu_asked}
    values["driver_model"] = test.driver_models
    if bridge := test.bridge:
        values |= {"bridge": bridge.name, "bridge selftest": bridge.selftest}
        values["bridge driver"] = f"{bridge.driver}, CUDA {bridge.cuda}" if bridge.driver else ""
        values |= {f"bridge warning {n}": warning for n, warning in enumerate(bridge.warnings, 1)}
    return _stringify_known_values(values)


def _inner(result: StageResult | None, classname: str) -> list[Case]:
    """The cases of a stage: its resources or checks."""
    if isinstance(result, ProvisionResult):
        return _resource_cases(result, classname)
    if isinstance(result, AuditResult):
        # A tolerated error of an external wheel is not a success.
        return [
            case
            for file in result.files
            for case in finding_cases(file.checks, classname, file.file, warning="skipped")
        ]
    return []


def _resource_cases(result: ProvisionResult, classname: str) -> list[Case]:
    """A case for each resource; those after the first failed one were not reached."""
    made, ended = [], False
    for row in result.resources:
        outcome: Outcome = "passed" if row.ok else "skipped" if ended else "failed"
        actual = f"found {row.found}"
        messages = {"passed": "", "failed": actual, "skipped": f"not reached: {actual}"}
        done = "changed" if row.changed else "unchanged"
        made.append(
            Case(
                name=row.id,
                classname=classname,
                seconds=row.seconds,
                outcome=outcome,
                message=messages[outcome],
                stdout=f"expected {row.wanted}, {actual}, {done}",
            )
        )
        ended = ended or not row.ok
    return made
