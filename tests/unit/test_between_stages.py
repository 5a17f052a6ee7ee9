"""From stage to stage: what a line hands on, does once, refuses, and tells at its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from plans import at_desk, audited, changed, wanting
from wheels import packed_here, wheel_here

from pipelines.core.errors import BuildError, ConfigError, PipelineError, StorageError
from pipelines.plan.provisioning.resources import DesiredResource
from pipelines.record.results import (
    BuildResult,
    ProvisionResult,
    SmokeResult,
    UsedTool,
)
from pipelines.record.run import Run
from pipelines.remote import builder
from pipelines.remote import facts as remote_facts
from pipelines.remote import provision as remote_provision
from pipelines.stages.line import run_build, run_provision, run_test


def no_suite(spec: dict[str, Any]) -> Any:
    """A test that fails before the first case."""
    yield {"exit": 1, "step": "venv"}


def good(tmp_path: Path) -> Any:
    """A build that leaves a wheel as it is wanted."""

    def job(spec: dict[str, Any]) -> Any:
        yield {"exit": 0, "wheels": [builder.left(packed_here(tmp_path, spec))]}

    return job


def test_a_host_is_provisioned_once(tmp_path: Path) -> None:
    line, session = at_desk(tmp_path, good(tmp_path))
    run_provision(line)
    assert line.provisioned is not None
    run_build(line)
    assert line.run.stages()["provision"] == line.provisioned, "what was done before is told"
    assert line.run.result(ProvisionResult) is not None
    assert session.times(remote_provision.check_all) == 1
    again, session = at_desk(tmp_path, good(tmp_path))
    run_build(again)
    run_build(again)
    assert session.times(remote_provision.check_all) == 1


def test_a_run_tells_what_it_was_made_with(tmp_path: Path) -> None:
    line, session = at_desk(tmp_path, good(tmp_path))
    facts = {"platform": "linux", "cpus": 3, "python": "3.11.9", "windows": {"version": "10.0.1"}}
    session.answers[remote_facts.facts] = facts
    tools = {"uv": "/uv", "ninja": "/ninja", "vc-redist": "/setup.exe"}
    wanting(line, DesiredResource("x", "w", {"kind": "directory"}, tools, "s"))
    there = {"uv": "1" * 64, "/ninja": "2" * 64, "vc-redist": "C:/vcruntime.dll"}
    session.answers[remote_provision.check_all] = [{"ok": True, "found": "x", "values": there}]
    run_build(line)
    known = line.run.facts()
    lock = line.plan.cache.lock
    computed = {"uv": "1" * 64, "ninja": "2" * 64, "vc-redist": None}
    assert known.tools == {
        name: UsedTool(version=lock.tool(name).version, sha256=sha256)
        for name, sha256 in computed.items()
    }, "what the host has hashed, not what the lock has: of an installed program nothing is known"
    assert known.host is not None
    assert (known.host.cpus, known.host.python, known.host.windows) == (3, "3.11.9", "10.0.1")
    assert list(line.run.stages()) == ["provision", "build", "collect", "audit"]
    built = line.run.result(BuildResult)
    assert built is not None
    assert built.jobs == 3, "as many as the host has cores"


def test_a_build_that_was_cut_off_is_gone_on_with(tmp_path: Path) -> None:
    def left(spec: dict[str, Any]) -> Any:
        yield b"one\n"
        raise KeyboardInterrupt

    line, session = at_desk(tmp_path, left)
    with pytest.raises(KeyboardInterrupt):
        run_build(line)
    first = line.run.id
    assert (line.run.path / "junit.xml").exists()
    line.run.close()
    session.job = good(tmp_path)
    run_build(line)
    assert line.run.id == first


def test_a_host_is_made_ready_for_a_test(tmp_path: Path) -> None:
    line, session = at_desk(tmp_path, no_suite)
    run = audited(line, wheel_here(tmp_path))
    with pytest.raises(PipelineError, match="venv exited with 1"):
        run_test(line)
    assert session.times(remote_provision.check_all) == 1
    assert "venv exited with 1" in (run.path / "junit.xml").read_text()
    assert (run.path / "manifest.json").exists()


def test_the_run_that_is_named_is_tested(tmp_path: Path) -> None:
    line, _ = at_desk(tmp_path, no_suite)
    first = audited(line, wheel_here(tmp_path))
    line.begin_run()
    with pytest.raises(BuildError, match="has no wheel that passed"):
        run_test(line)
    for name in (first.id, str(first.path)):
        with pytest.raises(PipelineError, match="venv exited with 1"):
            run_test(line, run=name)
        assert line.run.id == first.id
        assert first.result(SmokeResult) is not None


@pytest.mark.parametrize(
    ("axis", "other", "said", "hint"),
    [
        ("archs", "80", "is for archs 90a, not 80", "invoke test --archs '90a'"),
        ("cuda", "12.8", "is for cuda 13.0, not 12.8", "invoke build --cuda '12.8' test"),
        ("version", "2", "is for version None, not 2", "invoke build --recipe-version '2' test"),
        ("host", "other", "", ""),
    ],
)
def test_a_wheel_is_tested_for_what_it_was_built(
    tmp_path: Path, axis: str, other: str, said: str, hint: str
) -> None:
    """On whatever host."""
    line, _ = at_desk(tmp_path, no_suite)
    audited(line, wheel_here(tmp_path))
    values = line.plan.target.values() | {axis: other}
    line.plan = changed(line.plan, target=type(line.plan.target).model_validate(values))
    with pytest.raises(
        ConfigError if said else PipelineError, match=said or "venv exited"
    ) as caught:
        run_test(line)
    assert hint in caught.value.hint


def test_reports_that_cannot_be_written_hide_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(_: Run) -> Path:
        raise StorageError("the disk is full")

    monkeypatch.setattr("pipelines.reports.write.write_run_reports", full)
    line, _ = at_desk(tmp_path, lambda spec: iter([{"exit": 0}]))
    with pytest.raises(BuildError, match="produced no wheel"):
        run_build(line)
    said = capsys.readouterr().out
    assert "the reports could not be written either: the disk is full" in said
