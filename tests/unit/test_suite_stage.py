"""The smoke test as a stage: what the host is given, what is no success, what is left there."""

from __future__ import annotations

import html
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from plans import Lab, at_desk, audited, changed, plan_for
from sessions import Here
from wheels import HERE, NAME, wheel_here

from pipelines.core.console import console
from pipelines.core.errors import ConfigError, HostError, RemoteError, SmokeError
from pipelines.core.evidence import Bridge, Evidence
from pipelines.core.files import sha256_of
from pipelines.hosts.base import GpuWay
from pipelines.hosts.gpus import by_bridge, by_vfio, host_gpu_way
from pipelines.recipe.suite import suite_of
from pipelines.record.results import AuditedFile, SmokeResult
from pipelines.remote.jobs import follow, launch
from pipelines.reports.brief import brief_of
from pipelines.reports.load import load_view, stand_in_of
from pipelines.reports.terminal import render
from pipelines.session.base import UnfitHostError
from pipelines.stages.line import TEST, Line, run_test
from pipelines.stages.test import suite_expectations, suite_wheel_paths

REPORT = '<testsuites><testsuite name="s">{}</testsuite></testsuites>'
PASSED, FAILED = '<testcase name="a"/>', '<testcase name="b"><failure message="no"/></testcase>'
BROKEN = '<testcase name="c"><error message="at set-up"/></testcase>'
SKIPPED = '<testcase name="d"><skipped message="no GPU"/></testcase>'


class Suite:
    """A suite on the host: its cases, its exit code; what it was given."""

    def __init__(self, cases: str | None, code: int = 0, **more: Any) -> None:
        self.cases, self.code, self.more = cases, code, more
        self.specs: list[dict[str, Any]] = []
        self.said = b"collected\n"

    def __call__(self, spec: dict[str, Any]) -> Iterator[Any]:
        self.specs.append(spec)
        yield self.said
        junit = Path(spec["directory"]) / "junit.xml"
        junit.parent.mkdir(parents=True)
        if self.cases is not None:
            junit.write_text(REPORT.format(self.cases))
        yield {
            "exit": self.code,
            "step": "pytest",
            "junit": None if self.cases is None else str(junit),
            "timed_out": False,
            **self.more,
        }


def at_test(tmp_path: Path, job: Any, **recipe: Any) -> tuple[Line, Here]:
    """A line whose wheel is about to be tested."""
    line, session = at_desk(tmp_path, job, **recipe)
    audited(line, wheel_here(tmp_path))
    return line, session


def kept(line: Line) -> SmokeResult:
    result = line.run.result(SmokeResult)
    assert result is not None
    return result


def failed(line: Line, kind: type[BaseException], said: str) -> SmokeResult:
    """What is kept of a test that does not succeed."""
    with pytest.raises(kind, match=said):
        line.do(TEST)
    return kept(line)


def there(line: Line) -> list[str]:
    """What is left on the host."""
    root = Path(line.plan.layout.build_root)
    return [path.name.partition("-")[0] for path in root.glob("*")]


def test_a_suite_that_passes(tmp_path: Path) -> None:
    suite = Suite(PASSED + SKIPPED)
    line, session = at_test(tmp_path, suite)
    path = run_test(line)
    done = kept(line)
    assert (done.wheel, done.exit, done.step) == (HERE, 0, "pytest")
    assert done.sha256 == sha256_of(path / "wheels" / HERE)
    assert done.outcomes == {"passed": 1, "skipped": 1}
    assert done.tail == ("collected",)
    assert (path / "smoke.xml").read_text() == REPORT.format(PASSED + SKIPPED)
    assert "no GPU" in (path / "junit.xml").read_text()
    assert there(line) == [], "nothing is left on the host"
    (spec,) = suite.specs
    assert session.sent == [spec["wheel"]]
    assert (spec["system"], spec["packages"]) == (True, [])


@pytest.mark.parametrize(
    ("cases", "code", "said"),
    [
        (PASSED + FAILED, 1, r"1 of 2 smoke cases failed \(pytest exited with 1\)"),
        (PASSED + FAILED, 0, "1 of 2 smoke cases failed"),
        (PASSED + BROKEN, 0, "1 of 2 smoke cases failed"),
        (PASSED, 4, r"0 of 1 smoke cases failed \(pytest exited with 4\)"),  # a hook's error, say
        ("", 0, "ran no cases"),
        (SKIPPED, 0, "all 1 smoke cases were skipped: nothing was tested"),
        (None, -11, "pytest exited with -11 without a report:\ncollected"),
    ],
)
def test_suites_that_are_no_success(
    tmp_path: Path, cases: str | None, code: int, said: str
) -> None:
    line, _ = at_test(tmp_path, Suite(cases, code))
    kept = failed(line, SmokeError, said)
    assert (kept.exit, kept.step) == (code, "pytest")
    assert sum(kept.outcomes.values()) == (cases or "").count("<testcase")
    assert there(line) == [], "the next one begins anew"


BLOCKED = "DLL load failed while importing x: An Application Control policy has blocked this file."


@pytest.mark.parametrize("reported", [True, False])
def test_what_a_policy_blocks_is_no_fault_of_the_wheel(tmp_path: Path, reported: bool) -> None:
    """It is the host's, a fleet takes another one; and once it is fit, the suite is run again."""
    case = f'<testcase name="b"><failure message="no">{BLOCKED}</failure></testcase>'
    suite = Suite(PASSED + case if reported else None, 1)
    if not reported:
        suite.said = f"{BLOCKED}\n".encode()
    line, _ = at_test(tmp_path, suite)
    failed(line, UnfitHostError, "says nothing about the wheel.*policy has blocked")
    assert there(line) == []
    error = line.run.stages()[TEST.name].error
    assert error is not None
    assert error.kind == "HostError"


def test_a_suite_that_runs_out_of_time(tmp_path: Path) -> None:
    line, _ = at_test(tmp_path, Suite(None, 1, timed_out=True, step="install"))
    failed(line, SmokeError, "install ran out of time without a report")


@pytest.mark.parametrize("lie", [{"exit": "x"}, {"step": 5}, {"junit": "x" * 2000}])
def test_a_host_that_tells_nonsense(tmp_path: Path, lie: dict[str, Any]) -> None:
    line, _ = at_test(tmp_path, Suite(PASSED, **lie))
    failed(line, HostError, "an invalid test result")


def test_a_suite_that_is_interrupted_goes_on_there(tmp_path: Path) -> None:
    def left(spec: dict[str, Any]) -> Iterator[Any]:
        yield b"a line\n"
        raise KeyboardInterrupt

    line, _ = at_test(tmp_path, left)
    kept = failed(line, KeyboardInterrupt, "^")
    assert kept.tail == ("a line",)
    assert there(line) == ["smoke"]


def test_a_suite_whose_host_is_lost_is_still_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get(*_: object, **__: object) -> str:
        raise HostError("gone")

    monkeypatch.setattr(Here, "get", get)
    suite = Suite(PASSED)
    line, _ = at_test(tmp_path, suite)
    failed(line, HostError, "gone")
    monkeypatch.undo()
    line.do(TEST)
    assert len(suite.specs) == 1, "it is not run again"


def test_a_suite_with_other_packages_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the first one has ended well on its host: it has imported others."""

    def get(*_: object, **__: object) -> str:
        raise HostError("gone")

    suite = Suite(PASSED)
    line, _ = at_test(tmp_path, suite)
    line.plan.host.existing = None
    with monkeypatch.context() as lost:
        lost.setattr(Here, "get", get)
        failed(line, HostError, "gone")
    more = line.plan.recipe.model_copy(update={"test_requires": ("numpy",)})
    line.plan = changed(line.plan, recipe=more)
    line.do(TEST)
    first, second = suite.specs
    assert len(first["packages"]) < len(second["packages"])


def test_a_suite_that_cannot_be_run(tmp_path: Path) -> None:
    def start(**_: object) -> None:
        raise RemoteError("no such thing", kind="OSError")

    line, session = at_test(tmp_path, None)
    session.answers[launch.start] = start
    failed(line, SmokeError, "could not be run: no such thing")


def test_a_suite_that_was_cancelled(tmp_path: Path) -> None:
    line, session = at_test(tmp_path, Suite(PASSED))
    begun = session.answers[follow.follow]

    def cancelled(**given: Any) -> Iterator[Any]:
        *log, end = begun(**given)
        yield from log
        yield end | {"result": end["result"] | {"cancelled": True}}

    session.answers[follow.follow] = cancelled
    failed(line, SmokeError, "cancelled on desk")


def test_another_suite_is_another_job(tmp_path: Path) -> None:
    """A recipe that was mended is not tested by what it said before."""
    suite = Suite(PASSED)
    line, _ = at_test(tmp_path, suite)
    line.do(TEST)
    mended = line.plan.recipe.model_copy(update={"verify": "import pkg; assert pkg"})
    line.plan = changed(line.plan, recipe=mended)
    line.do(TEST)
    first, second = suite.specs
    assert first["directory"] != second["directory"]
    assert first["expect"] != second["expect"]


def test_what_is_no_wheel_is_refused_before_the_host_is_asked(tmp_path: Path) -> None:
    line, session = at_test(tmp_path, None, kind="cargo")
    with pytest.raises(ConfigError, match="builds no wheel, so there is nothing"):
        run_test(line)
    assert session.sent == []
    assert line.provisioned is None


@pytest.mark.parametrize("names", [(), (HERE, NAME)])
def test_one_wheel_is_tested(tmp_path: Path, names: tuple[str, ...]) -> None:
    line, session = at_test(tmp_path, None)
    folder = line.run.path / "wheels"
    (folder / HERE).unlink()
    for name in names:
        (folder / name).write_bytes(b"x")
    with pytest.raises(ConfigError, match=rf"has {len(names)} wheels, expected one"):
        line.do(TEST)
    assert session.sent == []


# -- what the suite gets ---------------------------------------------------------------------------


def test_what_the_wheel_is_compared_with(tmp_path: Path) -> None:
    axes = {"recipe": "flash-attn", "python": "3.12", "archs": "80;90+PTX"}
    plan = plan_for(tmp_path, Lab(Here()), **axes)
    audited = AuditedFile(file=NAME, sha256="0" * 64, version="2.8.3+cu128torch2.8")
    assert suite_expectations(plan, audited) == {
        "distribution": "flash-attn",
        "version": audited.version,
        "cuda": plan.target.cuda,
        "torch": plan.target.torch,
        "verify": "",
        "archs": ["80", "90"],
        "ptx": ["90"],
        "platform": "win_amd64",
        "gpu": {"asked": "", "count": None, "numbers": [], "bridged": False},
    }
    assert suite_expectations(at_desk(tmp_path)[0].plan, audited)["platform"] is None


GPU0 = {"gpu_count": "1", "gpu0_name": "NVIDIA L4", "gpu0_driver_model": "MCDM"}
GPU0 |= {"system": "Windows 10.0.26100"}
NO_GPU = {"gpu_count": "0", "gpu_unavailable": "no NVIDIA driver"}


def saying(cases: str, properties: dict[str, str]) -> Suite:
    """A suite that says so of its host."""
    rows = "".join(f'<property name="{name}" value="{text}"/>' for name, text in properties.items())
    return Suite(f"<properties>{rows}</properties>{cases}")


def with_gpu(line: Line, way: GpuWay) -> Line:
    line.plan.host.gpu_way = way
    return line


@pytest.mark.parametrize(
    ("way", "properties", "recorded"),
    [
        (host_gpu_way(True), GPU0, ("the host's own", "gpu: true", "MCDM")),
        (host_gpu_way(None), GPU0, ("the host's own", "", "MCDM")),
        (by_vfio(0, 1), GPU0, ("VFIO in a virtual machine", "gpu: 0", "MCDM")),
        (GpuWay(), GPU0, ("unknown: the host is configured without a GPU", "", "MCDM")),
        (host_gpu_way(None), NO_GPU, ("none", "", "")),
        (GpuWay(), {}, ("", "", "")),
    ],
)
def test_how_the_gpu_came_in_is_recorded(
    tmp_path: Path, way: GpuWay, properties: dict[str, str], recorded: tuple[str, str, str]
) -> None:
    line, _ = at_test(tmp_path, saying(PASSED, properties))
    run_test(with_gpu(line, way))
    done = kept(line)
    assert (done.gpu_way, done.gpu_asked, done.driver_models) == recorded
    assert done.system == properties.get("system", "")
    assert [gpu.name for gpu in done.gpus] == (["NVIDIA L4"] if "gpu0_name" in properties else [])


def test_a_gpu_that_was_asked_for_and_is_not_there(tmp_path: Path) -> None:
    """However many cases passed without one; the reports say so as well."""
    line, _ = at_test(tmp_path, saying(PASSED + SKIPPED, NO_GPU))
    said = "gpu: true was requested, but the smoke suite reports no GPU"
    with pytest.raises(SmokeError, match=said):
        run_test(with_gpu(line, host_gpu_way(True)))
    done = kept(line)
    assert (done.gpu_way, done.gpu_asked, done.gpus) == ("none", "gpu: true", ())
    view = load_view(line.run)
    assert view.verdict == "failed"
    assert view.gpu_summary == "none, although gpu: true was requested"
    assert view.gpu_summary in (line.run.path / "report.html").read_text()
    with console.capture() as shown:
        console.print(render([view]))
    assert f"GPU: {view.gpu_summary}" in shown.get()
    assert r"although gpu\: true was requested" in (line.run.path / "summary.md").read_text()
    assert 'name="gpu_asked" value="gpu: true"' in (line.run.path / "junit.xml").read_text()


TOLD = "1 libcuda.so.1"
ON_GPU = GPU0 | {"gpu0_driver_model": "Linux", "gpu_cases": "1"}


def bridging(line: Line, evidence: Evidence = Evidence.BINARIES, **known: Any) -> Line:
    """The line with a host that has a bridge, of which a run began at this level."""
    about = Bridge(driver="580.1", cuda="13.0", built=True, selftest="as without", **known)
    line.plan.host.bridge = lambda: about  # type: ignore[method-assign]
    line.run.note(evidence=evidence)
    return with_gpu(line, by_bridge("bridge"))


def test_a_run_on_a_gpu_through_a_bridge(tmp_path: Path) -> None:
    """Its level is in the record's readers alone, and so never of another test than the last."""
    suite = saying(PASSED, ON_GPU | {"driver_bridge": TOLD})
    line, _ = at_test(tmp_path, suite)
    line = bridging(line, warnings=("table 0a1b is not known",))
    path = run_test(line)
    done = kept(line)
    assert done.bridge == Bridge(
        name=TOLD,
        cases=1,
        driver="580.1",
        cuda="13.0",
        built=True,
        selftest="as without",
        warnings=("table 0a1b is not known",),
    )
    view = load_view(line.run)
    assert view.evidence is Evidence.BRIDGED
    words = (
        "genuine Windows wheel and Python on a real GPU; Wine for Windows, NVIDIA's Linux driver"
    )
    unshown = "not covered: Windows' driver and its models (WDDM, TCC, MCDM), its time-out"
    page = html.unescape((path / "report.html").read_text())
    summary = (path / "summary.md").read_text().replace("\\", "")
    with console.capture() as shown:
        console.print(render([view]))
    for text in (page, summary, " ".join(shown.get().split())):
        assert f"evidence: {words}" in text
        assert unshown in text
        assert "table 0a1b is not known" in text
    assert brief_of(line.run).facts.evidence == "B + GPU"
    assert json.loads((path / "manifest.json").read_text())["evidence"] == "B + GPU"
    junit = (path / "junit.xml").read_text()
    for name, value in (
        ("evidence", "B + GPU"),
        ("bridge", TOLD),
        ("bridge driver", "580.1, CUDA 13.0"),
        ("bridge selftest", "as without"),
        ("bridge warning 1", "table 0a1b is not known"),
    ):
        assert f'name="{name}" value="{value}"' in junit
    assert line.run.facts().evidence is Evidence.BINARIES, "of the host, by which runs are taken up"
    with_gpu(line, GpuWay()).plan.host.bridge = lambda: None  # type: ignore[method-assign]
    suite.cases = PASSED
    line.do(TEST)
    assert load_view(line.run).evidence is Evidence.BINARIES, "the last test had no GPU"


@pytest.mark.parametrize(
    ("properties", "evidence"),
    [
        (ON_GPU | {"gpu_cases": "0"}, Evidence.BINARIES),
        ({**GPU0}, Evidence.BINARIES),
        (ON_GPU | {"gpu_cases": "many"}, Evidence.BINARIES),
        (ON_GPU | {"gpu_cases": "-1"}, Evidence.BINARIES),
        (ON_GPU | {"gpu_cases": "2"}, Evidence.BINARIES),  # one has passed
        (ON_GPU | {"gpu_cases": "1"}, Evidence.BRIDGED),
    ],
)
def test_without_a_case_on_the_gpu_nothing_is_claimed(
    tmp_path: Path, properties: dict[str, str], evidence: Evidence
) -> None:
    line, _ = at_test(tmp_path, saying(PASSED, properties | {"driver_bridge": TOLD}))
    run_test(bridging(line))
    view = load_view(line.run)
    assert view.evidence is evidence
    said = [each for each in view.caveats if each.startswith("not tested on the available GPU")]
    assert len(said) == (evidence is Evidence.BINARIES)


@pytest.mark.parametrize(
    ("properties", "instead", "evidence"),
    [
        (GPU0, "", Evidence.GPU),
        (GPU0, "given", Evidence.WRITTEN),
        (NO_GPU, "", Evidence.WRITTEN),
    ],
)
def test_a_gpu_that_was_not_used_is_not_shown(
    tmp_path: Path, properties: dict[str, str], instead: str, evidence: Evidence
) -> None:
    """A host with ``gpu: true`` whose suite saw none, or was an import."""
    line, _ = at_test(tmp_path, saying(PASSED, properties))
    line.run.note(evidence=Evidence.GPU)
    assert load_view(line.run).evidence is Evidence.WRITTEN, "nothing was tested yet"
    run_test(line)
    stage = line.run.stages()["test"]
    done = kept(line)
    changed = done.model_copy(update={"instead": instead})
    line.run.put_stage(stage.model_copy(update={"result": changed}))
    assert load_view(line.run).evidence is evidence


@pytest.mark.parametrize(
    "seen",
    [{"driver_version": "999.9"}, {"gpu0_name": "NVIDIA Pretended"}],
    ids=["another-driver", "another-gpu"],
)
def test_what_is_told_through_the_bridge_is_compared(tmp_path: Path, seen: dict[str, str]) -> None:
    """With the driver and GPUs that this machine has."""
    line, _ = at_test(tmp_path, saying(PASSED, ON_GPU | {"driver_bridge": TOLD} | seen))
    with pytest.raises(SmokeError, match=r"saw .*, but this machine has"):
        run_test(bridging(line, gpus=("GPU 0: NVIDIA L4 (8.9, 22 GiB)",)))
    assert load_view(line.run).evidence is Evidence.BINARIES


def test_a_bridge_that_was_not_tested_shows_nothing(tmp_path: Path) -> None:
    line, _ = at_test(tmp_path, saying(PASSED, ON_GPU | {"driver_bridge": TOLD}))
    line = bridging(line)
    line.plan.host.bridge = lambda: Bridge(driver="580.1", built=True)  # type: ignore[method-assign]
    run_test(line)
    assert load_view(line.run).evidence is Evidence.BINARIES


def test_another_level_is_no_other_because_of_a_bridge(tmp_path: Path) -> None:
    """Of a wheel that another host has built: what that could show is not the sandbox's."""
    line, _ = at_test(tmp_path, saying(PASSED, ON_GPU | {"driver_bridge": TOLD}))
    run_test(bridging(line, Evidence.WRITTEN))
    assert load_view(line.run).evidence is Evidence.WRITTEN


def test_a_bridge_that_was_asked_for_and_is_none(tmp_path: Path) -> None:
    line, _ = at_test(tmp_path, saying(PASSED, ON_GPU))
    with pytest.raises(SmokeError, match="did not identify") as caught:
        run_test(bridging(line))
    assert "invoke doctor --gpu" in caught.value.hint
    assert load_view(line.run).evidence is Evidence.BINARIES


def test_a_bridge_that_nobody_asked_for(tmp_path: Path) -> None:
    line, _ = at_test(tmp_path, saying(PASSED, ON_GPU | {"driver_bridge": TOLD}))
    with pytest.raises(SmokeError, match=r"is a GPU bridge \(1 libcuda.so.1\), which was not"):
        run_test(with_gpu(line, host_gpu_way(True)))


def test_a_sandbox_without_a_bridge_cannot_say_that_it_has_one(tmp_path: Path) -> None:
    """Neither does the report of what failed because of that."""
    line, _ = at_test(tmp_path, saying(PASSED, ON_GPU | {"driver_bridge": TOLD}))
    line.run.note(evidence=Evidence.BINARIES)
    with pytest.raises(SmokeError, match="which was not requested"):
        run_test(with_gpu(line, GpuWay()))
    assert load_view(line.run).evidence is Evidence.BINARIES
    assert "B + GPU" not in (line.run.path / "report.html").read_text()


def test_a_bridge_without_a_gpu_is_no_success(tmp_path: Path) -> None:
    line, _ = at_test(tmp_path, saying(PASSED, NO_GPU | {"driver_bridge": TOLD}))
    with pytest.raises(SmokeError, match="gpu: bridge was requested, but the smoke suite reports"):
        run_test(bridging(line))
    done = kept(line)
    assert done.bridge is not None
    assert (done.bridge.name, done.bridge.cases) == ("", 0)


def test_what_a_bridge_is_called_is_harmless(tmp_path: Path) -> None:
    evil = "\\x1b[31m" * 100
    line, _ = at_test(tmp_path, saying(PASSED, ON_GPU | {"driver_bridge": evil}))
    run_test(bridging(line))
    done = kept(line)
    assert done.bridge is not None
    assert len(done.bridge.name) < 200


def test_the_suite_is_told_that_a_bridge_is_asked_for(tmp_path: Path) -> None:
    suite = saying(PASSED, ON_GPU | {"driver_bridge": TOLD})
    line, _ = at_test(tmp_path, suite)
    run_test(with_gpu(bridging(line), by_bridge("bridge:1")))
    (spec,) = suite.specs
    assert spec["environment"]["CUDA_VISIBLE_DEVICES"] == "1"
    assert spec["expect"]["gpu"] == {
        "asked": "gpu: bridge:1",
        "count": 1,
        "numbers": [1],
        "bridged": True,
    }


def test_which_gpus_the_suite_may_see(tmp_path: Path) -> None:
    suite = saying(PASSED, GPU0)
    line, _ = at_test(tmp_path, suite)
    run_test(with_gpu(line, host_gpu_way(1)))
    (spec,) = suite.specs
    assert spec["environment"]["CUDA_VISIBLE_DEVICES"] == "1"
    assert spec["environment"]["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert spec["expect"]["gpu"] == {
        "asked": "gpu: 1",
        "count": 1,
        "numbers": [1],
        "bridged": False,
    }


def test_what_the_suite_imports_is_pinned(tmp_path: Path) -> None:
    plan = plan_for(tmp_path, Lab(Here()))
    lock = plan.cache.lock
    assert f"C:\\w\\{lock.tool('pytest').file}" in suite_wheel_paths(plan)
    assert all(path.endswith(".whl") for path in suite_wheel_paths(plan))


def test_where_the_suite_has_its_temporary_files(tmp_path: Path) -> None:
    suite = Suite(PASSED)
    line, _ = at_test(tmp_path, suite)
    line.do(TEST)
    environment = suite.specs[0]["environment"]
    assert environment["TEMP"] == environment["TMP"] == line.plan.layout.temp


def test_a_host_of_ours_has_its_packages_installed(tmp_path: Path) -> None:
    suite = Suite(PASSED)
    line, _ = at_test(tmp_path, suite)
    line.plan.host.existing = None
    line.do(TEST)
    (spec,) = suite.specs
    assert not spec["system"]
    assert Path(spec["packages"][0]).match("w/pytest-*.whl")
    assert Path(spec["packages"][1]).match("w/pytest_xdist-*.whl")


def test_a_suite_is_shipped_whole(tmp_path: Path) -> None:
    recipe = plan_for(tmp_path).recipe
    shipped = suite_of(recipe).files
    assert {"fatbin.py", "conftest.py", "pytest.ini"} <= shipped.keys()
    assert any(name.startswith("test_") for name in shipped)
    json.dumps(shipped)


# -- tests of your own -----------------------------------------------------------------------------

MINE = '<testcase classname="own.test_a" name="test_mine"/>'


def own_tests(tmp_path: Path, *names: str) -> dict[str, Any]:
    """What a recipe says of a suite of files with these names."""
    folder = tmp_path / "own tests"
    folder.mkdir()
    for name in names:
        (folder / name).write_text("def test_mine(): pass\n")
    return {"smoke": str(folder)}


def test_own_tests_are_run_whole(tmp_path: Path) -> None:
    suite = Suite(PASSED + MINE)
    line, _ = at_test(tmp_path, suite, **own_tests(tmp_path, "test_a.py"))
    line.do(TEST)
    done = kept(line)
    assert done.limits == ""
    assert suite.specs[0]["suite"]["own/test_a.py"] == "def test_mine(): pass\n"
    assert suite.specs[0]["expect"]["verify"] == "", "the suite stands for it"


def test_a_shared_part_alone_is_no_test_of_yours(tmp_path: Path) -> None:
    line, _ = at_test(tmp_path, Suite(PASSED), **own_tests(tmp_path, "test_a.py"))
    failed(line, SmokeError, "none of your own tests ran")


def test_own_tests_that_were_all_skipped_are_no_test(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    idle = (
        '<testcase classname="own.test_a" name="test_mine"><skipped message="no GPU"/></testcase>'
    )
    line, _ = at_test(tmp_path, Suite(PASSED + idle), **own_tests(tmp_path, "test_a.py"))
    path = run_test(line)
    done = kept(line)
    assert done.limits == "all of your own tests were skipped"
    assert done.limits in capsys.readouterr().out
    assert done.limits in (path / "junit.xml").read_text()
    assert stand_in_of(done) == "own tests skipped"


def test_tests_that_would_test_themselves_are_refused(tmp_path: Path) -> None:
    suite = Suite(PASSED + MINE)
    with zipfile.ZipFile(wheel_here(tmp_path)) as archive:
        top = archive.namelist()[0].partition("/")[0].partition(".")[0]
    line, session = at_test(tmp_path, suite, **own_tests(tmp_path, "test_a.py", f"{top}.py"))
    with pytest.raises(ConfigError, match=rf"import own/{top}.py instead of what is in"):
        line.do(TEST)
    assert session.sent == []


def test_without_a_suite_it_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line, _ = at_test(tmp_path, Suite(PASSED), verify="")
    line.do(TEST)
    done = kept(line)
    assert done.instead == "import"
    assert "only the import of its modules was tested" in capsys.readouterr().out


def test_a_suite_that_resets_of_the_driver_have_spoiled_says_nothing_of_the_wheel(
    tmp_path: Path,
) -> None:
    resets = ["Display driver nvlddmkm"]
    line, _ = at_test(tmp_path, Suite(PASSED + FAILED, 1, resets=resets))
    with pytest.raises(HostError, match="nvlddmkm"):
        line.do(TEST)


@pytest.mark.parametrize(
    ("step", "code", "printed", "said"),
    [
        ("pytest", 4, "E ModuleNotFoundError: No module named 'torch.nn'", "there: torch. Unless"),
        ("pytest", 1, "No module named pytest", "pytest could not start"),
        ("pytest", -11, "", "Python crashed"),
        ("pytest", 0xC0000005, "", "Python crashed"),
        ("install", 1, "no version of numpy", "could not be installed"),
        (
            "install",
            1,
            "  Because numpy was not found in the provided package locations and demo==1.0 "
            "depends on numpy>=1, we can conclude that demo==1.0 cannot be used.",
            "test_requires: [numpy]",
        ),
        ("install", 1, "ERROR: No matching distribution found for Num_Py>=1", "[num-py]"),
        ("venv", 2, "Failed to query Python", "could not create an environment"),
    ],
)
def test_what_is_said_of_a_suite_without_a_report(
    tmp_path: Path, step: str, code: int, printed: str, said: str
) -> None:
    def ends(spec: dict[str, Any]) -> Iterator[Any]:
        yield f"{printed}\n".encode()
        yield {"exit": code, "step": step, "junit": None, "timed_out": False}

    line, _ = at_test(tmp_path, ends)
    with pytest.raises(SmokeError, match="without a report") as caught:
        line.do(TEST)
    assert said in caught.value.hint
    assert ("crash" in caught.value.hint) == ("crash" in said)


def test_a_missing_module_of_a_case_has_its_cure(tmp_path: Path) -> None:
    text = "E ModuleNotFoundError: No module named 'numpy'"
    case = (
        f'<testcase name="own.test_n"><error message="collection failure">{text}</error></testcase>'
    )
    line, _ = at_test(tmp_path, Suite(PASSED + case, 1))
    with pytest.raises(SmokeError, match="1 of 2 smoke cases failed") as caught:
        line.do(TEST)
    assert caught.value.hint.startswith("Not installed there: numpy.")
    assert "test_requires" in caught.value.hint
