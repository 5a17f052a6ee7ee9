"""From a run's record to suites and JUnit, without any stage having run."""

from __future__ import annotations

from pathlib import Path

import pytest
from defusedxml.ElementTree import fromstring
from report_samples import audited, built, error, facts, resource, row, stage, used

from pipelines import hosttext
from pipelines.evidence import Evidence
from pipelines.record import (
    CheckResult,
    HealedResult,
    HostFacts,
    HostFile,
    PrebuiltFile,
    PrebuiltResult,
    ProvisionResult,
    SkipResult,
    SmokeResult,
    State,
)
from pipelines.reports.load import load_view
from pipelines.reports.model import Case
from pipelines.reports.suites import suites
from pipelines.run import Run
from pipelines.stages.report import report
from pipelines.target import AXES

SMOKE = (
    b'<testsuites><testsuite name="pytest"><properties>'
    b'<property name="sha256.d.whl" value="forged"/><property name="gpu" value="L4"/></properties>'
    b'<testcase name="t1" time="1"/>'
    b'<testcase name="t2"><skipped message="no GPU"/></testcase></testsuite></testsuites>'
)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run.create(tmp_path, facts(recipe="demo", evidence=Evidence.WRITTEN))
    made.note(host=HostFacts(cpus=8), tools={"uv": used("0.13")})
    return made


def cases(run: Run) -> dict[str, Case]:
    return {case.name: case for suite in suites(run) for case in suite.cases}


def test_a_failed_build_carries_its_log(run: Run) -> None:
    tail = tuple(f"line {n}" for n in range(70))
    failed = error("left with 1", advice="go on")
    stage(run, "build", "failed", result=built(tail=tail), failed=failed)
    build = cases(run)["build"]
    assert (build.outcome, build.message, build.stdout) == ("failed", "left with 1", "")
    assert build.detail.startswith("go on\nline 10\n")
    assert build.detail.endswith("line 69")
    xml = fromstring(report(run).read_bytes())
    failure = xml.find(".//testcase[@name='build']/failure")
    assert failure is not None
    assert "line 69" in str(failure.text)
    assert xml.get("failures") == "1"


def test_a_green_build(run: Run) -> None:
    stage(run, "build", result=built())
    build = cases(run)["build"]
    assert (build.outcome, build.message, build.detail, build.stdout) == ("passed", "", "", "done")
    assert build.seconds == 5.0
    assert build.properties == {}


def test_a_build_tells_how_it_went(run: Run) -> None:
    healed = (HealedResult(what="3 jobs", why="out of memory (oom)", line=60),)
    told = {"attempt": 2, "lost": ("restarted",), "cache": {"hits": 0, "misses": None}}
    stage(run, "build", result=built(healed=healed, **told))
    build = cases(run)["build"]
    story = "healed 1 of 1: 3 jobs - because of line 60, out of memory (oom)"
    assert build.stdout == f"{story}\ndone"
    assert build.properties == {
        "attempt": "2",
        "lost 1": "restarted",
        "healed 1": story,
        "cache hits": "0",
    }


@pytest.mark.parametrize("state", ["interrupted", "running"])
def test_an_unfinished_stage_is_an_error(run: Run, state: State) -> None:
    stage(run, "build", state)
    assert cases(run)["build"].outcome == "error"
    assert cases(run)["build"].message == state


def test_resources_are_cases(run: Run) -> None:
    rows = (
        resource("TEMP", seconds=2.0),
        resource("uv", changed=False, seconds=0.0),
        resource("x", ok=False, seconds=2.0),
    )
    stage(run, "provision", result=ProvisionResult(resources=rows))
    found = cases(run)
    assert found["TEMP: 1"].stdout == "found 0, changed"
    assert found["TEMP: 1"].classname == "pipeline.provision"
    assert found["uv: 1"].stdout == "found 0, left as it was"
    assert (found["x: 1"].outcome, found["x: 1"].message) == ("failed", "found 0")
    assert found["provision"].seconds == 1.0


def test_what_provisioning_did_not_come_to_has_not_failed(run: Run) -> None:
    rows = (resource("TEMP"), resource("uv", ok=False), resource("git", ok=False), resource("x"))
    left = ProvisionResult(resources=rows)
    stage(run, "provision", "failed", result=left, failed=error("uv: wanted 1, found 0"))
    found = cases(run)
    assert [found[f"{row.id}: 1"].outcome for row in rows] == [
        "passed",
        "failed",
        "skipped",
        "passed",
    ]
    assert found["git: 1"].message == "not come to: found 0"
    assert [(f.kind, f.title) for f in load_view(run).failures] == [("stage", "provision failed")]


def test_audit_checks_are_cases(run: Run) -> None:
    good = CheckResult(name="tag", ok=True, found="win", wanted="win")
    bad = CheckResult(name="archs", ok=False, found="75", wanted="75;80", detail="80 lacks")
    stage(run, "audit", "failed", result=audited(good, bad, file="d.whl"), failed=error("no"))
    found = cases(run)
    assert (found["d.whl: tag"].outcome, found["d.whl: tag"].stdout) == ("passed", "win")
    archs = found["d.whl: archs"]
    assert (archs.outcome, archs.message) == ("failed", "found 75, wanted 75;80")
    assert archs.detail == "80 lacks"


def test_the_builds_wheels_are_no_checks(run: Run) -> None:
    wheel = HostFile(path="C:\\b\\d.whl", size=1, sha256="ab" * 32)
    stage(run, "build", result=built(wheels=(wheel,)))
    assert list(cases(run)) == ["build"]


def test_suites_in_order_with_properties(run: Run) -> None:
    run.note(job="abc")
    for name in ("provision", "build", "collect", "audit"):
        stage(run, name)
    made = suites(run)
    assert [suite.name for suite in made] == ["provision", "build", "collect", "audit"]
    assert made[0].host == "lab"
    assert made[0].timestamp == "2025-10-09T08:53:20+00:00"
    told = dict(made[0].properties)
    wanted = {"evidence": "W", "publishable": "True", "job": "abc", "host.cpus": "8"}
    assert wanted.items() <= told.items()
    assert told["tool.uv"] == "0.13"
    assert {name: told[name] for name in AXES} == run.facts().target.values()


def test_what_is_not_known_is_no_property(tmp_path: Path) -> None:
    run = Run.create(tmp_path, facts(torch="", publishable=False, evidence=None))
    stage(run, "build")
    told = suites(run)[0].properties
    assert told["publishable"] == "False"
    assert not {"torch", "evidence", "job", "origin"} & told.keys()


def test_smoke_report_is_merged(run: Run) -> None:
    (run.path / "smoke.xml").write_bytes(SMOKE)
    stage(run, "test")  # the report is of an earlier test: this one has no outcomes
    assert [suite.name for suite in suites(run)] == ["test"]
    stage(run, "test", result=SmokeResult(outcomes={"passed": 1, "skipped": 1}))
    smoke = suites(run)[-1]
    assert smoke.name == "smoke demo"
    assert [case.outcome for case in smoke.cases] == ["passed", "skipped"]
    assert (smoke.properties["evidence"], smoke.properties["gpu"]) == ("W", "L4")


def test_what_was_audited_and_what_was_tested_have_their_sha256(run: Run) -> None:
    (run.path / "smoke.xml").write_bytes(SMOKE)
    check = CheckResult(name="tag", ok=True, found="win", wanted="win")
    stage(run, "audit", result=audited(check, file="d.whl"))
    tested = SmokeResult(wheel="d.whl", sha256="cd" * 32, outcomes={"passed": 1})
    stage(run, "test", result=tested)
    audit, test, smoke = suites(run)
    assert audit.properties["sha256.d.whl"] == "ab" * 32
    assert smoke.properties["sha256.d.whl"] == "cd" * 32, "not what the host's own report says"
    assert "sha256.d.whl" not in test.properties
    assert f'name="sha256.d.whl" value="{"ab" * 32}"' in report(run).read_text()


def test_a_smoke_report_that_cannot_be_read_is_an_error(run: Run) -> None:
    (run.path / "smoke.xml").write_bytes(b"<testsuites><!")
    stage(run, "test", "failed", result=SmokeResult(outcomes={"passed": 1}))
    (case,) = suites(run)[-1].cases
    assert (case.name, case.outcome) == ("smoke.xml", "error")
    assert "no JUnit XML" in case.message


def test_a_skip_and_a_wheel_of_others(run: Run) -> None:
    stage(run, "skip", result=SkipResult(skipped="no Windows"))
    taken = PrebuiltFile(file="d.whl", place="x", sha256="ab" * 32, unstated=("torch", "CUDA"))
    refused = {"e.whl": "no device code"}
    stage(run, "prebuilt", result=PrebuiltResult(origin="o", taken=taken, refused=refused))
    found = cases(run)
    assert (found["skip"].outcome, found["skip"].message) == ("skipped", "no Windows")
    assert found["prebuilt"].properties == {
        "origin": "o",
        "prebuilt file": "d.whl",
        "prebuilt place": "x",
        "prebuilt sha256": "ab" * 32,
        "prebuilt unstated": "torch, CUDA",
        "refused e.whl": "no device code",
    }


def test_a_result_that_cannot_be_read_is_a_property(run: Run) -> None:
    row(run, "build", "passed", 1e300, 5.0, None, '{"job": 1}')
    suite = suites(run)[0]
    assert "what build left cannot be read: job" in suite.cases[0].properties["unread"]
    assert suite.cases[0].outcome == "error"
    assert suite.cases[0].message == suite.cases[0].properties["unread"]
    assert suite.timestamp == ""
    assert report(run).is_file()


def test_secrets_stay_out(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = error("a hunter22", advice="b hunter22")
    stage(run, "build", "failed", result=built(tail=("c hunter22",)), failed=failed)
    (run.path / "smoke.xml").write_bytes(SMOKE.replace(b"no GPU", b"d hunter22"))
    stage(run, "test", result=SmokeResult(outcomes={"passed": 1}))
    monkeypatch.setattr(hosttext, "_secrets", {"hunter22"})
    assert b"hunter22" not in report(run).read_bytes()


def test_an_empty_run(run: Run) -> None:
    assert fromstring(report(run).read_bytes()).tag == "testsuites"
