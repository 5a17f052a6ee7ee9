"""From a run's record to suites and JUnit, without any stage having run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from defusedxml.ElementTree import fromstring

from pipelines import hosttext
from pipelines.reports.model import Case
from pipelines.run import Run, StageRecord
from pipelines.stages.report import publish, suites

FACTS: dict[str, Any] = {
    "host": "lab",
    "recipe": "demo",
    "python": "3.11",
    "cuda": "13.0",
    "archs": "75;80",
    "evidence": "W",
    "publishable": True,
}
SMOKE = (
    b'<testsuites><testsuite name="pytest"><testcase name="t1" time="1"/>'
    b'<testcase name="t2"><skipped message="no GPU"/></testcase></testsuite></testsuites>'
)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run.create(tmp_path, "demo-cp311", FACTS)
    made.note(host_facts={"cpus": 8}, tools={"uv": "0.13"})
    return made


def put(run: Run, name: str, state: Any = "passed", **detail: Any) -> None:
    run.put_stage(StageRecord(name, state, 1700000000.0 + len(run.stages()), 5.0, detail))


def cases(run: Run) -> dict[str, Case]:
    return {case.name: case for suite in suites(run) for case in suite.cases}


def resource(name: str, **changes: Any) -> dict[str, Any]:
    row = {"id": name, "wanted": "1", "found": "0", "why": "w"}
    return {**row, "changed": True, "ok": True, "seconds": 2.0, **changes}


def test_a_failed_build_carries_its_log(run: Run) -> None:
    tail = [f"line {n}" for n in range(70)]
    put(run, "build", "failed", error="left with 1", advice="go on", kind="build", tail=tail)
    build = cases(run)["build"]
    assert (build.outcome, build.message, build.stdout) == ("failed", "left with 1", "")
    assert build.detail.startswith("go on\nline 10\n")
    assert build.detail.endswith("line 69")
    xml = fromstring(publish(run).read_bytes())
    failure = xml.find(".//testcase[@name='build']/failure")
    assert failure is not None
    assert "line 69" in str(failure.text)
    assert xml.get("failures") == "1"


def test_a_green_build(run: Run) -> None:
    put(run, "build", tail=["done"])
    build = cases(run)["build"]
    assert (build.outcome, build.message, build.detail, build.stdout) == ("passed", "", "", "done")
    assert build.seconds == 5.0


@pytest.mark.parametrize("state", ["interrupted", "running"])
def test_an_unfinished_stage_is_an_error(run: Run, state: str) -> None:
    put(run, "build", state)
    assert cases(run)["build"].outcome == "error"
    assert cases(run)["build"].message == state


def test_resources_are_cases(run: Run) -> None:
    rows = [resource("TEMP"), resource("uv", changed=False, seconds=0.0), resource("x", ok=False)]
    put(run, "provision", resources=rows)
    found = cases(run)
    assert found["TEMP: 1"].stdout == "found 0, changed"
    assert found["TEMP: 1"].classname == "pipeline.provision"
    assert found["uv: 1"].stdout == "found 0, left as it was"
    assert (found["x: 1"].outcome, found["x: 1"].message) == ("failed", "found 0")
    assert found["provision"].seconds == 1.0


def test_audit_checks_are_cases(run: Run) -> None:
    good = {"name": "tag", "ok": True, "found": "win", "wanted": "win", "detail": ""}
    bad = {"name": "archs", "ok": False, "found": "75", "wanted": "75;80", "detail": "80 lacks"}
    put(run, "audit", "failed", wheels=[{"wheel": "d.whl", "checks": [good, bad]}], error="no")
    found = cases(run)
    assert (found["d.whl: tag"].outcome, found["d.whl: tag"].stdout) == ("passed", "win")
    archs = found["d.whl: archs"]
    assert (archs.outcome, archs.message) == ("failed", "found 75, wanted 75;80")
    assert archs.detail == "80 lacks"


def test_the_builds_wheels_are_no_checks(run: Run) -> None:
    put(run, "build", wheels=[{"path": "C:\\b\\d.whl", "size": 1}])
    assert list(cases(run)) == ["build"]


def test_suites_in_order_with_properties(run: Run) -> None:
    run.note(job="abc")
    for name in ("provision", "build", "collect", "audit"):
        put(run, name)
    made = suites(run)
    assert [suite.name for suite in made] == ["provision", "build", "collect", "audit"]
    assert made[0].host == "lab"
    assert made[0].timestamp == "2023-11-14T22:13:20+00:00"
    wanted = {"evidence": "W", "publishable": "True", "job": "abc", "host.cpus": "8"}
    assert wanted.items() <= dict(made[0].properties).items()
    assert made[0].properties["tool.uv"] == "0.13"


def test_smoke_report_is_merged(run: Run) -> None:
    (run.path / "smoke.xml").write_bytes(SMOKE)
    put(run, "test")  # the report is of an earlier test: this one has no outcomes
    assert [suite.name for suite in suites(run)] == ["test"]
    put(run, "test", outcomes={"passed": 1, "skipped": 1})
    smoke = suites(run)[-1]
    assert smoke.name == "smoke demo"
    assert [case.outcome for case in smoke.cases] == ["passed", "skipped"]
    assert smoke.properties["evidence"] == "W"


def test_secrets_stay_out(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosttext, "_secrets", {"hunter22"})
    put(run, "build", "failed", error="a hunter22", advice="b hunter22", tail=["c hunter22"])
    assert b"hunter22" not in publish(run).read_bytes()


def test_an_empty_run(run: Run) -> None:
    assert fromstring(publish(run).read_bytes()).tag == "testsuites"
