"""Runs: the record outlives the process, files appear whole, a full disk is said so."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import NoReturn

import pytest
from records import rewrite

from pipelines.core import hosttext
from pipelines.core.errors import (
    AuthError,
    BuildError,
    ConfigError,
    HostError,
    PipelineError,
    StorageError,
    TimeUpError,
)
from pipelines.core.evidence import Evidence
from pipelines.core.files import atomic_output, disk_errors, own_part, write_atomic
from pipelines.core.target import Target
from pipelines.record import seal
from pipelines.record.job import JobRecord
from pipelines.record.results import (
    RESULTS,
    BuildResult,
    CollectResult,
    ProvisionResult,
    ResourceResult,
    RunFacts,
    StageRecord,
    StageResult,
    State,
)
from pipelines.record.run import Run, _hash_record_rows, error_of
from pipelines.record.seal import load_or_create_sealer

FACTS = RunFacts(target=Target(host="h", recipe="demo"))
BUILT = BuildResult(job="j", directory=r"C:\b\j", jobs=2, tail=("a", "ü"))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "out", FACTS)


def full(*_: object, **__: object) -> NoReturn:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_the_record_survives(run: Run) -> None:
    run.note(job="abc")
    run.note(origin="o")
    with run.stage("build") as log:
        assert log.keep(BUILT) is BUILT
    again = Run.open(run.path.parent, run.id)
    assert (again.facts().job, again.facts().origin) == ("abc", "o")
    assert again.facts().target == FACTS.target
    assert again.facts().created
    stage = again.stages()["build"]
    assert (stage.state, stage.result, stage.error) == ("passed", BUILT, None)
    assert again.result(BuildResult) == BUILT
    assert again.result(CollectResult) is None
    assert stage.seconds is not None
    assert stage.seconds >= 0


@pytest.mark.parametrize(
    ("error", "state", "said", "kind"),
    [
        (BuildError("no", hint="do"), "failed", "no", "BuildError"),
        (KeyboardInterrupt(), "interrupted", "interrupted", "Interrupted"),
        (ValueError("odd"), "failed", "ValueError: odd", "ValueError"),
    ],
)
def test_how_stages_end(run: Run, error: BaseException, state: str, said: str, kind: str) -> None:
    def work() -> None:
        with run.stage("build") as log:
            log.keep(BUILT)
            raise error

    with pytest.raises(type(error)):
        work()
    stage = run.stages()["build"]
    assert stage.error is not None
    assert (stage.state, stage.error.message, stage.error.kind) == (state, said, kind)
    assert stage.result == BUILT
    assert stage.seconds is not None


def test_stages_keep_their_order(run: Run) -> None:
    for name in ("provision", "build", "audit"):
        with run.stage(name):
            stage = run.stages()[name]
            assert (stage.state, stage.seconds) == ("running", None)
    assert list(run.stages()) == ["provision", "build", "audit"]


def test_latest_moves_on(run: Run) -> None:
    out = run.path.parent
    second = Run.create(out, FACTS)
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
    second = Run.create(run.path.parent, FACTS)
    assert Run.open(run.path.parent).id == second.id
    assert {p.name for p in run.path.parent.iterdir()} == {run.id, second.id, "latest"}


class DeniedError(OSError):
    """As Windows words it."""

    winerror = 1314


def test_latest_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few accounts of Windows may make one: names begin with the time."""

    def symlink_to(*_: object) -> NoReturn:
        raise DeniedError("a privilege is not held")

    monkeypatch.setattr(Path, "symlink_to", symlink_to)
    runs = [Run.create(tmp_path, FACTS) for _ in range(2)]
    assert not (tmp_path / "latest").exists()
    assert Run.open(tmp_path).id == runs[1].id
    shutil.copytree(runs[0].path, tmp_path / "yesterday")
    assert Run.open(tmp_path).id == runs[1].id, "a copy under another name is not the latest"
    monkeypatch.setattr(DeniedError, "winerror", 5)
    with pytest.raises(OSError, match="privilege"):
        Run.create(tmp_path, FACTS)


@pytest.mark.parametrize("name", ["nope", "../x", "..", "", "a/b"])
def test_unknown_run(run: Run, name: str) -> None:
    with pytest.raises(ConfigError, match="no run") as caught:
        Run.open(run.path.parent, name)
    assert run.id in caught.value.hint


def test_no_run_yet(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        Run.open(tmp_path / "out")
    assert "invoke build" in caught.value.hint


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
    monkeypatch.setattr(os, step, full)
    with pytest.raises(StorageError, match="No space") as caught:
        write_atomic(path, b"new")
    assert caught.value.exit_code == 11
    assert caught.value.hint
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_breaks_off_leaves_the_old_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.bin"
    for part in (None, own_part(path)):
        with atomic_output(path, part) as new:
            new.write_bytes(b"old")
        with suppress(StorageError), atomic_output(path, part) as new:
            new.write_bytes(b"half")
            raise StorageError("not the pinned one")
        assert path.read_bytes() == b"old"
        assert list(path.parent.iterdir()) == [path]


def test_full_disk_when_a_run_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(StorageError, match="out"):
        Run.create(tmp_path / "out", FACTS)


def test_a_file_in_place_of_a_directory_is_no_fault(tmp_path: Path) -> None:
    """Such as with HOME=/dev/null."""
    with pytest.raises(StorageError), disk_errors(tmp_path):
        Path("/dev/null/seal.pem").read_bytes()


def test_other_errors_pass(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), disk_errors(tmp_path):
        (tmp_path / "none").read_bytes()


def test_an_error_is_recorded_as_what_it_is_a_kind_of(tmp_path: Path) -> None:
    """A build that lost its host goes on, wherever the error of that has a class of its own."""

    class NoProgramError(HostError):
        pass

    run = Run.create(tmp_path, FACTS)
    with pytest.raises(NoProgramError), run.stage("build"):
        raise NoProgramError("there is no Python")
    error = run.stages()["build"].error
    assert error is not None
    assert error.kind == "HostError"
    run.close()
    assert Run.take_up(tmp_path, FACTS) is not None


def test_a_run_that_was_cut_off_is_taken_up_once(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = Run.create(out, FACTS)
    with pytest.raises(KeyboardInterrupt), first.stage("build"):
        raise KeyboardInterrupt
    assert Run.take_up(out, FACTS) is None, "its own process still has it"
    first.close()
    other = Run.create(out, RunFacts(target=Target(host="another")))
    assert Run.take_up(out, RunFacts(target=Target(host="third"))) is None
    taken = Run.take_up(out, FACTS)
    assert taken is not None
    assert taken.id == first.id
    assert (out / "latest").resolve().name == first.id
    assert Run.take_up(out, FACTS) is None
    taken.close()
    other.close()


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (HostError("gone"), True),
        (AuthError("refused"), True),
        (TimeUpError("time is up"), True),
        (BuildError("no"), False),
    ],
    ids=["host", "sign-in", "time", "build"],
)
def test_only_what_has_no_outcome_is_taken_up(
    tmp_path: Path, error: PipelineError, again: bool
) -> None:
    run = Run.create(tmp_path, FACTS)
    with pytest.raises(type(error)), run.stage("build"):
        raise error
    run.close()
    assert (Run.take_up(tmp_path, FACTS) is not None) == again


def cut(out: Path, facts: RunFacts = FACTS) -> Run:
    """A run whose build was interrupted, and that is not in use."""
    run = Run.create(out, facts)
    run.put_stage(StageRecord(name="build", state="interrupted", started=1.0))
    run.close()
    return run


@pytest.mark.parametrize(
    "other",
    [
        {"target": Target(host="h", recipe="demo", python="3.12")},
        {"jobs": 2},
        {"evidence": Evidence.WRITTEN},
        {"publishable": True},
        {"taken_from": {"recipe": "the user's repository"}},
        {"given": True},
    ],
    ids=lambda other: next(iter(other)),
)
def test_only_the_same_order_is_taken_up(tmp_path: Path, other: dict[str, object]) -> None:
    first = cut(tmp_path)
    assert Run.take_up(tmp_path, FACTS.model_copy(update=other)) is None
    taken = Run.take_up(tmp_path, FACTS.model_copy(update={"job": "found out meanwhile"}))
    assert taken is not None
    assert taken.id == first.id


@pytest.mark.parametrize("state", ["running", "interrupted"])
def test_a_controller_that_was_killed_has_left_a_run(tmp_path: Path, state: State) -> None:
    run = cut(tmp_path)
    run.put_stage(StageRecord(name="build", state=state, started=1.0))
    assert Run.take_up(tmp_path, FACTS) is not None


def test_the_latest_of_them_is_taken_up(tmp_path: Path) -> None:
    cut(tmp_path)
    second = cut(tmp_path)
    taken = Run.take_up(tmp_path, FACTS)
    assert taken is not None
    assert taken.id == second.id


@pytest.mark.parametrize("done", [True, False])
def test_what_was_built_since_is_not_built_again(tmp_path: Path, done: bool) -> None:
    """Nor is a run taken up whose latest one has not come to its build."""
    cut(tmp_path)
    second = Run.create(tmp_path, FACTS)
    if done:
        second.put_stage(StageRecord(name="build", state="passed", started=1.0))
    second.close()
    assert Run.take_up(tmp_path, FACTS) is None


def test_a_run_that_ends_at_this_moment_is_not_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, hold = cut(tmp_path), Run.hold

    def ended(self: Run) -> bool:
        self.put_stage(StageRecord(name="build", state="passed", started=1.0))
        return hold(self)

    monkeypatch.setattr(Run, "hold", ended)
    assert Run.take_up(tmp_path, FACTS) is None
    assert hold(run), "and it is let go of"


def test_neither_a_damaged_record_nor_a_copy_hides_a_run(tmp_path: Path) -> None:
    run = Run.create(tmp_path, FACTS)
    run.close()
    shutil.copytree(run.path, tmp_path / "zz-copy")
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
    first = JobRecord(host="h", directory=r"C:\b\1", attempt=1, base=0, offset=7)
    second = first.model_copy(update={"attempt": 2, "lost": ("restarted",)})
    run.put_job("build", first)
    run.put_job("build", second)
    assert Run(run.path).job("build") == second
    assert run.job("smoke") is None


def test_a_stage_that_is_put_replaces_the_one_before(run: Run) -> None:
    row = ResourceResult(id="uv", kind="program", wanted="1", found="1", ok=True, values={"v": "1"})
    kept = StageRecord(
        name="provision",
        state="passed",
        started=1.0,
        seconds=2.0,
        result=ProvisionResult(resources=(row,)),
    )
    for state in ("running", "passed"):
        run.put_stage(kept.model_copy(update={"state": state}))
    assert run.stages() == {"provision": kept}


def test_a_result_that_cannot_be_read_is_missing(run: Run) -> None:
    run.put_stage(StageRecord(name="build", state="passed", started=1.0, result=BUILT))
    for text, said in (('{"job": 1}', "job: "), ("{", "Expecting property name")):
        rewrite(run, "UPDATE stages SET result = ?", (text,))
        stage = run.stages()["build"]
        assert (stage.state, stage.result) == ("passed", None)
        assert stage.unread.startswith("the result of build cannot be read: ")
        assert said in stage.unread
        with pytest.raises(ConfigError, match="the result of build cannot be read"):
            run.result(BuildResult)  # not as if the build had left nothing


def test_the_message_of_an_error_is_bounded(run: Run) -> None:
    with pytest.raises(HostError), run.stage("build"):
        raise HostError("m" * 1_000_000, hint="a" * 1_000_000)
    error = run.stages()["build"].error
    assert error is not None
    assert (len(error.message), len(error.hint)) == (20_000, 20_000)


@pytest.mark.parametrize("version", ["0", "2", "4", '"3 or so"', None])
def test_a_record_of_another_version_is_not_read(run: Run, version: str | None) -> None:
    if version is None:
        rewrite(run, "DELETE FROM facts WHERE key = 'schema_version'")
    else:
        rewrite(run, "UPDATE facts SET value = ? WHERE key = 'schema_version'", (version,))
    with pytest.raises(ConfigError, match="it is of version") as caught:
        run.facts()
    assert "damaged or of another version" in caught.value.hint
    run.close()
    assert Run.take_up(run.path.parent, FACTS) is None


def test_every_result_has_the_name_of_its_stage() -> None:
    assert {*RESULTS.values()} == {*StageResult.__subclasses__()}, "two have the same name"


def test_what_is_read_is_left_as_it_was(tmp_path: Path) -> None:
    record = tmp_path / "out/broken/record.sqlite"
    record.parent.mkdir(parents=True)
    record.touch()
    with pytest.raises(ConfigError, match="has no readable record"):
        Run.open(tmp_path / "out", "broken").facts()
    assert record.stat().st_size == 0


def test_the_record_is_in_wal_mode(run: Run) -> None:
    """Whatever kills the process, what was written is whole."""
    with closing(sqlite3.connect(run.path / "record.sqlite")) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_record_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "record.sqlite").mkdir()
    run = Run(tmp_path)
    with pytest.raises(StorageError, match="cannot use the record in"):
        run.put_stage(StageRecord(name="build", state="running", started=1.0))
    with pytest.raises(ConfigError, match="has no readable record"):
        run.stages()


def test_a_job_that_cannot_be_read(run: Run) -> None:
    run.put_job("build", JobRecord(host="h", directory="d", attempt=1, base=0, offset=0))
    rewrite(run, "UPDATE jobs SET value = '{'")
    with pytest.raises(ConfigError, match="has no readable record"):
        run.job("build")


def test_no_secret_is_written_down(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosttext, "_secrets", {"correct-horse"})
    kept = BUILT.model_copy(update={"tail": ("signed in with correct-horse",)})

    def work() -> None:
        with run.stage("build") as log:
            log.keep(kept)
            raise BuildError("correct-horse is wrong", hint="not correct-horse")

    with pytest.raises(BuildError):
        work()
    run.note(origin="correct-horse")
    run.put_job(
        "build", JobRecord(host="h", directory="correct-horse", attempt=1, base=0, offset=0)
    )
    assert run.stages()["build"].result is not None
    written = [path.read_bytes() for path in run.path.iterdir() if path.is_file()]
    assert not [data for data in written if b"correct-horse" in data]
    for error in (BuildError("correct-horse", hint="correct-horse"), OSError("correct-horse")):
        assert "correct-horse" not in error_of(error).model_dump_json()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE stages SET state = 'passed'",
        "AGREEING",
        "UPDATE stages SET started = started + 1",
        "UPDATE stages SET name = 'audit'",
        "DELETE FROM stages",
        "INSERT INTO stages SELECT 'test', 'passed', started, seconds, error, result FROM stages",
        "UPDATE facts SET value = 'true' WHERE key = 'publishable'",
        "INSERT INTO facts VALUES ('more', '1')",
        "DELETE FROM jobs",
        "UPDATE seals SET rows = '{}' WHERE number = 1",
        "UPDATE seals SET sealer = (SELECT substr(sealer, 3) || 'ab' FROM seals)",
        "UPDATE seals SET signature = (SELECT signature FROM seals LIMIT 1)",
        "UPDATE seals SET number = -1 WHERE number = (SELECT max(number) FROM seals)",
        "DELETE FROM seals WHERE number = (SELECT max(number) FROM seals)",
        "DELETE FROM seals WHERE number = 0",
        "DELETE FROM seals",
        "DROP TABLE seals",
    ],
)
def test_a_record_that_was_changed_is_not_read_or_written(run: Run, change: str) -> None:
    """And is not sealed again by what is written to it later."""
    run.put_job("build", JobRecord(host="h", directory="d", attempt=1, base=0, offset=0))
    run.put_stage(StageRecord(name="build", state="failed", started=1.0, result=BUILT))
    with closing(sqlite3.connect(run.path / "record.sqlite")) as database, database:
        if change == "AGREEING":  # the row, and its hash in the last entry
            database.execute("UPDATE stages SET state = 'passed'")
            rows = json.dumps(
                {k: v for k, v in _hash_record_rows(database).items() if "stages/" in k}
            )
            change = "UPDATE seals SET rows = ? WHERE number = (SELECT max(number) FROM seals)"
        database.execute(change, (rows,) if "?" in change else ())
    uses: list[Callable[[], object]] = [run.facts, run.stages, lambda: run.result(BuildResult)]
    uses += [lambda: run.job("build"), lambda: run.note(publishable=True), lambda: run.sealers]
    for use in uses:
        with pytest.raises((ConfigError, StorageError), match="record"):
            use()


def test_a_record_names_who_wrote_it(run: Run) -> None:
    """One that others have changed and sealed again names their key."""
    mine = load_or_create_sealer().identity
    run.put_stage(StageRecord(name="build", state="failed", started=1.0))
    assert {*run.sealers.values()} == {mine}
    other = rewrite(run, "UPDATE stages SET state = 'passed'")
    assert run.stages()["build"].state == "passed"
    assert {*run.sealers.values()} == {other.identity}
    run.put_stage(StageRecord(name="test", state="passed", started=2.0))
    assert {*run.sealers.values()} == {mine, other.identity}
    assert run.sealers["stages/test"] == mine


def test_what_a_job_is_at_does_not_make_the_seal_long(run: Run) -> None:
    for offset in range(50):
        job = JobRecord(host="h", directory="d", attempt=1, base=0, offset=offset)
        run.put_job("build", job)
    assert run.job("build") == job
    with closing(sqlite3.connect(run.path / "record.sqlite")) as database:
        assert database.execute("SELECT count(*) FROM seals").fetchone() == (2,)


def test_the_key_is_made_once_for_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(seal.VARIABLE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with ThreadPoolExecutor(8) as pool:
        made = {one.identity for one in pool.map(lambda _: load_or_create_sealer(), range(8))}
    assert len(made) == 1
    if os.name != "nt":
        assert seal.key_file().stat().st_mode & 0o077 == 0
    assert [path.name for path in seal.key_file().parent.iterdir()] == ["seal.pem"]
    seal.key_file().write_bytes(b"no key")
    with pytest.raises(ConfigError, match=r"seal\.pem"):
        load_or_create_sealer()


def test_links_that_are_only_reported_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wine says of each that it made it."""
    monkeypatch.setattr(Path, "symlink_to", lambda *_, **__: None)
    run = Run.create(tmp_path, FACTS)
    assert [path.name for path in tmp_path.iterdir()] == [run.id]
    assert Run.open(tmp_path).id == run.id
