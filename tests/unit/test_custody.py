"""A wheel is the same from the builder to the manifest, or nothing is done with it."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fatbins import ELF, container
from foreign_wheels import foreign
from pes import MSVC_DLLS, dll, msvc, stand_in
from plans import Desk, Lab, at_desk, audited, having, line_for, plan_for
from sessions import Here
from wheels import FILES, HERE, NAME, fatbin, packed_here, wheel, wheel_here

from pipelines.core.errors import AuditError, BuildError, PipelineError, TransferError
from pipelines.core.evidence import Evidence
from pipelines.core.files import sha256_of
from pipelines.core.toolsets import MSVC, STUB, Toolset
from pipelines.hosts.base import Host, Supply
from pipelines.recipe.model import Module
from pipelines.record.results import (
    AuditResult,
    BuildResult,
    CollectResult,
    FileResult,
    HostFile,
    SmokeResult,
    StageResult,
)
from pipelines.record.run import Run
from pipelines.remote import builder
from pipelines.remote import facts as remote_facts
from pipelines.reports.write import write_run_reports
from pipelines.session.base import Progress
from pipelines.stages.hooks import Stage
from pipelines.stages.line import AUDIT, COLLECT, Line, run_build, run_test
from pipelines.stages.manifest import write_manifest
from pipelines.toolchain.lock import Cache, load_lock


def row(path: Path, **changes: Any) -> HostFile:
    """A file on the host, as its builder states it."""
    return HostFile.model_validate({**builder.left(path), **changes})


def built(*wheels: HostFile, **changes: Any) -> BuildResult:
    return BuildResult(job="j", directory="/b/j", jobs=1, exit=0, wheels=wheels, **changes)


def damage(path: Path) -> None:
    """Another byte at the end: same name, other content."""
    path.write_bytes(path.read_bytes() + b"!")


def refused(line: Line, stage: Stage, kind: type[PipelineError], said: str) -> StageResult:
    """What the stage has kept when it refuses."""
    with pytest.raises(kind, match=said):
        line.do(stage)
    record = line.run.stages()[stage.name]
    assert record.state == "failed"
    assert record.result is not None
    return record.result


# -- from the host to here -------------------------------------------------------------------------


@pytest.mark.parametrize("changed", [{"sha256": "0" * 64}, {"size": 7}])
def test_only_the_file_that_was_built_comes_home(tmp_path: Path, changed: dict[str, Any]) -> None:
    wheel = wheel_here(tmp_path)
    line, _ = at_desk(tmp_path)
    having(line, built(row(wheel, **changed)))
    said = rf"desk built {changed.get('size', wheel.stat().st_size)} bytes with sha256 \w{{64}}"
    refused(line, COLLECT, TransferError, said)
    assert not list(line.run.path.rglob("*.whl"))


def test_what_came_home_before_is_in_the_record(tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    good, bad = wheel_here(tmp_path), wheel(tmp_path / "two", FILES)
    line, _ = at_desk(tmp_path)
    having(line, built(row(good), row(bad, size=1)))
    kept = refused(line, COLLECT, TransferError, NAME.replace("+", r"\+"))
    sha256 = sha256_of(good)
    file = FileResult(path=f"wheels/{HERE}", size=good.stat().st_size, sha256=sha256)
    assert kept == CollectResult(files=(file,))


@pytest.mark.parametrize("name", ["w.exe", ".w.whl", "a\x1b[2Jb.whl", "w.whl.", "whl"])
def test_the_host_does_not_name_our_files(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    line, _ = at_desk(tmp_path)
    having(line, built(row(tmp_path / name)))
    refused(line, COLLECT, AuditError, "not a wheel")
    assert not (line.run.path / "wheels").exists()


def test_a_path_of_windows_is_no_name(tmp_path: Path) -> None:
    there = tmp_path / rf"C:\b\j\out\{HERE}"
    there.write_bytes(b"x")
    line, _ = at_desk(tmp_path)
    having(line, built(row(there)))
    line.do(COLLECT)
    assert [path.name for path in line.run.path.rglob("*.whl")] == [HERE]


def test_nothing_is_collected_without_a_build(tmp_path: Path) -> None:
    line, _ = at_desk(tmp_path)
    line.begin_run()
    with pytest.raises(BuildError, match="has no build"):
        line.do(COLLECT)


CRATE = {"recipe": "candle-flash-attn", "archs": "90"}


@pytest.mark.parametrize(("windows", "name"), [(True, 1), (False, 0)])
def test_a_crates_library_comes_home_and_is_looked_into(
    tmp_path: Path, windows: bool, name: int
) -> None:
    """Under the name that whoever links it on that host looks for."""
    session = Here()
    host: Host = Lab(session) if windows else Desk(tmp_path / "root", session)
    line = line_for(plan_for(tmp_path, host, **CRATE))
    library = line.plan.recipe.library
    assert library is not None
    names = library.names
    (tmp_path / "made").write_bytes(fatbin(80))
    having(line, built(library=row(tmp_path / "made")))
    collected = line.do(COLLECT)
    assert isinstance(collected, CollectResult)
    assert [file.path for file in collected.files] == [f"library/{names[name]}"]
    refused(line, AUDIT, AuditError, "SASS: found")
    assert (line.run.path / "rejected" / names[name]).is_file()


# -- what is looked into ---------------------------------------------------------------------------


def home(line: Line, *files: Path) -> Run:
    """A run of the line with these wheels as they came home."""
    rows = tuple(
        FileResult(path=f"wheels/{path.name}", size=path.stat().st_size, sha256=sha256_of(path))
        for path in files
    )
    run = having(line, CollectResult(files=rows))
    (run.path / "wheels").mkdir()
    for path in files:
        path.rename(run.path / "wheels" / path.name)
    return run


def test_a_wheel_that_changes_before_the_audit(tmp_path: Path) -> None:
    line, _ = at_desk(tmp_path)
    run = home(line, wheel_here(tmp_path))
    damage(run.path / "wheels" / HERE)
    with pytest.raises(AuditError, match="was downloaded"):
        line.do(AUDIT)


def test_nothing_that_came_home_is_no_success(tmp_path: Path) -> None:
    line, _ = at_desk(tmp_path)
    home(line)
    with pytest.raises(AuditError, match="no built file was downloaded"):
        line.do(AUDIT)


def test_a_good_wheel_stays_and_the_bad_one_goes(tmp_path: Path) -> None:
    line, _ = at_desk(tmp_path)
    run = home(line, wheel_here(tmp_path), wheel(tmp_path, FILES))  # for Windows
    kept = refused(line, AUDIT, AuditError, "platform: found win_amd64")
    assert isinstance(kept, AuditResult)
    assert [file.file for file in kept.files] == [HERE, NAME]
    assert [any(check.failed for check in file.checks) for file in kept.files] == [False, True]
    assert [path.parent.name for path in sorted(run.path.rglob("*.whl"))] == ["rejected", "wheels"]


def test_a_wheel_of_another_tool_kit_is_refused(tmp_path: Path) -> None:
    """Whatever its name says: what its device code says counts."""
    line, _ = at_desk(tmp_path)
    other = {"pkg/_C.so": b"\x7fELF" + fatbin(90, "12.8")}
    run = home(line, wheel_here(tmp_path, more=other))
    refused(line, AUDIT, AuditError, "CUDA: found CUDA 12.8 in 1/1 .expected 13.0")
    assert [path.parent.name for path in run.path.rglob("*.whl")] == ["rejected"]


def test_a_wheel_of_windows_is_looked_at_as_one(tmp_path: Path) -> None:
    line = line_for(plan_for(tmp_path, Lab(Here()), archs="90a", python="3.11"))
    home(line, wheel(tmp_path, FILES))
    done = line.do(AUDIT)
    assert isinstance(done, AuditResult)
    assert done.files[0].version == "1.0+cu130"
    line = line_for(plan_for(tmp_path, Lab(Here()), archs="90a"))
    home(line, wheel_here(tmp_path))
    refused(line, AUDIT, AuditError, "expected win_amd64")


def test_a_wheel_is_for_the_processor_of_its_host(tmp_path: Path) -> None:
    line, _ = at_desk(tmp_path, answers={remote_facts.facts: {"machine": "riscv64"}})
    home(line, wheel_here(tmp_path))
    refused(line, AUDIT, AuditError, "expected linux_riscv64")


def test_a_module_may_be_for_some_of_the_architectures(tmp_path: Path) -> None:
    """As the recipe says of it."""
    both = b"\x7fELF" + container((ELF, "80", 8), (ELF, "90a", 8))
    for modules in ((Module(files="pkg/_C*", only=("90a",)),), ()):
        line, _ = at_desk(tmp_path, modules=modules)
        line.plan = replace(line.plan, archs=plan_for(tmp_path, archs="80;90a").archs)
        home(line, wheel_here(tmp_path, more={"pkg/_D.so": both}))
        if modules:
            line.do(AUDIT)
        else:
            refused(line, AUDIT, AuditError, "pkg/_C.so")


# -- what is tested --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "publishable", "lie"),
    [(MSVC, True, stand_in), (MSVC, False, stand_in), (STUB, False, msvc)],
)
def test_a_wheel_of_another_tool_set_is_refused(
    tmp_path: Path, asked: Toolset, publishable: bool, lie: Callable[[bytes], bytes]
) -> None:
    """Also where its name says what was asked for: its modules do not."""
    truth = msvc if asked is MSVC else stand_in
    local = "cu130" + ("" if publishable else asked.stamp)
    for making, passes in ((truth, True), (lie, False)):
        host = Lab(Here())
        host.capabilities = replace(host.capabilities, publishable=publishable)
        supply = Supply(toolset=asked, origin="x")
        plan = plan_for(tmp_path, host, archs="90a", cuda="13.0", python="3.11")
        line = line_for(replace(plan, supply=partial(replace, supply)))
        files = {"pkg/_C.cp311-win_amd64.pyd": making(fatbin())}
        home(line, foreign(tmp_path, "pkg", f"1.0+{local}", "cp311-cp311-win_amd64", files=files))
        if not passes:
            refused(line, AUDIT, AuditError, f"not with {asked.name}")
            continue
        line.do(AUDIT)
        write_manifest(line.run)
        tools = json.loads((line.run.path / "manifest.json").read_text())["toolset"]["found"]
        assert tools == [f"{asked.name} {'14.44' if asked is MSVC else '14.0'}"]


def test_every_torch_that_it_is_tested_with_must_have_what_it_wants(tmp_path: Path) -> None:
    """The wheel of torch 2.10 here has not one of the names; 2.15 has not been fetched."""
    files = {"torch/lib/torch_cpu.dll": dll({}, ["aoti_torch_a"])}
    torch = foreign(tmp_path, "torch", "2.10.0", "cp311-cp311-win_amd64", files=files)
    lock, id_ = load_lock(), "torch-cpu-2.10-cp311"
    pin = {"file": torch.name, "sha256": sha256_of(torch), "size": torch.stat().st_size}
    source = lock.tool(id_).sources[0].model_copy(update=pin)
    tool = lock.tool(id_).model_copy(update={"sources": (source,)})
    cache = Cache(lock.model_copy(update={"tools": {**lock.tools, id_: tool}}), tmp_path / "cache")
    cache.path(id_).parent.mkdir(parents=True)
    torch.rename(cache.path(id_))
    host = Lab(Here())
    host.replacements = {"torch": "torch-cpu"}
    axes = {"recipe": "smoke-attention-torch", "python": "3.11", "archs": "90a"}
    plan = plan_for(tmp_path, host, **axes)
    for wanted, lacks in (("aoti_torch_a", False), ("aoti_torch_b", True)):
        line = line_for(replace(plan, cache=cache))
        module = msvc(fatbin(), imports=MSVC_DLLS | {"torch_cpu.dll": [wanted]}, exports=["f"])
        files = {"pkg/_cuda.dll": module}
        home(line, foreign(tmp_path, "pkg", "1.0", "py3-none-win_amd64", files=files))
        result = refused(line, AUDIT, AuditError, "aoti_torch_b") if lacks else line.do(AUDIT)
        assert isinstance(result, AuditResult)
        checks = {check.label: check for check in result.files[0].checks}
        assert checks["torch symbols 2.10"].failed is lacks
        later = checks["torch symbols 2.15"]
        assert (later.level, later.actual) == (
            "unknown",
            "not read: its wheel is not in the download cache",
        )
        cache.path(id_).unlink(missing_ok=True)  # what it exports is kept


def test_a_wheel_that_changes_after_the_audit(tmp_path: Path) -> None:
    line, session = at_desk(tmp_path)
    run = audited(line, wheel_here(tmp_path))
    kept = run.path / "wheels" / HERE
    with zipfile.ZipFile(kept) as old:
        files = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(kept, "w") as other:  # as good a wheel, of other bytes
        for name, data in files.items():
            other.writestr(name, data)
    with pytest.raises(AuditError, match=r"has sha256 \w{64}, but the file audited in run .* had"):
        run_test(line)
    damage(kept)
    with pytest.raises(AuditError, match="is rejected"):
        run_test(line)
    assert line.run.result(SmokeResult) is None
    assert session.sent == []


def test_a_wheel_that_nobody_has_looked_into(tmp_path: Path) -> None:
    line, session = at_desk(tmp_path)
    run = audited(line, wheel_here(tmp_path))
    (run.path / "wheels" / HERE).rename(run.path / "wheels" / NAME)
    with pytest.raises(AuditError, match="has no audited wheel"):
        run_test(line)
    assert session.sent == []


def test_a_wheel_that_changes_on_its_way_to_the_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = Here.put

    def changing(self: Here, source: Path, target: str, *, progress: Progress | None = None) -> str:
        other = source.with_name("other")
        other.write_bytes(source.read_bytes() + b"!")
        return put(self, other, target, progress=progress)

    monkeypatch.setattr(Here, "put", changing)
    line, _ = at_desk(tmp_path)
    audited(line, wheel_here(tmp_path))
    with pytest.raises(TransferError, match="reached desk with sha256"):
        run_test(line)


# -- what is reported ------------------------------------------------------------------------------


def test_a_wheel_that_changes_before_the_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changing(run: Run) -> Path:
        made = write_run_reports(run)
        damage(run.path / "wheels" / HERE)
        return made

    monkeypatch.setattr("pipelines.reports.write.write_run_reports", changing)

    def job(spec: dict[str, Any]) -> Any:
        yield {"exit": 0, "wheels": [builder.left(packed_here(tmp_path, spec))]}

    line, _ = at_desk(tmp_path, job)
    with pytest.raises(AuditError, match="the audited file had"):
        run_build(line)
    assert not (line.run.path / "manifest.json").exists()


def test_a_manifest_tells_what_a_run_is_worth(tmp_path: Path) -> None:
    line, _ = at_desk(tmp_path)
    host = line.plan.host
    host.capabilities = replace(host.capabilities, publishable=False)
    run = audited(line, wheel_here(tmp_path))
    (run.path / "library").mkdir()
    (run.path / "library/a.lib").write_bytes(b"x")
    used = {"version": "1.2", "sha256": "ab" * 32}
    run.note(tools={"uv": used}, job="j")
    write_manifest(run)
    manifest = json.loads((run.path / "manifest.json").read_text())
    assert manifest["publishable"] is False
    assert manifest["evidence"] == Evidence.SIMULATED
    assert manifest["tools"] == {"uv": used}
    assert manifest["inputs"] | {"job": "j", "host": "lab", "archs": "90a"} == manifest["inputs"]
    assert manifest["seconds"] == {"audit": 1.0}
    assert [file["path"] for file in manifest["files"]] == [f"wheels/{HERE}", "library/a.lib"]
    assert manifest["files"][0]["sha256"] == sha256_of(run.path / "wheels" / HERE)
