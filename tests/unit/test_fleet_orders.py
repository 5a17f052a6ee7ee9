"""``invoke fleet``: orders to a fleet, and those that are none."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from fleets import cell, machine

from pipelines.commands.program import run
from pipelines.errors import ConfigError
from pipelines.fleet.history import state
from pipelines.fleet.ledger import Ledger


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """A fleet that no process runs."""
    (tmp_path / "pipeline.yaml").write_text("hosts: {a: {kind: sandbox}, b: {kind: sandbox}}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pipelines.commands.fleet._PATIENCE", 0.1)
    made = Ledger.create(tmp_path / "out", "order")
    made.put([cell("w"), cell("v")], [machine("a"), machine("b")], 1.0)
    made.close()
    return Ledger(made.path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["priority", "w", "9" * 5000], "expected a whole number"),
        (["priority", "w", "1_000"], "expected a whole number"),
        (["priority", "w", "1000001"], "expected a whole number"),
        (["priority", "w"], "expected priority TASK NUMBER"),
        (["pause", "w"], "expected pause"),
        (["stop"], "there is no such order"),
        (["drain", "w"], "has no host 'w'"),
        (["cancel", "a"], "has no task 'a'"),
    ],
)
def test_an_order_that_is_none(
    ledger: Ledger, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert run(["fleet", *words]) == ConfigError.exit_code
    told = capsys.readouterr().err
    assert said in " ".join(told.split())
    assert len(told) < 500
    assert ledger.open_orders() == []


def test_an_order_is_left_for_who_goes_on(
    ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["fleet", "priority", "w", "1000000"]) == 0
    assert "no process runs this fleet now" in " ".join(capsys.readouterr().out.split())
    assert [(one.verb, one.number) for one in ledger.open_orders()] == [("priority", 1_000_000)]


def test_after_its_end_only_a_retry_makes_sense_and_the_same_command_finds_it(
    ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    with ledger.change(5.0) as change:
        change.task(ledger.tasks()[0], state="failed")
        change.fact("ended", "5.0")
    assert run(["fleet", "pause"]) == ConfigError.exit_code
    assert Ledger.find(ledger.path.parent, "order") is None
    assert run(["fleet", "retry", "w"]) == 0
    assert "the same command as before" in " ".join(capsys.readouterr().out.split())
    with contextlib.closing(Ledger.find(ledger.path.parent, "order") or ledger) as found:
        assert [one.verb for one in found.open_orders()] == ["retry"]
        assert found.fact("ended") == ""


def test_why_a_task_waits_is_what_it_waits_for(ledger: Ledger) -> None:
    first, second = ledger.tasks()
    with ledger.change(5.0) as change:
        for host in ledger.hosts():
            change.host(host, state="up")
        change.task(first, not_before=4e9)
        change.task(second, suspended=True)
    why = {one.key: one.why for one in state(ledger).waiting}
    assert why["w"] == "it is tried again after a pause"
    assert why["v"].startswith("it was interrupted")


@pytest.mark.parametrize("line", [["build"], ["build", "test"]])
def test_hosts_of_a_fleet_without_one_are_refused(
    ledger: Ledger, capsys: pytest.CaptureFixture[str], line: list[str]
) -> None:
    """Else it would be built on the usual host, and not on the one that was named."""
    assert run([*line, "--hosts", "b"]) == ConfigError.exit_code
    assert "--hosts b: there is no --fleet" in " ".join(capsys.readouterr().err.split())
