"""Runs: the record outlives the process, files appear whole, a full disk is said so."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest

from pipelines.errors import BuildError, ConfigError, HostError, PipelineError, StorageError
from pipelines.files import disk_errors, write_atomic
from pipelines.run import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "out", "demo-cp311", {"host": "h", "archs": None})


def full(*_: object, **__: object) -> NoReturn:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_the_record_survives(run: Run) -> None:
    run.note(job="abc")
    with run.stage("build") as detail:
        detail["tail"] = ["a", "ü"]
    again = Run.open(run.path.parent, run.id)
    assert again.facts()["job"] == "abc"
    assert again.facts()["host"] == "h"
    assert again.facts()["archs"] is None
    assert again.facts()["created"]
    stage = again.stages()["build"]
    assert (stage.state, stage.detail) == ("passed", {"tail": ["a", "ü"]})
    assert stage.seconds is not None
    assert stage.seconds >= 0


def test_a_stage_is_running_meanwhile(run: Run) -> None:
    with run.stage("build"):
        assert run.stages()["build"].state == "running"
        assert run.stages()["build"].seconds is None


@pytest.mark.parametrize(
    ("error", "state", "said", "kind"),
    [
        (BuildError("no", advice="do"), "failed", "no", "build"),
        (KeyboardInterrupt(), "interrupted", "interrupted", "interrupted"),
        (ValueError("odd"), "failed", "ValueError: odd", "internal"),
    ],
)
def test_how_stages_end(run: Run, error: BaseException, state: str, said: str, kind: str) -> None:
    def work() -> None:
        with run.stage("build") as detail:
            detail["kept"] = 1
            raise error

    with pytest.raises(type(error)):
        work()
    stage = run.stages()["build"]
    assert stage.state == state
    assert (stage.detail["error"], stage.detail["kind"], stage.detail["kept"]) == (said, kind, 1)
    assert stage.seconds is not None


def test_stages_keep_their_order(run: Run) -> None:
    for name in ("provision", "build", "audit"):
        with run.stage(name):
            pass
    assert list(run.stages()) == ["provision", "build", "audit"]


def test_latest_moves_on(run: Run) -> None:
    out = run.path.parent
    second = Run.create(out, "demo-cp311", {})
    assert second.id != run.id
    assert Run.open(out).id == second.id
    assert os.readlink(out / "latest") == second.id  # noqa: PTH115
    assert {p.name for p in out.iterdir()} == {run.id, second.id, "latest"}


def test_latest_moves_on_where_links_cannot_be_replaced(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Windows has it with links to directories."""
    real = Path.replace

    def replace(path: Path, target: Path) -> Path:
        if target.is_symlink():
            raise PermissionError(13, "Access is denied", str(path))
        return real(path, target)

    monkeypatch.setattr(Path, "replace", replace)
    second = Run.create(run.path.parent, "demo-cp311", {})
    assert Run.open(run.path.parent).id == second.id
    assert {p.name for p in run.path.parent.iterdir()} == {run.id, second.id, "latest"}


@pytest.mark.parametrize("name", ["nope", "../x", "..", "", "a/b"])
def test_unknown_run(run: Run, name: str) -> None:
    with pytest.raises(ConfigError, match="no run") as caught:
        Run.open(run.path.parent, name)
    assert run.id in caught.value.advice


def test_no_run_yet(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        Run.open(tmp_path / "out")
    assert "invoke build" in caught.value.advice


def test_write_atomic(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_atomic(path, b"one")
    write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_write_atomic_leaves_the_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    monkeypatch.setattr(Path if step == "replace" else os, step, full)
    with pytest.raises(StorageError, match="No space") as caught:
        write_atomic(path, b"new")
    assert caught.value.exit_code == 11
    assert caught.value.advice
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_full_disk_when_a_run_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(StorageError, match="out"):
        Run.create(tmp_path / "out", "x", {})


def test_other_errors_pass(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), disk_errors(tmp_path):
        (tmp_path / "none").read_bytes()


FACTS = {"host": "h", "archs": None}


def test_a_run_that_was_cut_off_is_taken_up_once(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = Run.create(out, "demo", FACTS)
    with pytest.raises(KeyboardInterrupt), first.stage("build"):
        raise KeyboardInterrupt
    assert Run.take_up(out, FACTS) is None, "its own process still has it"
    first.close()
    other = Run.create(out, "demo", {**FACTS, "host": "another"})
    assert Run.take_up(out, {**FACTS, "host": "third"}) is None
    taken = Run.take_up(out, FACTS)
    assert taken is not None
    assert taken.id == first.id
    assert (out / "latest").resolve().name == first.id
    assert Run.take_up(out, FACTS) is None
    taken.close()
    other.close()


@pytest.mark.parametrize(
    ("error", "again"),
    [(HostError("gone"), True), (BuildError("no"), False)],
    ids=["host", "build"],
)
def test_only_what_has_no_outcome_is_taken_up(
    tmp_path: Path, error: PipelineError, again: bool
) -> None:
    run = Run.create(tmp_path, "demo", FACTS)
    with pytest.raises(type(error)), run.stage("build"):
        raise error
    run.close()
    assert (Run.take_up(tmp_path, FACTS) is not None) == again


def test_a_damaged_record_hides_no_other(tmp_path: Path) -> None:
    run = Run.create(tmp_path, "a", FACTS)
    with pytest.raises(KeyboardInterrupt), run.stage("build"):
        raise KeyboardInterrupt
    run.close()
    broken = tmp_path / "99999999-000000-z"
    broken.mkdir()
    (broken / "record.sqlite").write_bytes(b"no database" * 100)
    taken = Run.take_up(tmp_path, FACTS)
    assert taken is not None
    assert taken.id == run.id


def test_jobs_are_remembered(run: Run) -> None:
    run.put_job("build", {"directory": r"C:\b\1", "attempt": 1})
    run.put_job("build", {"directory": r"C:\b\1", "attempt": 2})
    assert Run(run.path).jobs() == {"build": {"directory": r"C:\b\1", "attempt": 2}}
