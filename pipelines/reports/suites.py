"""A run as JUnit suites: each stage with its resources and checks as cases, and the smoke suite."""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.record import (
    AuditResult,
    BuildResult,
    PrebuiltResult,
    ProvisionResult,
    RunFacts,
    SkipResult,
    SmokeResult,
    StageRecord,
    StageResult,
    State,
)
from pipelines.reports.load import read_smoke, result_of, when
from pipelines.reports.model import Case, Outcome, Suite
from pipelines.run import Run

_LINES = 60
_OUTCOMES: dict[State, Outcome] = {"passed": "passed", "failed": "failed"}


def suites(run: Run) -> list[Suite]:
    """The suites of a run, a pure function of its record and its ``smoke.xml``.

    Of every wheel, the audit's and the smoke suite's properties have the sha256 under the same
    name. Raises :class:`ConfigError` when there is no record that can be read.
    """
    facts, stages = run.facts(), list(run.stages().values())
    properties, host = _properties(facts), facts.target.host
    made = [_suite(stage, properties, host) for stage in stages]
    test = result_of(stages, SmokeResult)
    found, why = read_smoke(run.path, test)
    if test is None or not (found or why):
        return made
    custody = _custody({test.wheel: test.sha256})
    name = f"smoke {facts.target.recipe}"
    if found is None:  # of a host that was cut off; the test stage says the rest
        case = Case("smoke.xml", "pipeline.test", outcome="error", message=why)
        return [*made, Suite(name, (case,), properties | custody, "", host)]
    merged = properties | custody | dict(found.properties) | custody  # a host changes none of it
    return [*made, Suite(name, found.cases, merged, found.timestamp, host)]


def _properties(facts: RunFacts) -> dict[str, str]:
    """What every suite says of its run: the axes of its target, the host, the tools."""
    told = {
        **facts.target.values(),
        "evidence": facts.evidence,
        "publishable": facts.publishable,
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


def _suite(stage: StageRecord, properties: dict[str, str], host: str) -> Suite:
    result, error = stage.result, stage.error
    cases = _inner(result)
    if isinstance(result, AuditResult):
        properties = properties | _custody({file.file: file.sha256 for file in result.files})
    log = "\n".join(result.tail[-_LINES:]) if result else ""
    story = result.story if isinstance(result, BuildResult) else ()
    skipped = result.skipped if isinstance(result, SkipResult) else ""
    outcome = _OUTCOMES.get(stage.state, "error")
    if outcome == "passed" and (skipped or stage.unread):
        outcome = "skipped" if skipped else "error"
    passed = outcome == "passed"
    why = skipped or (error.message if error else stage.unread or stage.state)
    own = Case(
        name=stage.name,
        classname=f"pipeline.{stage.name}",
        seconds=max(0.0, (stage.seconds or 0.0) - sum(case.seconds for case in cases)),
        outcome=outcome,
        message="" if passed else why,
        detail="" if passed else "\n".join(filter(None, (error.advice if error else "", log))),
        stdout="\n".join((*story, log)) if passed else "",
        properties=_told(result) | _written({"unread": stage.unread}),
    )
    began = when(stage.started, "%Y-%m-%dT%H:%M:%S+00:00")
    return Suite(stage.name, (own, *cases), properties, began, host)


def _told(result: StageResult | None) -> dict[str, str]:
    """What a stage says of how it went: losses, what was healed, where a wheel is from."""
    told: dict[str, object] = {}
    if isinstance(result, BuildResult):
        found = result.diagnosis
        told = {"attempt": result.attempt or None, "diagnosis": found and found.summary}
        told |= {f"lost {n}": why for n, why in enumerate(result.lost, 1)}
        told |= {f"healed {n}": what for n, what in enumerate(result.story, 1)}
        told |= {f"cache {name}": value for name, value in result.cache.items()}
    if isinstance(result, PrebuiltResult):
        told = {"origin": result.origin}
        if taken := result.taken:
            told |= {f"prebuilt {name}": value for name, value in taken}
            told["prebuilt unstated"] = ", ".join(taken.unstated)
        told |= {f"refused {file}": why for file, why in result.refused.items()}
    return _written(told)


def _inner(result: StageResult | None) -> list[Case]:
    """The cases within a stage: its resources, its checks."""
    if isinstance(result, ProvisionResult):
        return _resources(result)
    if isinstance(result, AuditResult):
        return [
            Case(
                name=f"{file.file}: {check.name}",
                classname=f"pipeline.{result.stage}",
                outcome="passed" if check.ok else "failed",
                message="" if check.ok else f"found {check.found}, wanted {check.wanted}",
                detail="" if check.ok else check.detail,
                stdout=check.found if check.ok else "",
            )
            for file in result.files
            for check in file.checks
        ]
    return []


def _resources(result: ProvisionResult) -> list[Case]:
    """A case a resource: the first that is not as wanted ended it, those after were not come to."""
    made, ended = [], False
    for row in result.resources:
        outcome: Outcome = "passed" if row.ok else "skipped" if ended else "failed"
        found = f"found {row.found}"
        said = {"passed": "", "failed": found, "skipped": f"not come to: {found}"}
        made.append(
            Case(
                name=f"{row.id}: {row.wanted}",
                classname=f"pipeline.{result.stage}",
                seconds=row.seconds,
                outcome=outcome,
                message=said[outcome],
                stdout=f"{found}, {'changed' if row.changed else 'left as it was'}",
            )
        )
        ended = ended or not row.ok
    return made
