"""A published wheel built again: what is refused before, and the verdict after.

The builds are real, of a backend that writes bytes: what is shown is the way, not a compiler.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plans import PYTHON, Desk, line_for, plan_for, recipe_of
from projects import project
from sessions import Here
from test_line import backend

from pipelines.core.errors import AuditError, ConfigError, LockError
from pipelines.core.files import sha256_of
from pipelines.hosts.base import Existing
from pipelines.publish.rebuild.published import Published, read_published
from pipelines.publish.rebuild.run import rebuild_verdict_json, run_rebuild
from pipelines.record.results import BuildResult, RebuildResult
from pipelines.reports.load import load_view
from pipelines.reports.suites import junit_suites
from pipelines.stages.line import Line, run_build

pytestmark = pytest.mark.slow


#: A backend that writes down when and where it builds, as none should.
LEAKING = """
import time
files["pkg/where.py"] = os.getcwd().encode()
files["pkg/when.py"] = str(time.time_ns()).encode()
"""


def tree(room: Path, leaking: str = "") -> Path:
    """The source: once for both parties."""
    code = backend().replace("    name, lines", f"    exec({leaking!r})\n    name, lines")
    if not (room / "tree").exists():
        project(room / "tree", code)
    return room / "tree"


def party(room: Path, name: str, source: Path, **recipe: Any) -> Line:
    """Somebody's line, with a directory of its own for all but the place of builds."""
    host = Desk(room / name / "root", Here())
    host.existing = Existing(root=str(room / name / "root"), fixed=str(room / "fixed"))
    made = recipe_of(source, **({"reproducible": True} | recipe))
    return line_for(plan_for(room / name, host, made, python=PYTHON, archs="90a"))


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """The run of who has published."""
    return run_build(party(tmp_path, "they", tree(tmp_path)))


def we(room: Path, **recipe: Any) -> Line:
    return party(room, "we", tree(room), **recipe)


def wheel_of(run: Path) -> Path:
    (wheel,) = (run / "wheels").glob("*.whl")
    return wheel


def rewritten(run: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """The manifest of a run after a change."""
    path = run / "manifest.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    return path


def lied(run: Path, **files: bytes) -> Path:
    """The run with other files in its wheel, and a manifest that says so."""
    wheel = wheel_of(run)
    with zipfile.ZipFile(wheel) as old:
        kept = {info.filename: (info, old.read(info)) for info in old.infolist()}
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as new:
        for name, (info, data) in kept.items():
            new.writestr(info, files.get(name.rpartition("/")[2].replace(".", "_"), data))

    def change(data: dict[str, Any]) -> None:
        for row in data["files"]:
            if row["path"].endswith(".whl"):
                row["sha256"] = sha256_of(wheel)

    return rewritten(run, change)


# -- the verdict -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["manifest.json", "the wheel"])
def test_a_second_party_builds_the_same_bytes(tmp_path: Path, published: Path, name: str) -> None:
    asked = published / name if name == "manifest.json" else wheel_of(published)
    line = we(tmp_path)
    path = run_rebuild(line, read_published(str(asked)))
    assert wheel_of(path).read_bytes() == wheel_of(published).read_bytes()
    assert rebuild_verdict_json(line.run)["verdict"] == "identical"
    built = line.run.result(BuildResult)
    assert built is not None
    assert str(tmp_path / "we" / "root") in built.directory
    view = load_view(line.run)
    assert (view.verdict, view.headline) == (
        "passed",
        "rebuilt: byte for byte identical to the published wheel",
    )
    (suite,) = (one for one in junit_suites(line.run) if one.name.endswith(".rebuild"))
    assert suite.cases[0].outcome == "passed"
    assert suite.cases[0].properties["verdict"] == "identical"
    assert json.loads((path / "manifest.json").read_text())["rebuilt"]["verdict"] == "identical"


def test_it_is_built_anew_every_time(tmp_path: Path, published: Path) -> None:
    """Nothing of an earlier build is taken, not even of the publisher's own."""
    line = party(tmp_path, "they", tree(tmp_path))
    jobs = []
    for _ in range(2):
        run_rebuild(line, read_published(str(published / "manifest.json")))
        built = line.run.result(BuildResult)
        assert built is not None
        assert not built.kept
        jobs.append(built.job)
    earlier = json.loads((published / "manifest.json").read_text())["inputs"]["job"]
    assert len({earlier, *jobs}) == 3


def test_one_changed_byte_is_found_and_named(tmp_path: Path, published: Path) -> None:
    manifest = lied(published, __init___py=b"import os; os.abort()\n")
    line = we(tmp_path)
    with pytest.raises(AuditError, match="differs from the published wheel") as raised:
        run_rebuild(line, read_published(str(manifest)))
    assert "pkg/__init__.py: line 1: import os; os.abort() / import json" in raised.value.message
    result = line.run.result(RebuildResult)
    assert result is not None
    assert result.compared is not None
    assert result.compared.verdict == "different"
    view = load_view(line.run)
    assert view.verdict == "failed"
    rows = dict(dict(view.provenance)["Rebuilt"])
    assert rows["verdict"] == "different"
    assert rows["difference 1"].startswith("pkg/__init__.py: line 1: ")
    (suite,) = (one for one in junit_suites(line.run) if one.name.endswith(".rebuild"))
    assert suite.cases[0].outcome == "failed"
    kept = json.loads((line.run.path / "manifest.json").read_text())["rebuilt"]
    assert kept["verdict"] == "different"
    assert kept["published"] != kept["rebuilt"]
    assert rebuild_verdict_json(line.run)["verdict"] == "different"


def test_the_same_files_packed_otherwise_are_not_identical(tmp_path: Path, published: Path) -> None:
    wheel = wheel_of(published)
    with zipfile.ZipFile(wheel) as old:
        kept = {info.filename: old.read(info) for info in old.infolist()}
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as new:
        for name, data in kept.items():
            new.writestr(name, data)
    manifest = lied(published)
    line = we(tmp_path)
    with pytest.raises(AuditError, match="all files are the same, but the archive differs"):
        run_rebuild(line, read_published(str(manifest)))
    assert rebuild_verdict_json(line.run)["verdict"] == "repacked"


def test_without_the_wheel_its_hash_decides(tmp_path: Path, published: Path) -> None:
    wheel_of(published).unlink()
    run_rebuild(we(tmp_path), read_published(str(published / "manifest.json")))
    manifest = rewritten(published, lambda data: data["files"][0].update(sha256="0" * 64))
    with pytest.raises(AuditError, match="unknown where they differ"):
        run_rebuild(we(tmp_path), read_published(str(manifest)))


def test_what_is_not_reproducible_is_found_out(tmp_path: Path) -> None:
    """The place is fixed and the time is not: the switch promises, the rebuild proves."""
    source = tree(tmp_path, LEAKING)
    run = run_build(party(tmp_path, "they", source))
    with pytest.raises(AuditError, match=r"pkg/when\.py: line 1"):
        run_rebuild(party(tmp_path, "we", source), read_published(str(run / "manifest.json")))
    mine = json.loads((run / "manifest.json").read_text())["inputs"]["materials"]
    assert mine["fixed place"] == {"source": str(tmp_path / "fixed")}


def test_a_rebuild_that_was_cut_off_is_no_build_to_go_on_with(
    tmp_path: Path, published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def left(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    line = we(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.stages.build._send_source", left)
        with pytest.raises(KeyboardInterrupt):
            run_rebuild(line, read_published(str(published / "manifest.json")))
    cut_off = line.run.id
    assert run_build(we(tmp_path)).name != cut_off


# -- what is refused before anything is built ------------------------------------------------------


def refused(line: Line, published: Published, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        run_rebuild(line, published)
    host: Any = line.plan.host
    assert not [one for one in host.session.sent if "src-" in one], "no source was sent"
    assert not line.begun or rebuild_verdict_json(line.run)["verdict"] is None


def test_another_source_is_refused(tmp_path: Path, published: Path) -> None:
    (tmp_path / "tree" / "more.txt").write_text("another source")
    manifest = read_published(str(published / "manifest.json"))
    refused(
        we(tmp_path),
        manifest,
        LockError,
        r"(?s)built from different inputs .source archive.:.*archive: there [0-9a-f]{64}",
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m.update(tool={"ninja": "0" * 64}), "tool ninja: there 0{64}, here nothing"),
        (lambda m: m.pop("python"), "python version: there nothing, here 3"),
        (lambda m: m["toolset"].update(label="gcc"), "toolset label: there gcc, here "),
        (lambda m: m["toolset"].update(files="another libc++"), "toolset files: there another"),
        (lambda m: m["variable"].update(CL="/Od"), "variable CL: there /Od, here "),
        (lambda m: m["fixed place"].update(source="/x"), "fixed place source: there /x, "),
    ],
)
def test_another_lock_compiler_or_flag_is_refused(
    tmp_path: Path, published: Path, change: Callable[[dict[str, Any]], object], said: str
) -> None:
    manifest = rewritten(published, lambda data: change(data["inputs"]["materials"]))
    line = we(tmp_path)
    refused(line, read_published(str(manifest)), LockError, said)
    assert not line.begun, "before the host is made ready for it"


@pytest.mark.parametrize("name", ["environment", "g++", "ld"])
def test_what_was_found_on_the_host_is_compared_there(
    tmp_path: Path, published: Path, name: str
) -> None:
    if name != "environment" and not shutil.which(name):
        pytest.skip(f"needs {name}")

    def change(data: dict[str, Any]) -> None:
        assert data["inputs"]["materials"]["found"][name]
        data["inputs"]["materials"]["found"][name] = "another"

    line = we(tmp_path)
    manifest = read_published(str(rewritten(published, change)))
    refused(line, manifest, LockError, rf"found {re.escape(name)}: there another, here ")
    assert line.run.stages()["build"].state == "failed"


def test_another_place_of_the_tools_is_only_told(
    tmp_path: Path, published: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def elsewhere(data: dict[str, Any]) -> None:
        data["inputs"]["materials"]["place"]["toolkit"] = "/opt/cuda\x1b[31m"

    run_rebuild(we(tmp_path), read_published(str(rewritten(published, elsewhere))))
    said = capsys.readouterr().out
    assert "different directory: place toolkit: there /opt/cuda, here" in said.replace("\n", " ")


def test_a_recipe_that_promises_it_no_more_is_refused(tmp_path: Path, published: Path) -> None:
    manifest = read_published(str(published / "manifest.json"))
    refused(we(tmp_path, reproducible=False), manifest, ConfigError, "no longer has reproducible")


def test_other_architectures_are_refused(tmp_path: Path, published: Path) -> None:
    asked = read_published(str(published / "manifest.json"))
    other = replace(asked, axes=asked.axes | {"archs": "80"})
    refused(we(tmp_path), other, ConfigError, "is read as")


def test_a_wheel_that_its_manifest_does_not_speak_of(published: Path) -> None:
    wheel = wheel_of(published)
    wheel.write_bytes(wheel.read_bytes() + b"x")
    for asked in (wheel, published / "manifest.json"):
        with pytest.raises(AuditError, match=f"has sha256 {sha256_of(wheel)}"):
            read_published(str(asked))


def test_a_hostile_wheel_is_refused_before_it_is_built(tmp_path: Path, published: Path) -> None:
    with zipfile.ZipFile(wheel_of(published), "a") as archive:
        archive.writestr("../outside.py", b"")
    manifest = lied(published)
    refused(we(tmp_path), read_published(str(manifest)), AuditError, "outside its directory")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data["inputs"].update(reproducible=False), "reproducible: true"),
        (lambda data: data["inputs"].update(materials={}), "reproducible: true"),
        (lambda data: data.update(schema=1), "not a valid manifest"),
        (lambda data: data.update(inputs="x"), "not a valid manifest"),
        (lambda data: data["files"].clear(), "has 0 wheels"),
        (lambda data: data["files"].append(data["files"][0]), "has 2 wheels"),
        (lambda data: data["files"][0].update(sha256="x"), "not a valid manifest"),
        (lambda data: data["files"][0].update(path="wheels/..\\x.whl"), "is not a wheel name"),
        (
            lambda data: data["inputs"]["materials"]["found"].update({"x" * 501: ""}),
            "not a valid manifest",
        ),
    ],
)
def test_a_manifest_that_is_none(
    published: Path, change: Callable[[dict[str, Any]], object], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        read_published(str(rewritten(published, change)))


@pytest.mark.parametrize("data", [b"", b"[" * 100_000, b"\xff", b"{}", b" " * (9 << 20)])
def test_bytes_that_are_no_manifest(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "manifest.json"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match="not a valid manifest"):
        read_published(str(path))


def test_a_wheel_without_a_manifest(tmp_path: Path, published: Path) -> None:
    alone = tmp_path / "alone" / "x"
    alone.mkdir(parents=True)
    os.link(wheel_of(published), alone / wheel_of(published).name)
    with pytest.raises(ConfigError, match=r"no manifest\.json in its directory"):
        read_published(str(alone / wheel_of(published).name))
    with pytest.raises(ConfigError, match="no such file"):
        read_published(str(tmp_path / "none.whl"))
