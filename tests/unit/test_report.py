"""From a run's record to suites and JUnit, without any stage having run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import report_samples as samples
from defusedxml.ElementTree import fromstring
from report_samples import audited, built, error, facts, resource, row, stage, used

from pipelines.core import hosttext
from pipelines.core.evidence import Evidence
from pipelines.core.target import AXES
from pipelines.record.diagnosis import HealedResult
from pipelines.record.prebuilt import PrebuiltFile
from pipelines.record.results import (
    HostFacts,
    HostFile,
    PrebuiltResult,
    ProvisionResult,
    SkipResult,
    SmokeResult,
    State,
)
from pipelines.record.run import Run
from pipelines.reports.load import load_view
from pipelines.reports.model import Case
from pipelines.reports.suites import junit_suites
from pipelines.reports.write import write_run_reports

SMOKE = (
    b'<testsuites><testsuite name="pytest"><properties>'
    b'<property name="sha256.d.whl" value="forged"/><property name="gpu" value="L4"/></properties>'
    b'<testcase name="t1" time="1"/>'
    b'<testcase name="t2"><skipped message="no GPU"/></testcase></testsuite></testsuites>'
)
#: Of the run below: what every classname begins with.
PLACE = "demo-2.8.3.cp312-torch2.8-cu128.80-86-89-90.lab"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run.create(tmp_path, facts(recipe="demo", evidence=Evidence.WRITTEN))
    made.note(host=HostFacts(cpus=8), tools={"uv": used("0.13")})
    return made


def cases(run: Run) -> dict[str, Case]:
    return {case.name: case for suite in junit_suites(run) for case in suite.cases}


def test_a_failed_build_carries_its_log(run: Run) -> None:
    tail = tuple(f"line {n}" for n in range(70))
    failed = error("exited with 1", hint="go on")
    stage(run, "build", "failed", result=built(tail=tail), failed=failed)
    build = cases(run)["build"]
    assert (build.outcome, build.message, build.stdout) == ("failed", "exited with 1", "")
    assert build.detail.startswith("go on\nline 10\n")
    assert build.detail.endswith("line 69")
    xml = fromstring(write_run_reports(run).read_bytes())
    failure = xml.find(".//testcase[@name='build']/failure")
    assert failure is not None
    assert "line 69" in str(failure.text)
    assert xml.get("failures") == "1"


def test_a_green_build(run: Run) -> None:
    wheel = HostFile(path="C:\\b\\d.whl", size=1, sha256="ab" * 32)  # which is no check
    stage(run, "build", result=built(wheels=(wheel,)))
    build = cases(run)["build"]
    assert (build.name, build.outcome) == ("build", "passed")
    assert (build.message, build.detail, build.stdout) == ("", "", "done")
    assert build.seconds == 5.0
    assert build.properties == {}


def test_a_build_tells_how_it_went(run: Run) -> None:
    healed = (HealedResult(what="3 jobs", why="out of memory (oom)", line=60),)
    told = {"attempt": 2, "lost": ("restarted",), "cache": {"hits": 0, "misses": None}}
    stage(run, "build", result=built(healed=healed, **told))
    build = cases(run)["build"]
    story = "retry 1 of 1 with 3 jobs (line 60, out of memory (oom))"
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
    assert cases(run)["build"].message == f"unfinished: {state}"


def test_a_build_whose_time_was_up_is_unfinished(run: Run) -> None:
    up = error("ended after 5 minutes", "TimeUpError", "The same command goes on.")
    stage(run, "build", "failed", result=built(), failed=up)
    build = cases(run)["build"]
    assert (build.outcome, build.message) == ("error", "unfinished: ended after 5 minutes")


def test_resources_are_cases(run: Run) -> None:
    rows = (
        resource("TEMP", seconds=2.0),
        resource("uv", changed=False, seconds=0.0),
        resource("x", ok=False, seconds=2.0),
    )
    stage(run, "provision", result=ProvisionResult(resources=rows))
    found = cases(run)
    assert found["TEMP"].stdout == "expected 1, found 0, changed"
    assert found["TEMP"].classname == f"{PLACE}.provision"
    assert found["uv"].stdout == "expected 1, found 0, unchanged"
    assert (found["x"].outcome, found["x"].message) == ("failed", "found 0")
    assert found["provision"].seconds == 1.0


def test_what_provisioning_did_not_come_to_has_not_failed(run: Run) -> None:
    rows = (resource("TEMP"), resource("uv", ok=False), resource("git", ok=False), resource("x"))
    left = ProvisionResult(resources=rows)
    stage(run, "provision", "failed", result=left, failed=error("uv: wanted 1, found 0"))
    found = cases(run)
    assert [found[row.id].outcome for row in rows] == [
        "passed",
        "failed",
        "skipped",
        "passed",
    ]
    assert found["git"].message == "not reached: found 0"
    assert [(f.kind, f.title) for f in load_view(run).failures] == [("stage", "provision failed")]


def test_audit_checks_are_cases(run: Run) -> None:
    good = samples.check("tag", "ok", "win")
    bad = samples.check("archs", "error", "75", "75;80", hint="80 lacks")
    stage(run, "audit", "failed", result=audited(good, bad, file="d.whl"), failed=error("no"))
    found = cases(run)
    assert (found["d.whl: tag"].outcome, found["d.whl: tag"].stdout) == ("passed", "d.whl: ok: win")
    archs = found["d.whl: archs"]
    assert (archs.outcome, archs.message) == ("failed", "75 (expected 75;80)")
    assert archs.detail == "80 lacks"


def keys(run: Run) -> list[tuple[str, str]]:
    """What a tool that keeps a history knows a case by."""
    return [(case.classname, case.name) for suite in junit_suites(run) for case in suite.cases]


def test_names_outlive_the_pins(tmp_path: Path) -> None:
    """A new CUDA patch, another build root, the next commit of a package: the same cases."""

    def made(pin: str) -> Run:
        run = samples.good(tmp_path)
        row = resource("CUDA compiler", wanted=f"C:\\cuda: nvvm {pin}", found=f"nvvm {pin}")
        stage(run, "provision", result=ProvisionResult(resources=(row,)))
        check = samples.check("tags", "ok", pin)
        file = f"flash_attn-2.8.3+cu128torch2.8.{pin}-cp312-cp312-win_amd64.whl"
        stage(run, "audit", result=audited(check, file=file))
        return run

    old, new = made("12.8.61"), made("12.8.93")
    assert keys(old) == keys(new)
    assert not [name for _, name in keys(old) if "12.8" in name or "cuda:" in name]
    assert "12.8.93" in cases(new)["CUDA compiler"].stdout
    assert "12.8.93" in cases(new)["flash_attn: tags"].stdout


def test_merged_cells_have_no_case_in_common(tmp_path: Path) -> None:
    cell: dict[str, Any] = {
        "recipe": "flash-attn",
        "python": "3.12",
        "cuda": "12.8",
        "archs": "80",
        "host": "a",
    }
    others = {"python": "3.13", "cuda": "13.0", "archs": "80+PTX", "host": "b", "version": "2.7"}
    runs = [samples.good(tmp_path, **cell)]
    runs += [samples.good(tmp_path, **(cell | {name: value})) for name, value in others.items()]
    every = [key for run in runs for key in keys(run)]
    assert len(set(every)) == len(every) == 6 * len(keys(runs[0]))
    names = [suite.name for run in runs for suite in junit_suites(run)]
    assert len(set(names)) == len(names)


def failures(run: Run) -> int:
    root = fromstring(write_run_reports(run).read_bytes())
    counted = len(root.findall(".//failure")) + len(root.findall(".//error"))
    assert counted == int(root.get("failures", "")) + int(root.get("errors", ""))
    return counted


def test_a_failure_is_counted_once(run: Run, tmp_path: Path) -> None:
    smoke = samples.failed_smoke(tmp_path)
    assert failures(smoke) == 1
    own = cases(smoke)["test"]
    assert own.outcome == "skipped"
    assert own.message == "see the failed cases: 1 of 13 smoke cases failed"
    bad = samples.check("archs", "error", "75", "80", hint="80 lacks")
    no = error("d.whl is not it", "AuditError", "Ask for others.")
    stage(run, "audit", "failed", result=audited(bad, file="d.whl"), failed=no)
    assert failures(run) == 1
    assert cases(run)["d.whl: archs"].detail == "80 lacks\nAsk for others."
    rows = ProvisionResult(resources=(resource("uv", ok=False),), tail=("its log",))
    no = error("uv: wanted 1, found 0", "ProvisionError", "Mend that.")
    stage(run, "provision", "failed", result=rows, failed=no)
    assert failures(run) == 2
    assert cases(run)["uv"].detail == "uv: wanted 1, found 0\nMend that.\nits log"


def test_a_stage_that_no_case_speaks_for_fails_itself(run: Run) -> None:
    lost = error("connection lost", "HostError", "Try again.")
    rows = ProvisionResult(resources=(resource("uv", ok=False),))
    stage(run, "provision", "failed", result=rows, failed=lost)
    assert cases(run)["provision"].outcome == "failed"
    (run.path / "smoke.xml").write_bytes(SMOKE)
    left = error("0 of 2 smoke cases failed (pytest exited with 5)", "SmokeError")
    stage(run, "test", "failed", result=SmokeResult(outcomes={"passed": 2}), failed=left)
    assert cases(run)["test"].outcome == "failed"


def test_suites_in_order_with_properties(run: Run) -> None:
    run.note(job="abc")
    for name in ("provision", "build", "collect", "audit"):
        stage(run, name)
    made = junit_suites(run)
    assert [suite.name for suite in made] == [
        f"{PLACE}.{name}" for name in ("provision", "build", "collect", "audit")
    ]
    assert made[0].host == "lab"
    assert made[0].timestamp == "2025-10-09T08:53:20+00:00"
    told = dict(made[0].properties)
    wanted = {"evidence": "W", "publishable": "True", "job": "abc", "host.cpus": "8"}
    assert wanted.items() <= told.items()
    assert told["tool.uv"] == "0.13"
    assert {name: told.get(name, "") for name in AXES} == run.facts().target.values()


def test_what_is_not_known_is_no_property(tmp_path: Path) -> None:
    run = Run.create(tmp_path, facts(torch="", publishable=False, evidence=None))
    stage(run, "build")
    told = junit_suites(run)[0].properties
    assert told["publishable"] == "False"
    assert not {"torch", "evidence", "job", "origin"} & told.keys()


def test_smoke_report_is_merged(run: Run) -> None:
    (run.path / "smoke.xml").write_bytes(SMOKE)
    stage(run, "test")  # the report is of an earlier test: this one has no outcomes
    assert [suite.name for suite in junit_suites(run)] == [f"{PLACE}.test", PLACE]
    stage(run, "test", result=SmokeResult(outcomes={"passed": 1, "skipped": 1}))
    smoke = junit_suites(run)[-1]
    assert smoke.name == f"{PLACE}.smoke"
    assert {case.classname for case in smoke.cases} == {f"{PLACE}.smoke"}
    assert [case.outcome for case in smoke.cases] == ["passed", "skipped"]
    assert (smoke.properties["evidence"], smoke.properties["gpu"]) == ("W", "L4")


def test_what_was_audited_and_what_was_tested_have_their_sha256(run: Run) -> None:
    (run.path / "smoke.xml").write_bytes(SMOKE)
    check = samples.check("tag", "ok", "win")
    stage(run, "audit", result=audited(check, file="d.whl"))
    tested = SmokeResult(wheel="d.whl", sha256="cd" * 32, outcomes={"passed": 1})
    stage(run, "test", result=tested)
    audit, test, _, smoke = junit_suites(run)
    assert audit.properties["sha256.d.whl"] == "ab" * 32
    assert smoke.properties["sha256.d.whl"] == "cd" * 32, "not what the host's own report says"
    assert "sha256.d.whl" not in test.properties
    assert f'name="sha256.d.whl" value="{"ab" * 32}"' in write_run_reports(run).read_text()


def test_a_run_that_has_not_passed_is_not_green(tmp_path: Path) -> None:
    """Though each stage in its record has: its wheel was changed, or it ended between two."""

    def errors(run: Run) -> list[str]:
        every = (case for suite in junit_suites(run) for case in suite.cases)
        return [case.message for case in every if case.outcome == "error"]

    run = samples.good(tmp_path)
    assert errors(run) == []
    next(run.path.glob("wheels/*.whl")).write_bytes(b"x")
    assert errors(run) == [load_view(run).headline]
    cut = Run.create(tmp_path, facts())
    stage(cut, "build")
    assert errors(cut) == [load_view(cut).headline]


def test_a_smoke_report_that_cannot_be_read_is_an_error(run: Run) -> None:
    (run.path / "smoke.xml").write_bytes(b"<testsuites><!")
    stage(run, "test", "failed", result=SmokeResult(outcomes={"passed": 1}))
    (case,) = junit_suites(run)[-1].cases
    assert (case.name, case.outcome) == ("smoke.xml", "error")
    assert "not JUnit XML" in case.message


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
    suite = junit_suites(run)[0]
    assert "the result of build cannot be read: job" in suite.cases[0].properties["unread"]
    assert suite.cases[0].outcome == "error"
    assert suite.cases[0].message == suite.cases[0].properties["unread"]
    assert suite.timestamp == ""
    assert write_run_reports(run).is_file()


def test_secrets_stay_out(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = error("a hunter22", hint="b hunter22")
    stage(run, "build", "failed", result=built(tail=("c hunter22",)), failed=failed)
    (run.path / "smoke.xml").write_bytes(SMOKE.replace(b"no GPU", b"d hunter22"))
    stage(run, "test", result=SmokeResult(outcomes={"passed": 1}))
    monkeypatch.setattr(hosttext, "_secrets", {"hunter22"})
    assert b"hunter22" not in write_run_reports(run).read_bytes()


def test_an_empty_run(run: Run) -> None:
    assert fromstring(write_run_reports(run).read_bytes()).tag == "testsuites"
