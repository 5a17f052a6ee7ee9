"""A run as JUnit suites: each stage with its resources and checks as cases, and the smoke suite.

Tools that keep a history, or merge the files of many cells, know a case by its classname and name.
So a classname begins with the whole target, and no name holds what a pin decides: that stands in
the output. What is counted as a failure is counted once: a stage that failed because of a case in
it is skipped itself, and says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

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
from pipelines.record.target import Target
from pipelines.reports.failures import told_by_cases, unfinished
from pipelines.reports.findings import cases
from pipelines.reports.levels import evidence_of
from pipelines.reports.load import NotBegun, read_smoke, result_of, when
from pipelines.reports.model import Case, Outcome, Suite

_LINES = 60
_NOT_IN_CLASSES = re.compile(r"[^\w.+-]+")
_OUTCOMES: dict[State, Outcome] = {"passed": "passed", "failed": "failed"}


def suites(run: Run) -> list[Suite]:
    """The suites of a run, a pure function of its record and its ``smoke.xml``.

    Of every wheel, the audit's and the smoke suite's properties have the sha256 under the same
    name. Raises :class:`ConfigError` when there is no record that can be read.
    """
    facts, stages = run.facts(), list(run.stages().values())
    test = result_of(stages, SmokeResult)
    facts = facts.model_copy(update={"evidence": evidence_of(facts, test)})
    properties, host, place = _properties(facts), facts.target.host, _place(facts.target)
    found, why = read_smoke(run.path, test)
    smoke = found.cases if found else ()
    made = [_suite(stage, properties, host, place, smoke) for stage in stages]
    if test is None or not (found or why):
        return made
    custody, name = _custody({test.wheel: test.sha256}), f"{place}.smoke"
    if found is None:  # of a host that was cut off; the test stage says the rest
        case = Case("smoke.xml", name, outcome="error", message=why)
        return [*made, Suite(name, (case,), properties | custody, "", host)]
    cases = tuple(
        replace(case, classname=".".join(filter(None, (name, case.classname)))) for case in smoke
    )
    ours = custody | _gpu(test)  # a host changes none of it
    merged = properties | custody | dict(found.properties) | ours
    return [*made, Suite(name, cases, merged, found.timestamp, host)]


def suite_without(cell: NotBegun) -> Suite:
    """The suite of a cell of which there is no run: one case, that there is none."""
    place = _place(cell.target)
    case = Case("run", place, outcome="error", message=cell.headline, detail=cell.hint)
    return Suite(place, (case,), _written(cell.target.values()), "", cell.target.host)


def _place(target: Target) -> str:
    """Where in the matrix all cases stand: ``flash-attn-2.8.3.cp312-torch2.8-cu128.80-90.lab``.

    Every axis is in it: two cells, or two hosts, have no case in common.
    """
    parts = (target.package, target.cell, str(target.archs), target.host)
    return ".".join(_NOT_IN_CLASSES.sub("-", part) for part in parts if part)


def _properties(facts: RunFacts) -> dict[str, str]:
    """What every suite says of its run: the axes of its target, the host, the tools."""
    told = {
        **facts.target.values(),
        "evidence": facts.evidence,
        "publishable": facts.publishable,
        "toolset": facts.toolset,
        "job": facts.job,
        "origin": facts.origin,
    }
    host = facts.host.model_dump(exclude_defaults=True) if facts.host else {}
    told |= {f"host.{key}": value for key, value in host.items()}
    told |= {f"tool.{name}": tool.version for name, tool in facts.tools.items()}
    return _written(told)


def _written(told: Mapping[str, object]) -> dict[str, str]:
    """As text, without what is not known."""
    return {name: str(value) for name, value in told.items() if value not in (None, "")}


def _custody(files: Mapping[str, str]) -> dict[str, str]:
    """The sha256 of files by their names."""
    return _written({f"sha256.{file}": sha256 for file, sha256 in files.items()})


def _suite(
    stage: StageRecord, properties: dict[str, str], host: str, place: str, smoke: Sequence[Case]
) -> Suite:
    result, error, name = stage.result, stage.error, f"{place}.{stage.name}"
    cases = _inner(result, name)
    if isinstance(result, AuditResult):
        properties = properties | _custody({file.file: file.sha256 for file in result.files})
    log = "\n".join(result.tail[-_LINES:]) if result else ""
    story = result.story if isinstance(result, BuildResult) else ()
    limits = [result.limits] if isinstance(result, SmokeResult) and result.limits else []
    outcome, why = _outcome(stage)
    passed = outcome == "passed"
    detail = "" if passed else "\n".join(filter(None, (error.hint if error else "", log)))
    if told_by_cases(stage, smoke if isinstance(result, SmokeResult) else cases):
        for n, case in enumerate(cases):  # what the stage says is of the first that failed
            if case.outcome == "failed":
                said = filter(None, (case.detail or why, detail))
                cases[n] = replace(case, detail="\n".join(said))
                break
        outcome, why = "skipped", f"told by the cases that failed: {why}"
    own = Case(
        name=stage.name,
        classname=name,
        seconds=max(0.0, (stage.seconds or 0.0) - sum(case.seconds for case in cases)),
        outcome=outcome,
        message="" if passed else why,
        detail=detail,
        stdout="\n".join((*story, *limits, log)) if passed else "",
        properties=_told(result) | _written({"unread": stage.unread}),
    )
    began = when(stage.started, "%Y-%m-%dT%H:%M:%S+00:00")
    return Suite(name, (own, *cases), properties, began, host)


def _outcome(stage: StageRecord) -> tuple[Outcome, str]:
    """How the stage itself ended, and why if it did not pass."""
    skipped = stage.result.skipped if isinstance(stage.result, SkipResult) else ""
    said = stage.error.message if stage.error else ""
    if unfinished(stage):  # no verdict, which JUnit has no word for
        return "error", f"unfinished: {said or stage.state}"
    outcome = _OUTCOMES[stage.state]
    if outcome == "passed" and (skipped or stage.unread):
        outcome = "skipped" if skipped else "error"
    return outcome, skipped or said or stage.unread or stage.state


def _told(result: StageResult | None) -> dict[str, str]:
    """What a stage says of how it went: losses, what was healed, where a wheel is from."""
    told: dict[str, object] = {}
    if isinstance(result, BuildResult):
        found = result.diagnosis
        told = {"attempt": result.attempt or None, "diagnosis": found and found.summary}
        told |= {"made up": result.made_up or None}
        told |= {f"lost {n}": why for n, why in enumerate(result.lost, 1)}
        told |= {f"healed {n}": what for n, what in enumerate(result.story, 1)}
        told |= {f"cache {name}": value for name, value in result.cache.items()}
    if isinstance(result, RebuildResult) and (made := result.compared):
        told = {name: getattr(made, name) for name in ("verdict", "published", "rebuilt")}
        told |= {f"difference {n}": d.told for n, d in enumerate(made.differences[:100], 1)}
    if isinstance(result, SmokeResult):
        told = {"limits": result.limits, "script": result.script, **_gpu(result)}
    if isinstance(result, PrebuiltResult):
        told = {"origin": result.origin}
        if taken := result.taken:
            told |= {f"prebuilt {name}": value for name, value in taken}
            told["prebuilt unstated"] = ", ".join(taken.unstated)
        if company := result.company:
            told |= {f"with {one.file}": f"{one.place} {one.sha256}" for one in company.packages}
            told |= {f"note {number}": text for number, text in enumerate(company.notes, 1)}
            told["libraries"] = ", ".join(company.libraries)
        told |= {f"refused {file}": why for file, why in result.refused.items()}
    return _written(told)


def _gpu(test: SmokeResult) -> dict[str, str]:
    """How GPUs came in, and their driver model."""
    told = {"gpu_way": test.gpu_way, "gpu_asked": test.gpu_asked}
    told["driver_model"] = test.driver_models
    if bridge := test.bridge:
        told |= {"bridge": bridge.told, "bridge selftest": bridge.selftest}
        told["bridge driver"] = f"{bridge.driver}, CUDA {bridge.cuda}" if bridge.driver else ""
        told |= {f"bridge warning {n}": said for n, said in enumerate(bridge.warnings, 1)}
    return _written(told)


def _inner(result: StageResult | None, classname: str) -> list[Case]:
    """The cases within a stage: its resources, its checks."""
    if isinstance(result, ProvisionResult):
        return _resources(result, classname)
    if isinstance(result, AuditResult):
        # Of a wheel of others an error may be tolerated, and is no success then.
        return [
            case
            for file in result.files
            for case in cases(file.checks, classname, file.file, warning="skipped")
        ]
    return []


def _resources(result: ProvisionResult, classname: str) -> list[Case]:
    """A case a resource: the first that is not as wanted ended it, those after were not come to."""
    made, ended = [], False
    for row in result.resources:
        outcome: Outcome = "passed" if row.ok else "skipped" if ended else "failed"
        found = f"found {row.found}"
        said = {"passed": "", "failed": found, "skipped": f"not come to: {found}"}
        done = "changed" if row.changed else "left as it was"
        made.append(
            Case(
                name=row.id,
                classname=classname,
                seconds=row.seconds,
                outcome=outcome,
                message=said[outcome],
                stdout=f"wanted {row.wanted}, {found}, {done}",
            )
        )
        ended = ended or not row.ok
    return made
