"""The whole line: once for real, on a kind of host that only this file knows, and its ends.

Nothing outside of this file is told of the kind but the table of kinds: it is a Python on this
machine. The wheel is made of bytes: what is shown is the way of a plan through the stages, not a
compiler.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest
from plans import PYTHON, at_desk, recipe_of
from projects import project
from wheels import HERE, TAGS, fatbin, wheel_here

from pipelines.core.errors import (
    AuditError,
    BuildError,
    ConfigError,
    HostError,
    PipelineError,
    ProvisionError,
    TransferError,
)
from pipelines.core.evidence import Evidence
from pipelines.hosts.base import Capabilities, Existing, Host, HostConfig, OpenOptions
from pipelines.hosts.kinds import KINDS
from pipelines.hosts.live import LiveSession
from pipelines.plan.config.model import Config
from pipelines.plan.matrix import buildplan
from pipelines.plan.matrix.buildplan import Request
from pipelines.record.results import (
    AuditResult,
    BuildResult,
    CollectResult,
    ProvisionResult,
    SmokeResult,
    StageRecord,
    StageResult,
    UsedTool,
)
from pipelines.record.run import Run
from pipelines.remote import builder
from pipelines.reports.load import load_view
from pipelines.session.base import GoneHostError, Session
from pipelines.session.bootstrap import bootstrap_argv
from pipelines.session.channel import open_session
from pipelines.session.transports.popen import PopenStream
from pipelines.stages.hooks import Stage
from pipelines.stages.line import LINE, REMADE, Line, run_build, run_provision, run_test

WHEEL = f"pkg-1.0-{TAGS}.whl"


class Bench(Host):
    """The machine that the tests run on, by a name of its own."""

    capabilities = Capabilities(windows=False, msvc=False, gpu=False, publishable=True)
    evidence = Evidence.SIMULATED

    def __init__(self, name: str, root: str) -> None:
        self.name = name
        self.executable = sys.executable
        self.existing = Existing(root=root)
        self.closed = False

    def connect(self) -> Session:
        def stream() -> PopenStream:
            return PopenStream(bootstrap_argv(self.executable))

        return open_session(stream(), name=self.name, reconnect=stream)

    def restart(self, session: Session) -> Session:
        raise AssertionError("nothing here wants a restart")

    def close(self) -> None:
        self.closed = True


class BenchConfig(HostConfig):
    kind: Literal["bench"]
    root: str

    @property
    def windows(self) -> bool:
        return False

    def open(self, name: str, given: OpenOptions) -> Host:
        given.events.step("opened")
        return Bench(name, self.root)


BACKEND = """
import base64, hashlib, os, zipfile
def build_wheel(out):
    print("[1/1] unit", flush=True)
    info, files = "pkg-1.0.dist-info", {}
    files["pkg/__init__.py"] = b"import json\\n"
    files["pkg/_C.so"] = base64.b64decode(BINARY)
    head = b"Metadata-Version: 2.1\\nName: pkg\\nVersion: 1.0\\n"
    files[info + "/METADATA"] = head + b"Requires-Python: >=3.10\\n\\n"
    files[info + "/WHEEL"] = b"Wheel-Version: 1.0\\nRoot-Is-Purelib: false\\nTag: TAGS\\n"
    name, lines = "pkg-1.0-TAGS.whl", ""
    with zipfile.ZipFile(os.path.join(out, name), "w") as archive:
        for path, data in files.items():
            archive.writestr(path, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            lines += f"{path},sha256={digest},{len(data)}\\n"
        archive.writestr(info + "/RECORD", lines + info + "/RECORD,,\\n")
    return name
"""


def backend() -> str:
    binary = base64.b64encode(b"\x7fELF" + fatbin()).decode()
    return BACKEND.replace("BINARY", repr(binary)).replace("TAGS", TAGS)


@dataclass
class Finished:
    """A line that has been gone along to its end, its session still open."""

    line: Line
    path: Path
    """Of the run."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    """Provisioned, built, tested: once, for it takes seconds."""
    room = tmp_path_factory.mktemp("bench")
    project(room / "tree", backend())
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(KINDS, "bench", BenchConfig)
        settings = Config.model_validate(
            {
                "default": {"python": PYTHON, "archs": "90a"},
                "hosts": {"desk": {"kind": "bench", "root": str(room / "root")}},
                "out": str(room / "out"),
                "compile_cache": {"kind": "off"},
            }
        )
    plan = buildplan.resolve_build_plan(settings, Request(axes={"host": "desk"}))
    line = Line(replace(plan, recipe=recipe_of(room / "tree")), LiveSession(plan.host))
    run_provision(line)
    path = run_build(line)
    run_test(line)
    yield Finished(line, path)
    line.close()
    assert isinstance(line.plan.host, Bench)
    assert line.plan.host.closed


@pytest.mark.slow
def test_a_kind_that_is_added_in_one_file_passes_the_whole_line(finished: Finished) -> None:
    path, run = finished.path, Run(finished.path)
    assert {name: stage.state for name, stage in run.stages().items()} == {
        stage.name: "passed" for stage in LINE
    }
    built, collected = run.result(BuildResult), run.result(CollectResult)
    audited, tested = run.result(AuditResult), run.result(SmokeResult)
    assert built
    assert collected
    assert audited
    assert tested
    wheel = path / "wheels" / WHEEL
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    manifest = json.loads((path / "manifest.json").read_text())
    assert {
        built.wheels[0].sha256,
        collected.files[0].sha256,
        audited.files[0].sha256,
        tested.sha256,
        *(row["sha256"] for row in manifest["files"] if row["path"] == f"wheels/{WHEEL}"),
    } == {digest}, "one value from the builder to the manifest"
    assert digest in (path / "junit.xml").read_text()
    assert (built.units.done, built.units.total) == (1, 1)
    assert (tested.outcomes["passed"], tested.instead) == (7, "verify")
    assert run.facts().target == finished.line.plan.target
    assert run.facts().evidence is Evidence.SIMULATED
    assert manifest["inputs"]["host"] == "desk"
    toolset = finished.line.plan.toolset.label
    assert built.toolset == run.facts().toolset == manifest["toolset"]["asked"] == toolset != ""
    assert manifest["toolset"]["found"] == [], "no Windows binary: nothing was read"
    assert manifest["host"]["windows"] is None, "not known, not an empty version"


def test_the_same_build_is_found_again_and_nothing_is_sent_twice(
    finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Run(finished.path).result(BuildResult)

    def put(*_: object, **__: object) -> str:
        pytest.fail("the host has it all")

    monkeypatch.setattr(LiveSession, "put", put)
    again = run_build(finished.line)
    assert again != finished.path
    after = Run(again).result(BuildResult)
    assert before
    assert after
    assert (after.job, after.kept) == (before.job, True)
    assert not before.kept


def test_the_stages_are_listed_once_and_in_order() -> None:
    names = [stage.name for stage in LINE]
    assert names == ["provision", "build", "collect", "audit", "test"]


# -- what a host says of a build -------------------------------------------------------------------


@pytest.mark.parametrize(
    "row",
    [{"size": 10**400}, {"size": -1}, {"path": "x" * 40_000}, {"sha256": "A" * 64}],
    ids=["larger than a float", "negative", "a path without end", "no sha256"],
)
def test_a_file_that_cannot_be_is_no_result(tmp_path: Path, row: dict[str, Any]) -> None:
    wheel = {"path": f"/x/{WHEEL}", "size": 1, "sha256": "ab" * 32} | row
    line, _ = at_desk(tmp_path, lambda spec: iter([{"exit": 0, "wheels": [wheel]}]))
    ended(line, run_build, HostError, "sent an invalid build result")


def test_figures_of_a_host_are_bounded(tmp_path: Path) -> None:
    figures = {"hits": 3, "large": 10**400, "none": None} | {str(n): n for n in range(999)}
    line, _ = at_desk(tmp_path, lambda spec: iter([{"exit": 1, "cache": figures}]))
    run = ended(line, run_build, BuildError, "status 1")
    built = run.result(BuildResult)
    assert built is not None
    assert built.cache["hits"] == 3
    assert len(str(built.cache["large"])) < 250
    assert len(built.cache) < 101


def test_the_manifest_has_the_tools_that_were_used_whatever_the_lock_has_now(
    finished: Finished,
) -> None:
    used = {"uv": UsedTool(version="0.0.1", sha256="ab" * 32)}  # of an older lock
    finished.line.run.note(tools=used | {"gone": used["uv"]})
    run_test(finished.line)
    tools = json.loads((finished.line.run.path / "manifest.json").read_text())["tools"]
    assert tools == {n: {"version": "0.0.1", "sha256": "ab" * 32} for n in ("gone", "uv")}


# -- what ends the line ----------------------------------------------------------------------------


def ended(line: Line, run: Callable[[Line], object], kind: type[PipelineError], said: str) -> Run:
    with pytest.raises(kind, match=said):
        run(line)
    return line.run


def test_a_failure_leaves_reports_that_tell_it(tmp_path: Path) -> None:
    def job(spec: dict[str, Any]) -> Iterator[Any]:
        yield b"no such header\n"
        yield {"exit": 1}

    line, _ = at_desk(tmp_path, job)
    run = ended(line, run_build, BuildError, "no such header")
    assert "no such header" in (run.path / "junit.xml").read_text()
    assert "no such header" in (run.path / "report.html").read_text()
    assert json.loads((run.path / "manifest.json").read_text())["run"] == run.id
    stage = run.stages()["build"]
    assert stage.error is not None
    assert stage.error.kind == "BuildError"
    built = run.result(BuildResult)
    assert built is not None
    assert any("no such header" in text for text in built.tail)
    assert built.exit == 1


def test_a_build_that_leaves_no_wheel(tmp_path: Path) -> None:
    line, _ = at_desk(tmp_path, lambda spec: iter([{"exit": 0}]))
    ended(line, run_build, BuildError, "produced no wheel")


def test_a_wheel_for_another_gpu_is_put_aside(tmp_path: Path) -> None:
    wheel = wheel_here(tmp_path, 80)
    line, _ = at_desk(tmp_path, lambda spec: iter([{"exit": 0, "wheels": [builder.left(wheel)]}]))
    run = ended(line, run_build, AuditError, "SASS: found")
    assert [path.name for path in run.path.rglob("*.whl")] == [HERE]
    assert (run.path / "rejected" / HERE).is_file()
    audited = run.result(AuditResult)
    assert audited is not None
    assert any(check.failed for check in audited.files[0].checks)
    ended(line, run_test, BuildError, "has no wheel that passed")
    (run.path / "rejected" / HERE).rename(run.path / "wheels" / HERE)
    ended(line, run_test, BuildError, "has no wheel that passed")


def test_a_resource_that_cannot_be_brought_about_is_kept_in_the_record(tmp_path: Path) -> None:
    line, _ = at_desk(tmp_path, build_requires=("ninja-that-is-not-there",))
    line.plan = replace(line.plan)  # what it wants is asked for again
    run = ended(line, run_build, ProvisionError, "missing: ninja-that-is-not-there")
    found = run.result(ProvisionResult)
    assert found is not None
    assert next(row.id for row in found.resources if not row.ok) == "environment"
    assert all(row.ok for row in found.resources if row.kind == "directory")


def test_a_run_of_something_else_is_not_tested(tmp_path: Path) -> None:
    line, _ = at_desk(tmp_path)
    line.begin_run().put_stage(
        StageRecord(name="audit", state="passed", started=1.0, result=AuditResult())
    )
    other = line.plan.target.model_copy(update={"python": "3.9"})
    line.plan = replace(line.plan, target=other)
    with pytest.raises(ConfigError, match=r"is for python 3\.\d+, not 3\.9") as caught:
        run_test(line)
    assert "--python '3.9'" in caught.value.hint


@pytest.mark.parametrize(("times", "provisioned"), [(1, 2), (3, 4)])
def test_a_host_that_is_gone_is_made_anew_and_made_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int, provisioned: int
) -> None:
    left = [times]
    line, _ = at_desk(tmp_path)
    stage = Stage("build", lambda *_: _gone(left))
    monkeypatch.setattr("pipelines.stages.line.LINE", (LINE[0], stage, LINE[-1]))
    counted = []
    ready = Line.do

    def do(self: Line, one: Stage) -> Any:
        counted.append(one.name)
        return ready(self, one)

    monkeypatch.setattr(Line, "do", do)
    run_build(line)
    assert counted.count("provision") == provisioned
    assert Run(line.run.path).stages()["build"].state == "passed"
    host: Any = line.plan.host
    assert host.closed == times


@pytest.mark.parametrize(
    ("lost", "again"), [("collect", ["provision", "build"]), ("audit", ["provision"])]
)
def test_a_host_that_is_gone_with_its_wheel_builds_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str, again: list[str]
) -> None:
    """Until the wheel was downloaded it was on that host alone."""
    line, _ = at_desk(tmp_path)
    done: list[str] = []
    results = {
        "provision": ProvisionResult(),
        "build": BuildResult(job="j", directory="d", jobs=1),
        "collect": CollectResult(),
        "audit": AuditResult(),
    }

    def stage(name: str) -> Stage:
        def run(*_: object) -> StageResult:
            done.append(name)
            if name == lost and done.count(name) == 1:
                raise GoneHostError("the container has ended")
            return results[name]

        return Stage(name, run)

    stages = tuple(map(stage, results))
    for name, one in zip(results, stages, strict=True):
        monkeypatch.setattr(f"pipelines.stages.line.{name.upper()}", one)
    monkeypatch.setattr("pipelines.stages.line.LINE", (*stages, LINE[-1]))
    run_build(line)
    names = [*results]
    at = names.index(lost) + 1
    assert done == [*names[:at], *again, *names[at - 1 :]]


def test_a_host_that_is_gone_again_and_again_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [9]
    line, _ = at_desk(tmp_path)
    stage = Stage("build", lambda *_: _gone(left))
    monkeypatch.setattr("pipelines.stages.line.LINE", (LINE[0], stage, LINE[-1]))
    with pytest.raises(GoneHostError):
        run_build(line)
    assert left == [9 - REMADE - 1]
    assert Run(line.run.path).stages()["build"].state == "failed"


@pytest.mark.slow
def test_a_transfer_that_the_end_of_its_host_cut_off_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line, _ = at_desk(tmp_path)
    failed: list[int] = []
    gone: list[bool] = []

    def work(*_: object) -> BuildResult:
        if not failed:
            failed.append(1)
            gone.append(True)
            raise TransferError("half of it arrived")
        return BuildResult(job="j", directory="d", jobs=1)

    monkeypatch.setattr(type(line.plan.host), "is_gone", lambda _: bool(gone) and gone.pop())
    stages = (LINE[0], Stage("build", work), LINE[-1])
    monkeypatch.setattr("pipelines.stages.line.LINE", stages)
    run_build(line)
    run = Run(line.run.path)
    assert run.stages()["build"].state == "passed"
    assert run.facts().remade == ("half of it arrived",)
    said = "the host was recreated once during this run: half of it arrived"
    assert said in load_view(run).caveats


@pytest.mark.slow
def test_the_end_of_a_host_is_told_though_it_cannot_be_cleared_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line, _ = at_desk(tmp_path)

    def close(_: object) -> None:
        raise HostError("the engine does not answer")

    stage = Stage("build", lambda *_: _gone([1]))
    monkeypatch.setattr("pipelines.stages.line.LINE", (LINE[0], stage, LINE[-1]))
    monkeypatch.setattr(LiveSession, "close", close)
    with pytest.raises(GoneHostError, match="the container has ended"):
        run_build(line)


def _gone(left: list[int]) -> BuildResult:
    if left[0]:
        left[0] -= 1
        raise GoneHostError("the container has ended")
    return BuildResult(job="j", directory="d", jobs=1)
