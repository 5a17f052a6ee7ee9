"""The fleet's ledger: whole whatever happens, one scheduler at a time, orders from others."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from fleets import cell, end, machine

from pipelines.core.errors import ConfigError, StorageError
from pipelines.core.paths import PACKAGE
from pipelines.fleet.ledger import FILE, Ledger


def made(out: Path, order: str = "order") -> Ledger:
    ledger = Ledger.create(out, order, 1_000.0)
    ledger.put([cell("x"), cell("y", after=("x",))], [machine("a"), machine("b")], 1_000.0)
    return ledger


def test_what_is_put_comes_back(tmp_path: Path) -> None:
    ledger = made(tmp_path)
    entries, hosts = ledger.tasks(), ledger.hosts()
    assert [one.task for one in entries] == [cell("x"), cell("y", after=("x",))]
    assert [one.machine for one in hosts] == [machine("a"), machine("b")]
    with ledger.change(1_010.0) as change:
        change.task(entries[0], state="running", host="a", attempt=1, losses={"b": 2}, died=("b",))
        change.begin("x", 1, "a")
        change.host(hosts[0], state="up")
    ledger.close()
    again = Ledger(ledger.path)
    assert again.tasks() == entries
    assert again.hosts() == hosts
    assert entries[0].since == 1_010.0
    (attempt,) = again.attempts()
    assert (attempt.host, attempt.began, attempt.outcome) == ("a", 1_010.0, None)
    again.close()


def test_put_again_keeps_where_tasks_stand(tmp_path: Path) -> None:
    ledger = made(tmp_path)
    (x, _) = ledger.tasks()
    with ledger.change(1_010.0) as change:
        change.task(x, state="done")
    ledger.put([cell("x", 5.0), cell("z")], [machine("b")], 1_020.0)
    assert [(e.task.key, e.state) for e in ledger.tasks()] == [
        ("x", "done"),
        ("y", "waiting"),
        ("z", "waiting"),
    ]
    a, b = ledger.hosts()
    assert (a.state, a.why, b.state) == ("refused", "it is no longer among the hosts", "coming")
    ledger.close()


def test_a_change_is_whole_or_not_at_all(tmp_path: Path) -> None:
    ledger = made(tmp_path)
    x = ledger.tasks()[0]

    def interrupted() -> None:
        with ledger.change(2_000.0) as change:
            change.task(x, state="done")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    ledger.close()
    again = Ledger(ledger.path)
    assert [one.state for one in again.tasks()] == ["waiting", "waiting"]
    again.close()


def test_an_end_is_never_before_its_beginning(tmp_path: Path) -> None:
    ledger = made(tmp_path)
    with ledger.change(5_000.0) as change:
        change.begin("x", 1, "a")
    with ledger.change(1_400.0) as change:  # the clock was put back an hour
        change.end(end("x", "a"))
    (attempt,) = ledger.attempts()
    assert (attempt.began, attempt.ended) == (5_000.0, 5_000.0)
    ledger.close()


def test_a_second_controller_is_refused(tmp_path: Path) -> None:
    ledger = made(tmp_path)
    other = Ledger(ledger.path)  # to look is allowed
    assert len(other.tasks()) == 2
    with pytest.raises(ConfigError, match="another process uses fleet-"):
        other.hold()
    ledger.close()
    other.hold()
    other.close()


def test_found_by_its_order_until_it_has_ended(tmp_path: Path) -> None:
    ledger = made(tmp_path, "mine")
    ledger.close()
    made(tmp_path, "another").close()
    found = Ledger.find(tmp_path, "mine")
    assert found is not None
    assert found.path == ledger.path
    assert Ledger.find(tmp_path, "nobody's") is None
    with found.change(9.0) as change:
        change.fact("ended", "9.0")
    found.close()
    assert Ledger.find(tmp_path, "mine") is None


def test_orders_of_others(tmp_path: Path) -> None:
    ledger = made(tmp_path)
    seen = ledger.foreign_changes()
    other = Ledger(ledger.path)
    number = other.order("drain", "a", at=1.0)
    assert ledger.foreign_changes() != seen
    (order,) = ledger.open_orders()
    assert (order.id, order.verb, order.subject) == (number, "drain", "a")
    assert other.answer(number) is None
    with ledger.change(2.0) as change:
        change.answer(order, "done")
    assert other.answer(number) == "done"
    assert ledger.open_orders() == []
    for verb, subject in (("drain", "x"), ("cancel", "a"), ("priority", "x\x1b[31m")):
        with pytest.raises(ConfigError, match="has no") as caught:
            other.order(verb, subject, at=3.0)  # type: ignore[arg-type]
        assert "\x1b" not in caught.value.message
    other.close()
    ledger.close()


def read(path: Path) -> None:
    ledger = Ledger(path)
    try:
        ledger.tasks()
        ledger.hosts()
    finally:
        ledger.close()


@pytest.mark.parametrize(
    "harm", ["middle", "cut", "text", "version", "row", "table", "stand", "since", "state"]
)
def test_a_damaged_ledger_is_refused(tmp_path: Path, harm: str) -> None:
    ledger = made(tmp_path)
    ledger.close()
    file = ledger.path / FILE
    data = file.read_bytes()
    if harm == "middle":
        file.write_bytes(data[:4096] + random.Random(1).randbytes(len(data) - 4096))
    elif harm == "cut":
        file.write_bytes(data[: len(data) // 2])
    elif harm == "text":
        file.write_text("no database at all, but long enough to be read as one" * 20)
    else:
        words = {
            "version": "UPDATE facts SET value = '99' WHERE key = 'schema'",
            "row": """UPDATE tasks SET task = '{"key": "x", "evil": true}'""",
            "table": "DROP TABLE tasks",
            "stand": "UPDATE tasks SET state = 'bogus'",
            "since": "UPDATE tasks SET since = 'yesterday'",
            "state": "UPDATE hosts SET state = 'bogus'",
        }
        with sqlite3.connect(file) as database:
            database.execute(words[harm])
        database.close()
    with pytest.raises(ConfigError, match=r"no readable ledger|of version 99, not 4"):
        read(ledger.path)
    if harm in ("text", "version"):  # those of which nothing can be said are passed over, aloud
        passed: list[str] = []
        assert Ledger.find(tmp_path, "order", passed.append) is None
        assert ledger.path.name in passed[0]


def test_an_order_that_is_none_is_damage(tmp_path: Path) -> None:
    """And not taken for the last one of those that there are."""
    with contextlib.closing(made(tmp_path)) as ledger:
        with ledger.change(1.0) as change:
            change.database.execute(
                "INSERT INTO orders (at, verb, subject, number) VALUES (1, 'bogus', 'x', 1)"
            )
        with pytest.raises(ConfigError, match="no readable ledger"):
            ledger.open_orders()


def test_a_ledger_that_cannot_be_read_now_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or its tasks would be begun a second time."""
    made(tmp_path).close()

    def locked(*_: object) -> str:
        raise StorageError("cannot use the ledger: database is locked")

    monkeypatch.setattr(Ledger, "fact", locked)
    with pytest.raises(StorageError, match="locked"):
        Ledger.find(tmp_path, "order")


def test_a_directory_without_a_ledger(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a fleet"):
        Ledger(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_takes_no_more(tmp_path: Path) -> None:
    ledger = made(tmp_path)
    before = [one.state for one in ledger.tasks()]
    pages = ledger.rows("PRAGMA page_count")[0][0]
    ledger.rows(f"PRAGMA max_page_count = {pages}")  # SQLITE_FULL, as a full disk says it
    x = ledger.tasks()[0]

    def much() -> None:
        with ledger.change(2.0) as change:
            change.task(x, state="done")
            for _ in range(2000):
                change.event("much", message="words " * 50)

    with pytest.raises(StorageError, match=r"cannot use the ledger in .*full"):
        much()
    ledger.close()
    again = Ledger(ledger.path)
    assert [one.state for one in again.tasks()] == before
    again.close()


@pytest.mark.slow
def test_killed_while_it_writes(tmp_path: Path) -> None:
    """A real kill -9: what was said to be written is there, and nothing by halves."""
    ledger = made(tmp_path)
    ledger.close()
    program = """
        import sys, time
        from pathlib import Path
        from pipelines.fleet.ledger import Ledger
        ledger = Ledger(Path(sys.argv[1])); ledger.hold()
        for n in range(1, 100_000):
            with ledger.change(float(n)) as change:
                change.begin("x", n, "a")
                change.event("first", message=str(n))
                change.event("second", message=str(n))
            print(n, flush=True)
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), str(ledger.path)],
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    for _ in range(20):
        child.stdout.readline()
    child.kill()
    written = [20, *(int(line) for line in child.stdout.read().split("\n")[:-1])]
    child.wait()
    child.stdout.close()
    again = Ledger(ledger.path)
    again.hold()  # its lock died with it
    attempts = [one.attempt for one in again.attempts()]
    firsts, seconds = (
        [e.message for e in again.events() if e.what == w] for w in ("first", "second")
    )
    assert attempts == list(range(1, len(attempts) + 1))
    assert firsts == seconds == [str(n) for n in attempts]
    assert len(attempts) >= max(written)
    again.close()


def test_to_look_does_not_wait_for_who_writes(tmp_path: Path) -> None:
    ledger = made(tmp_path)
    other = Ledger(ledger.path)
    with ledger.change(5.0) as change:
        change.event("long")
        began = time.monotonic()
        assert len(other.tasks()) == 2
        assert other.events() == []
        assert time.monotonic() - began < 5
    assert [one.what for one in other.events()] == ["long"]
    other.close()
    ledger.close()
