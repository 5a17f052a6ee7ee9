"""``invoke fleet``: what it shows, and the orders that it leaves for the command that runs it."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.cli import fleet as command
from pipelines.cli.program import run_command_line
from pipelines.core.errors import INTERRUPTED, AuditError, BuildError, ConfigError, HostError
from pipelines.core.units import GIB
from pipelines.fleet.history import fleet_state
from pipelines.fleet.ledger import Ledger
from pipelines.fleet.model import Machine, Task, TaskState
from pipelines.fleet.run import exit_code_of
from pipelines.record.results import ErrorResult

Captured = pytest.CaptureFixture[str]
CELL = Task(key="pkg-cp311", kind="cell", cell="pkg-cp311", core_seconds=60, hosts=("a", "b"))
TEST = CELL.model_copy(update={"key": "pkg-cp311/test", "kind": "test", "after": ("pkg-cp311",)})


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "pipeline.yaml"
    path.write_text(f"hosts: {{a: {{kind: sandbox}}}}\nout: '{tmp_path}/out'\n")
    monkeypatch.setenv("WCW_CONFIG", str(path))
    monkeypatch.setattr(command, "_PATIENCE", 0.0)
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.fixture
def ledger(out: Path) -> Iterator[Ledger]:
    """A fleet on two hosts that is not at its end."""
    made = Ledger.create(out, "hash")
    machines = [Machine(name=name, cores=4, memory=8 * GIB) for name in "ab"]
    made.put([CELL, TEST], machines, time.time())
    yield made
    made.close()


def said(words: str, capsys: Captured, code: int = 0) -> str:
    assert run_command_line(words.split()) == code
    told = capsys.readouterr()
    return told.err if code else told.out


def test_without_a_fleet_it_says_so(out: Path, capsys: Captured) -> None:
    assert f"there is no fleet in {out}" in said("fleet", capsys, ConfigError.exit_code)
    assert "no fleet fleet-x" in said("fleet --name fleet-x", capsys, ConfigError.exit_code)


def test_it_shows_the_latest_to_people_and_programs(ledger: Ledger, capsys: Captured) -> None:
    shown = said("fleet", capsys)
    assert "2 waiting" in shown
    assert "pkg-cp311" in shown
    told = json.loads(said("fleet --json", capsys))
    assert (told["schema"], told["tasks"]) == (2, {"waiting": 2})
    assert "2 waiting" in said(f"fleet --name {ledger.path.name}", capsys)


def test_a_dry_run_names_tasks_and_hosts_and_leaves_nothing(out: Path, capsys: Captured) -> None:
    flags = "--fleet --recipe smoke-attention-torch --python 3.11 --shards 2"
    shown = said(f"build test --dry-run {flags}", capsys).splitlines()
    key = "smoke-attention-torch-cp311-torch2.10-cu130"
    assert shown[:-1] == [f"{key}{part}: a" for part in ("/1of2", "/2of2", "", "/test")]
    assert not [*out.iterdir()]
    refused = "build --dry-run --fleet --recipe flash-attn"
    assert "no host of the fleet" in said(refused, capsys, ConfigError.exit_code)


def test_orders_are_left_in_the_ledger(ledger: Ledger, capsys: Captured) -> None:
    for words in ("pause", "drain a", "priority pkg-cp311 5", "cancel pkg-cp311"):
        assert "noted" in said(f"fleet {words}", capsys)
    found = [(one.verb, one.subject, one.number) for one in ledger.open_orders()]
    assert found == [
        ("pause", "", 0),
        ("drain", "a", 0),
        ("priority", "pkg-cp311", 5),
        ("cancel", "pkg-cp311", 0),
    ]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("dance", "unknown order"),
        ("drain", "expected drain HOST"),
        ("pause a", "expected pause"),
        ("drain nobody", "no host 'nobody'"),
        ("cancel nothing", "no task 'nothing'"),
        ("priority pkg-cp311 high", "expected a whole number"),
        ("priority pkg-cp311 1.5", "expected a whole number"),
        ("priority pkg-cp311 1000001", "expected a whole number"),
        ("priority pkg-cp311 1_000", "expected a whole number"),
        (f"priority pkg-cp311 {'9' * 5000}", "expected a whole number"),
        ("priority pkg-cp311", "expected priority TASK NUMBER"),
        ("pause --json", "--json shows a fleet"),
    ],
)
def test_what_is_no_order_is_refused(
    ledger: Ledger, capsys: Captured, words: str, told: str
) -> None:
    message = " ".join(said(f"fleet {words}", capsys, ConfigError.exit_code).split())
    assert told in message
    assert len(message) < 500
    assert ledger.open_orders() == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("build --fleet --hosts lab/a", "unknown host 'lab/a'"),
        ("build --fleet --hosts a,a", "'a' is named twice"),
        ("build --fleet --archs native", "--archs native means one host's GPUs"),
        ("build --fleet --recipe flash-attn", "no host of the fleet can build any"),
        ("plan --fleet", "--fleet"),
        ("build --hosts a", "--hosts a needs --fleet"),
        ("build test --hosts a", "--hosts a needs --fleet"),
    ],
)
def test_a_fleet_that_cannot_be_is_refused(
    out: Path, capsys: Captured, words: str, told: str
) -> None:
    assert told in " ".join(said(words, capsys, ConfigError.exit_code).split())
    assert not [*out.iterdir()]


def test_a_fleet_that_is_over_takes_no_orders_but_retry(
    ledger: Ledger, out: Path, capsys: Captured
) -> None:
    with ledger.change(time.time()) as change:
        change.fact("ended", "1.0")
    assert Ledger.find(out, "hash") is None
    assert "has ended" in said("fleet pause", capsys, ConfigError.exit_code)
    assert "noted" in said("fleet retry pkg-cp311", capsys)
    found = Ledger.find(out, "hash")
    assert found is not None, "the same command goes on with it"
    assert [one.verb for one in found.open_orders()] == ["retry"]
    found.close()


def test_how_a_fleet_stands(ledger: Ledger) -> None:
    cell, test = ledger.tasks()
    a, b = ledger.hosts()
    error = ErrorResult(kind="HostError", title="host", message="no route")
    with ledger.change(100.0) as change:
        change.host(a, state="up")
        change.host(b, state="aside", why="no route")
        change.begin(CELL.key, 1, "a")
        change.task(cell, state="running", host="a", attempt=1)
    now = fleet_state(ledger)
    assert now.tasks == {"running": 1, "waiting": 1}
    assert [(one.machine.name, one.status, one.why) for one in now.hosts] == [
        ("a", "ready", ""),
        ("b", "aside", "no route"),
    ]
    (progress,) = now.hosts[0].running
    assert (progress.key, progress.began) == (CELL.key, 100.0)
    assert [(one.key, one.after) for one in now.waiting] == [(TEST.key, (CELL.key,))]
    for values, why in (
        ({"not_before": 4e9}, "it is tried again after a pause"),
        ({"suspended": True}, "it was interrupted: the same command resumes it"),
    ):
        with ledger.change(150.0) as change:
            change.task(cell, state="waiting", **values)
        assert why in [one.why for one in fleet_state(ledger).waiting]
    with ledger.change(200.0) as change:
        change.host(a, drained=True)
        change.task(cell, state="failed", error=error)
        change.task(test, state="blocked")
    now = fleet_state(ledger)
    assert now.hosts[0].status == "drained"
    assert {(one.key, one.state) for one in now.troubles} == {
        (CELL.key, "failed"),
        (TEST.key, "blocked"),
    }


@pytest.mark.parametrize(
    ("stands", "kinds", "code"),
    [
        (("cancelled", "cancelled"), (None, None), INTERRUPTED),
        (("cancelled", "blocked"), (None, None), INTERRUPTED),
        (("cancelled", "waiting"), (None, None), HostError.exit_code),
        (("cancelled", "failed"), (None, "BuildError"), BuildError.exit_code),
        (("failed", "failed"), ("AuditError", "BuildError"), AuditError.exit_code),
    ],
)
def test_the_exit_code_of_a_fleet(
    stands: tuple[TaskState, ...], kinds: tuple[str | None, ...], code: int, ledger: Ledger
) -> None:
    entries = [
        dataclasses.replace(
            entry,
            state=stand,
            error=ErrorResult(kind=kind, title="title", message="message") if kind else None,
        )
        for entry, stand, kind in zip(ledger.tasks(), stands, kinds, strict=True)
    ]
    assert exit_code_of(entries) == code
