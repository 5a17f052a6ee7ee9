"""A ledger as the history that its page is made of; and ledgers that are damaged."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fleet_shown import BEGAN, HOSTILE, machine
from fleet_world import Session, World

from pipelines.cli.report import run_report
from pipelines.core.errors import ConfigError
from pipelines.fleet import report
from pipelines.fleet.history import history, host_accounts, state, stretches
from pipelines.fleet.ledger import FILE, Ledger
from pipelines.fleet.model import Ended, Machine, Outcome, Task
from pipelines.fleet.scheduler import Scheduler


def task(key: str, **keys: object) -> Task:
    given = {"key": key, "kind": "cell", "cell": key.partition("/")[0], "core_seconds": 3600}
    return Task.model_validate(given | {"width": 16, "hosts": ("lab1", "lab2")} | keys)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger.create(tmp_path, "order", at=BEGAN, durable=False)
    yield made
    made.close()


def events(ledger: Ledger, *told: tuple[float, str, str]) -> None:
    for at, what, said in told:
        with ledger.change(BEGAN + at) as change:
            if what in ("drain", "undrain"):
                change.event(what, host="lab1", message=said)
            else:
                change.event(what, host="lab1", message=said)


def statuses(
    ledger: Ledger, of: Machine, ended: float | None
) -> list[tuple[str, float, float, str]]:
    last = BEGAN + (ended or 0.0)
    return [
        (one.status, one.began - BEGAN, (one.ended or last) - BEGAN, one.why)
        for one in stretches(of, ledger.events(), None if ended is None else last)
    ]


def test_how_a_host_stood(ledger: Ledger) -> None:
    told = [(0.0, "asked", ""), (2.0, "up", ""), (50.0, "aside", "no answer")]
    told += [(65.0, "asked", ""), (66.0, "aside", "refused"), (90.0, "asked", ""), (91.0, "up", "")]
    told += [(95.0, "drain", ""), (99.0, "undrain", "")]
    events(ledger, *told)
    assert statuses(ledger, machine(1), 100.0) == [
        ("lost", 50, 91, "no answer"),  # looks in vain are no starts
        ("drained", 95, 99, ""),
    ]


def test_a_host_that_never_came(ledger: Ledger) -> None:
    events(ledger, (0.0, "asked", ""), (9.0, "aside", "no answer"))
    assert statuses(ledger, machine(1), 20.0) == [("aside", 9, 20, "no answer")]
    (open_,) = stretches(machine(1), ledger.events(), None)
    assert open_.ended is None


def test_a_process_that_went_on(ledger: Ledger) -> None:
    ledger.put([task("a")], [machine(1)], BEGAN)
    for at in (0.0, 30.0):
        with ledger.change(BEGAN + at) as change:
            change.event("controller")
        events(ledger, (at, "asked", ""), (at + 1, "up", ""))
    told = history(ledger)
    assert told.stretches == ()
    assert told.resumed == (BEGAN + 30,)
    assert "another process resumed it" in report.render(told)


def test_a_host_made_on_demand(ledger: Ledger) -> None:
    events(ledger, (5.0, "asked", ""), (65.0, "up", ""), (80.0, "given back", ""))
    events(ledger, (120.0, "asked", ""), (180.0, "up", ""))
    assert statuses(ledger, machine(1, made=True), 200.0) == [
        ("starting", 5, 65, ""),
        ("off", 80, 120, ""),
        ("starting", 120, 180, ""),
    ]


def test_a_clock_that_goes_back(ledger: Ledger) -> None:
    events(ledger, (50.0, "asked", ""), (10.0, "up", ""), (8.0, "aside", "x"))
    assert all(end >= begin for _, begin, end, _ in statuses(ledger, machine(1), 5.0))


def test_of_a_fleet_that_was_done(ledger: Ledger) -> None:
    tasks = [task("a"), task("a/test", kind="test", after=("a",)), task("b")]
    machines = [machine(1, slots=1), machine(2, slots=1), machine(3)]
    ledger.put(tasks, machines, BEGAN)
    ledger.put([], machines[:2], BEGAN)
    Scheduler(ledger, Session(World(machines, 1, clock=BEGAN))).run()
    told = history(ledger)
    assert told.name == ledger.path.name
    assert [one.state for one in told.tasks] == ["done"] * 3
    assert told.refused == {"lab3": "it is no longer among the hosts"}
    assert told.ended is not None
    assert told.seconds == pytest.approx(told.ended - BEGAN)
    assert [host.outcomes["done"] for host in host_accounts(told)][2] == 0
    assert "All 2 cells done" in report.render(told)


class Broken(Session):
    """Every task fails, and its host says what is hostile."""

    def tell(self, key: str, outcome: Outcome, why: str = "", **_: Any) -> None:
        super().tell(key, "failed", HOSTILE)
        ended = self.events[-1]
        assert isinstance(ended, Ended)
        self.events[-1] = ended.model_copy(update={"run": "/etc"})


def test_what_failed_is_said_with_its_reason(ledger: Ledger) -> None:
    machines = [machine(1)]
    ledger.put([task("a"), task("a/link", kind="link", after=("a",))], machines, BEGAN)
    Scheduler(ledger, Broken(World(machines, 1, clock=BEGAN))).run()
    told = history(ledger)
    assert [one.state for one in told.tasks] == ["failed", "blocked"]
    made = report.render(told, ledger.path)
    assert "<script" not in made
    assert "\x1b" not in made
    assert 'href="../' not in made
    assert "it comes after a, which is failed" in made


def test_its_page_is_made_again_from_the_ledger_alone(
    ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.put([task("a")], [machine(1)], BEGAN)
    made = run_report([str(ledger.path)])
    assert made == ledger.path / "report.html"
    assert "0 of 1 cell done" in made.read_text("utf-8")
    assert (ledger.path / "junit.xml").is_file()
    assert "0 of 1 cell done" in (ledger.path / "summary.md").read_text("utf-8")
    assert "report.html" in capsys.readouterr().out


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE facts SET value = 'soon' WHERE key = 'began'",
        "UPDATE facts SET value = 'nan' WHERE key = 'began'",
        "INSERT INTO facts VALUES ('ended', 'inf')",
        "UPDATE tasks SET task = '{}'",
        "UPDATE tasks SET task = 'no JSON'",
        "UPDATE tasks SET losses = '7'",
        "UPDATE hosts SET machine = '{\"name\": 1}'",
        "UPDATE attempts SET outcome = 'perfect'",
        "UPDATE attempts SET attempt = -1",
        "DROP TABLE attempts",
        "DROP TABLE events",
    ],
)
def test_a_damaged_ledger_is_refused(ledger: Ledger, damage: str) -> None:
    ledger.put([task("a")], [machine(1)], BEGAN)
    with ledger.change(BEGAN) as change:
        change.begin("a", 1, "lab1")
    with sqlite3.connect(ledger.path / FILE) as database:
        database.execute(damage)
    database.close()
    with pytest.raises(ConfigError, match=str(ledger.path)):
        history(ledger)


def test_a_state_with_a_damaged_time_is_refused(ledger: Ledger) -> None:
    with ledger.change(BEGAN) as change:
        change.fact("ended", "never")
    with pytest.raises(ConfigError, match="'ended' is no number"):
        state(ledger)


def test_a_ledger_of_another_version_is_refused(ledger: Ledger) -> None:
    with sqlite3.connect(ledger.path / FILE) as database:
        database.execute("UPDATE facts SET value = '99' WHERE key = 'schema'")
    database.close()
    with pytest.raises(ConfigError, match="version 99, not 3"):
        run_report([str(ledger.path)])


def test_what_is_no_ledger_at_all(ledger: Ledger) -> None:
    ledger.close()
    for leftover in ledger.path.glob(f"{FILE}*"):
        leftover.unlink()
    (ledger.path / FILE).write_bytes(b"not a database, but as long as one has to be" * 40)
    with pytest.raises(ConfigError, match="no ledger that can be read"):
        run_report([str(ledger.path)])
