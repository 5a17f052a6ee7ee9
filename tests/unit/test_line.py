"""The whole line on a kind of host that only this file knows: a Python on this machine.

Nothing outside of this file is told of the kind but the table of kinds. The wheel is made of bytes:
what is shown is the way of a plan through the stages, not a compiler.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from projects import project
from wheels import fatbin

from pipelines import buildplan
from pipelines.buildplan import Request
from pipelines.config import Config
from pipelines.errors import (
    AuditError,
    BuildError,
    ConfigError,
    HostError,
    PipelineError,
    ProvisionError,
    SmokeError,
    TransferError,
)
from pipelines.evidence import Evidence
from pipelines.hosts.base import Capabilities, Existing, Host, HostConfig, Opening
from pipelines.hosts.kinds import KINDS
from pipelines.hosts.live import LiveSession
from pipelines.record import (
    AuditResult,
    BuildResult,
    CollectResult,
    ProvisionResult,
    RunFacts,
    SmokeResult,
    UsedTool,
)
from pipelines.run import Run, StageLog
from pipelines.session.base import Progress, Session
from pipelines.session.bootstrap import bootstrap_argv
from pipelines.session.channel import open_session
from pipelines.session.transports.popen import PopenStream
from pipelines.stages import line as stages
from pipelines.stages import test as suite
from pipelines.stages.detached import Job
from pipelines.stages.line import LINE, Line, run_build, run_provision, run_test
from pipelines.stages.report import report

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
TAG = f"cp{PYTHON.replace('.', '')}"
WHEEL = f"pkg-1.0-{TAG}-{TAG}-linux_x86_64.whl"


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

    def open(self, name: str, given: Opening) -> Host:
        given.events.step("opened")
        return Bench(name, self.root)


BACKEND = """
import base64, hashlib, os, zipfile
def build_wheel(out):
    print("[1/1] unit", flush=True)
    info, files = "pkg-1.0.dist-info", {}
    files["pkg/__init__.py"] = b"import json\\n"
    files["pkg/_C.so"] = base64.b64decode(BINARY)
    files[info + "/METADATA"] = b"Metadata-Version: 2.1\\nName: pkg\\nVersion: 1.0\\n\\n"
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


def backend(arch: int = 90) -> str:
    binary = base64.b64encode(b"\x7fELF" + fatbin(arch)).decode()
    return BACKEND.replace("BINARY", repr(binary)).replace("TAGS", f"{TAG}-{TAG}-linux_x86_64")


Opened = Callable[..., Line]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    """A line for a small project on a host of kind ``bench``."""
    monkeypatch.setitem(KINDS, "bench", BenchConfig)
    project(tmp_path / "tree", backend())
    made: list[Line] = []

    def make(**recipe: Any) -> Line:
        settings = Config.model_validate(
            {
                "default": {"python": PYTHON, "archs": "90a"},
                "hosts": {"desk": {"kind": "bench", "root": str(tmp_path / "root")}},
                "out": str(tmp_path / "out"),
                "compile_cache": {"kind": "off"},
            }
        )
        plan = buildplan.resolve(settings, Request(axes={"host": "desk"}))
        source = type(plan.recipe.source).model_construct(path=str(tmp_path / "tree"))
        changes = {
            "source": source,
            "pythons": (PYTHON,),
            "build_requires": (),
            "test_requires": (),
            "smoke": "",
            "verify": "import pkg",
            "costs": (),
        }
        own = plan.recipe.model_copy(update=changes | recipe)
        made.append(Line(replace(plan, recipe=own), LiveSession(plan.host)))
        return made[-1]

    yield make
    for line in made:
        line.close()


def test_a_kind_that_is_added_in_one_file_passes_the_whole_line(opened: Opened) -> None:
    line = opened()
    run_provision(line)
    path = run_build(line)
    run_test(line)
    run = line.run
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
    assert tested.outcomes == {"passed": 1}
    assert run.facts().target == line.plan.target
    assert run.facts().evidence is Evidence.SIMULATED
    assert manifest["inputs"]["host"] == "desk"
    assert manifest["host"]["windows"] is None, "not known, not an empty version"
    line.close()
    assert isinstance(line.plan.host, Bench)
    assert line.plan.host.closed


def test_the_stages_are_listed_once_and_in_order() -> None:
    names = [stage.name for stage in LINE]
    assert names == ["provision", "build", "collect", "audit", "test"]


# -- the custody of a wheel ------------------------------------------------------------------------


def damage(path: Path) -> None:
    """Another byte at the end: same name, other content."""
    path.write_bytes(path.read_bytes() + b"!")


def swap_stage(
    monkeypatch: pytest.MonkeyPatch, before: str, change: Callable[[Line], None]
) -> None:
    """Have ``change`` happen right before the stage of that name."""
    do = Line.do

    def changed(self: Line, stage: stages.Stage) -> Any:
        if stage.name == before:
            change(self)
        return do(self, stage)

    monkeypatch.setattr(Line, "do", changed)


def on_host(line: Line) -> Path:
    built = line.run.result(BuildResult)
    assert built is not None
    return Path(built.wheels[0].path)


def test_a_wheel_that_changes_on_the_host_after_it_was_built(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    swap_stage(monkeypatch, "collect", lambda line: damage(on_host(line)))
    line = opened()
    with pytest.raises(TransferError, match=r"desk built \d+ bytes with sha256 \w{64}, and what"):
        run_build(line)
    assert not list(line.run.path.rglob("*.whl"))
    assert line.run.stages()["collect"].state == "failed"
    assert "audit" not in line.run.stages()


def told(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Have the host say that of a build that has ended."""
    outcome = Job._outcome
    monkeypatch.setattr(Job, "_outcome", lambda self, was: outcome(self, was) | changes)


@pytest.mark.parametrize(
    "row",
    [{"size": 10**400}, {"size": -1}, {"path": "x" * 40_000}, {"sha256": "A" * 64}],
    ids=["larger than a float", "negative", "a path without end", "no sha256"],
)
def test_a_file_that_cannot_be_is_no_result(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, row: dict[str, Any]
) -> None:
    wheel = {"path": f"/x/{WHEEL}", "size": 1, "sha256": "ab" * 32} | row
    told(monkeypatch, wheels=[wheel])
    with pytest.raises(HostError, match="desk sent what is no result of a build"):
        run_build(opened())


def test_figures_of_a_host_are_bounded(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = {"hits": 3, "large": 10**400, "none": None} | {str(n): n for n in range(999)}
    told(monkeypatch, cache=figures)
    line = opened()
    run_build(line)
    built = line.run.result(BuildResult)
    assert built is not None
    assert built.cache["hits"] == 3
    assert len(str(built.cache["large"])) < 250
    assert len(built.cache) < 101


def test_a_wheel_that_changes_here_before_the_audit(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    swap_stage(monkeypatch, "audit", lambda line: damage(line.run.path / "wheels" / WHEEL))
    with pytest.raises(AuditError, match="what came home had"):
        run_build(opened())


def test_a_wheel_that_changes_here_after_the_audit(opened: Opened) -> None:
    line = opened()
    path = run_build(line)
    damage(path / "wheels" / WHEEL)
    with pytest.raises(AuditError, match=r"has sha256 \w{64}, the audit of run .* looked at"):
        run_test(line)
    assert line.run.result(SmokeResult) is None


def test_a_wheel_that_changes_on_its_way_to_the_test(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = opened()
    run_build(line)
    put = LiveSession.put

    def changing(
        self: LiveSession, source: Path, target: str, *, progress: Progress | None = None
    ) -> str:
        if source.suffix == ".whl":
            other = source.with_name("other")
            other.write_bytes(source.read_bytes() + b"!")
            source = other
        return put(self, source, target, progress=progress)

    monkeypatch.setattr(LiveSession, "put", changing)
    with pytest.raises(AuditError, match="reached desk with sha256"):
        run_test(line)


def test_the_manifest_has_the_tools_that_were_used_whatever_the_lock_has_now(
    opened: Opened,
) -> None:
    line = opened()
    run_build(line)
    used = {"uv": UsedTool(version="0.0.1", sha256="ab" * 32)}  # of an older lock
    line.run.note(tools=used | {"gone": used["uv"]})
    run_test(line)
    tools = json.loads((line.run.path / "manifest.json").read_text())["tools"]
    assert tools == {n: {"version": "0.0.1", "sha256": "ab" * 32} for n in ("gone", "uv")}


def test_a_wheel_that_changes_before_the_manifest(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:

    def changing(run: Run) -> Path:
        made = report(run)
        damage(run.path / "wheels" / WHEEL)
        return made

    monkeypatch.setattr(stages, "report", changing)
    with pytest.raises(AuditError, match="the audit looked at"):
        run_build(opened())


# -- what ends the line ----------------------------------------------------------------------------


def ended(line: Line, run: Callable[[Line], object], kind: type[PipelineError], said: str) -> Run:
    with pytest.raises(kind, match=said):
        run(line)
    return line.run


def test_a_failure_leaves_reports_that_tell_it(opened: Opened) -> None:
    line = opened()
    tree = Path(line.plan.recipe.source.path)  # type: ignore[union-attr]
    (tree / "mine.py").write_text("def build_wheel(out):\n    raise SystemExit('no such header')\n")
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


def test_a_build_that_leaves_no_wheel(opened: Opened) -> None:
    line = opened()
    tree = Path(line.plan.recipe.source.path)  # type: ignore[union-attr]
    (tree / "mine.py").write_text(
        "import pathlib\n"
        "def build_wheel(out):\n    pathlib.Path(out, 'made.txt').touch()\n    return 'made.txt'\n"
    )
    ended(line, run_build, BuildError, "left no wheel")


def test_a_wheel_for_another_gpu_is_put_aside(opened: Opened) -> None:
    line = opened()
    tree = Path(line.plan.recipe.source.path)  # type: ignore[union-attr]
    (tree / "mine.py").write_text(backend(80))
    run = ended(line, run_build, AuditError, "SASS: found")
    assert [path.name for path in run.path.rglob("*.whl")] == [WHEEL]
    assert (run.path / "rejected" / WHEEL).is_file()
    audited = run.result(AuditResult)
    assert audited is not None
    assert not all(check.ok for check in audited.files[0].checks)
    ended(line, run_test, BuildError, "has no wheel that passed")
    (run.path / "rejected" / WHEEL).rename(run.path / "wheels" / WHEEL)
    ended(line, run_test, BuildError, "has no wheel that passed")


REPORT = '<testsuites><testsuite name="s">{}</testsuite></testsuites>'
PASSED, FAILED = '<testcase name="a"/>', '<testcase name="b"><failure message="no"/></testcase>'


@pytest.mark.parametrize(
    ("cases", "code", "said"),
    [
        (PASSED + FAILED, 1, r"1 of 2 smoke cases failed \(pytest left with 1\)"),
        (PASSED, 4, r"0 of 1 smoke cases failed \(pytest left with 4\)"),  # a hook's error, say
        ("", 5, "ran no case"),
        (None, -11, "pytest left with -11 and there is no report"),
    ],
)
def test_suites_that_are_no_success(
    tmp_path: Path, cases: str | None, code: int, said: str
) -> None:
    class There(LiveSession):
        def get(self, source: str, target: Path, *, progress: Progress | None = None) -> str:
            target.write_text(REPORT.format(cases))
            return ""

    log = StageLog(Run.create(tmp_path, RunFacts()))
    log.keep(SmokeResult(tail=("the end",)))
    there = None if cases is None else "there"
    ended = suite._Ended(exit=code, step="pytest", junit=there)
    with pytest.raises(SmokeError, match=said):
        suite._judge(There(Bench("desk", "/")), log, ended)
    kept = log.result
    assert isinstance(kept, SmokeResult)
    assert (kept.exit, kept.step) == (code, "pytest")


def test_a_resource_that_cannot_be_brought_about_is_kept_in_the_record(opened: Opened) -> None:
    line = opened(build_requires=("ninja-that-is-not-there",))
    run = ended(line, run_build, ProvisionError, "not there: ninja-that-is-not-there")
    found = run.result(ProvisionResult)
    assert found is not None
    assert next(row.id for row in found.resources if not row.ok) == "environment"
    assert all(row.ok for row in found.resources if row.kind == "directory")


def test_a_run_of_something_else_is_not_tested(opened: Opened) -> None:
    line = opened()
    run_build(line)
    other = line.plan.target.model_copy(update={"python": "3.9"})
    line.plan = replace(line.plan, target=other)
    with pytest.raises(ConfigError, match=r"is of python 3\.\d+, not 3\.9") as caught:
        run_test(line)
    assert "--python 3.9" in caught.value.advice


# -- what is done once -----------------------------------------------------------------------------


def test_the_same_build_is_found_again_and_nothing_is_sent_twice(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opened()
    run_build(first)
    before = first.run.result(BuildResult)
    sent: list[str] = []
    put = LiveSession.put

    def counting(
        self: LiveSession, source: Path, target: str, *, progress: Progress | None = None
    ) -> str:
        sent.append(target)
        return put(self, source, target, progress=progress)

    monkeypatch.setattr(LiveSession, "put", counting)
    again = opened()
    run_build(again)
    after = again.run.result(BuildResult)
    assert before
    assert after
    assert (after.job, after.kept) == (before.job, True)
    assert not before.kept
    assert sent == []
