"""Writes what people and CI systems read, from the run's record alone."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipelines.console import redact
from pipelines.reports import junit
from pipelines.reports.model import Case, Suite
from pipelines.run import Run, StageRecord

_LINES = 60


def publish(run: Run) -> Path:
    """Write ``junit.xml``: a suite a stage plus the smoke suite."""
    path = run.path / "junit.xml"
    junit.write(path, suites(run))
    return path


def suites(run: Run) -> list[Suite]:
    """The suites of a run, a pure function of its record and its ``smoke.xml``."""
    facts = run.facts()
    properties = {
        key: redact(str(facts[key]))
        for key in ("host", "recipe", "python", "cuda", "archs", "evidence", "publishable", "job")
        if facts.get(key) is not None
    }
    properties |= {f"host.{k}": str(v) for k, v in (facts.get("host_facts") or {}).items()}
    properties |= {f"tool.{k}": str(v) for k, v in (facts.get("tools") or {}).items()}
    made = [_suite(stage, properties, facts["host"]) for stage in run.stages().values()]
    smoke = run.path / "smoke.xml"
    test = run.stages().get("test")
    if smoke.is_file() and test and test.detail.get("outcomes"):
        said = junit.read_pytest(smoke.read_bytes())
        merged = {**properties, **said.properties}
        made.append(
            Suite(f"smoke {facts['recipe']}", said.cases, merged, said.timestamp, facts["host"])
        )
    return made


def _suite(stage: StageRecord, properties: dict[str, str], host: str) -> Suite:
    detail = stage.detail
    cases = _inner(stage)
    log = "\n".join(redact(line) for line in detail.get("tail", [])[-_LINES:])
    outcome = {"passed": "passed", "failed": "failed"}.get(stage.state, "error")
    own = Case(
        name=stage.name,
        classname=f"pipeline.{stage.name}",
        seconds=max(0.0, (stage.seconds or 0.0) - sum(case.seconds for case in cases)),
        outcome=outcome,  # type: ignore[arg-type]
        message=redact(str(detail.get("error", stage.state))) if outcome != "passed" else "",
        detail="\n".join(filter(None, (redact(str(detail.get("advice", ""))), log)))
        if outcome != "passed"
        else "",
        stdout="\n".join((*map(redact, detail.get("healed", [])), log))
        if outcome == "passed"
        else "",
        properties=_told(detail),
    )
    when = datetime.fromtimestamp(stage.started, UTC).isoformat(timespec="seconds")
    return Suite(stage.name, (own, *cases), properties, when, host)


def _told(detail: dict[str, Any]) -> dict[str, str]:
    """What a stage says of how it went: losses, what was healed, the diagnosis."""
    told = {"attempt": detail.get("attempt"), "diagnosis": detail.get("diagnosis")}
    told |= {f"lost {n}": why for n, why in enumerate(detail.get("lost", []), 1)}
    told |= {f"healed {n}": what for n, what in enumerate(detail.get("healed", []), 1)}
    return {key: redact(str(value)) for key, value in told.items() if value}


def _inner(stage: StageRecord) -> list[Case]:
    """The cases within a stage: its resources, its checks."""
    rows: list[dict[str, Any]] = stage.detail.get("resources", [])
    cases = [
        Case(
            name=f"{row['id']}: {row['wanted']}",
            classname=f"pipeline.{stage.name}",
            seconds=row["seconds"],
            outcome="passed" if row["ok"] else "failed",
            message="" if row["ok"] else f"found {row['found']}",
            stdout=f"found {row['found']}, {'changed' if row['changed'] else 'left as it was'}",
        )
        for row in rows
    ]
    for wheel in stage.detail.get("wheels", []) if stage.name == "audit" else []:
        cases += [
            Case(
                name=f"{wheel['wheel']}: {check['name']}",
                classname=f"pipeline.{stage.name}",
                outcome="passed" if check["ok"] else "failed",
                message="" if check["ok"] else f"found {check['found']}, wanted {check['wanted']}",
                detail=check["detail"] if not check["ok"] else "",
                stdout=str(check["found"]) if check["ok"] else "",
            )
            for check in wheel["checks"]
        ]
    return cases
