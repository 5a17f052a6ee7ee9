"""Writes what people and CI systems read, from the run's record alone."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipelines.console import console
from pipelines.errors import SmokeError
from pipelines.hosttext import redact
from pipelines.reports import junit, terminal
from pipelines.reports.load import load_view
from pipelines.reports.model import Case, Suite
from pipelines.run import Run, StageRecord
from pipelines.stages import reporting

_LINES = 60


def publish(run: Run) -> Path:
    """Write ``junit.xml``, ``report.html`` and ``summary.md``, and say in short how it went.

    The path is that of ``junit.xml``: a suite a stage plus the smoke suite.
    """
    path = run.path / "junit.xml"
    junit.write(path, suites(run))
    views = [load_view(run)]  # after junit.xml: it is one of the files
    reporting.write(views, run.path)
    console.print(terminal.render(views))
    # A stage's own error is printed, and annotated, by whoever ends the command with it.
    reporting.tell_github(views, stages=False)
    return path


def suites(run: Run) -> list[Suite]:
    """The suites of a run, a pure function of its record and its ``smoke.xml``."""
    facts = run.facts()
    properties = {
        key: redact(str(facts[key]))
        for key in (
            "host",
            "recipe",
            "python",
            "cuda",
            "archs",
            "evidence",
            "publishable",
            "job",
            "origin",
        )
        if facts.get(key) is not None
    }
    properties |= {f"host.{k}": str(v) for k, v in (facts.get("host_facts") or {}).items()}
    properties |= {f"tool.{k}": str(v) for k, v in (facts.get("tools") or {}).items()}
    host = redact(str(facts.get("host", "")))
    made = [_suite(stage, properties, host) for stage in run.stages().values()]
    smoke = run.path / "smoke.xml"
    test = run.stages().get("test")
    if smoke.is_file() and test and test.detail.get("outcomes"):
        name = f"smoke {facts.get('recipe', '')}"
        try:
            said = junit.read_pytest(smoke.read_bytes())
        except SmokeError as error:  # of a host that was cut off; the test stage says the rest
            case = Case("smoke.xml", "pipeline.test", outcome="error", message=error.message)
            return [*made, Suite(name, (case,), properties, "", host)]
        merged = {**properties, **said.properties}
        made.append(Suite(name, said.cases, merged, said.timestamp, host))
    return made


def _suite(stage: StageRecord, properties: dict[str, str], host: str) -> Suite:
    detail = stage.detail
    cases = _inner(stage)
    log = "\n".join(redact(line) for line in detail.get("tail", [])[-_LINES:])
    outcome = {"passed": "passed", "failed": "failed"}.get(stage.state, "error")
    skipped = redact(str(detail.get("skipped", "")))
    if skipped and outcome == "passed":
        outcome = "skipped"
    own = Case(
        name=stage.name,
        classname=f"pipeline.{stage.name}",
        seconds=max(0.0, (stage.seconds or 0.0) - sum(case.seconds for case in cases)),
        outcome=outcome,  # type: ignore[arg-type]
        message=skipped or redact(str(detail.get("error", stage.state)))
        if outcome != "passed"
        else "",
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
    told |= {"origin": detail.get("origin")}
    told |= {f"prebuilt {k}": v for k, v in (detail.get("prebuilt") or {}).items()}
    told |= {f"refused {file}": why for file, why in (detail.get("refused") or {}).items()}
    told |= {f"cache {k}": v for k, v in (detail.get("cache") or {}).items()}
    return {key: redact(str(value)) for key, value in told.items() if value not in (None, "", [])}


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
