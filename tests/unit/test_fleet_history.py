"""Ledgers that are damaged, and what is shown of one."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet_shown import BEGAN, machine

from pipelines.cli.report import run_report
from pipelines.core.errors import ConfigError
from pipelines.fleet.history import fleet_state
from pipelines.fleet.ledger import FILE, Ledger
from pipelines.fleet.model import Task


def task(key: str, **keys: object) -> Task:
    given = {"key": key, "kind": "cell", "cell": key.partition("/")[0], "core_seconds": 3600}
    return Task.model_validate(given | {"width": 16, "hosts": ("lab1", "lab2")} | keys)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger.create(tmp_path, "order", at=BEGAN, durable=False)
    yield made
    made.close()


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
    with pytest.raises(ConfigError, match=re.escape(str(ledger.path))):
        fleet_state(ledger), ledger.events()


def test_a_state_with_a_damaged_time_is_refused(ledger: Ledger) -> None:
    with ledger.change(BEGAN) as change:
        change.fact("ended", "never")
    with pytest.raises(ConfigError, match="'ended' is not a number"):
        fleet_state(ledger)


def test_a_ledger_of_another_version_is_refused(ledger: Ledger) -> None:
    with sqlite3.connect(ledger.path / FILE) as database:
        database.execute("UPDATE facts SET value = '99' WHERE key = 'schema'")
    database.close()
    with pytest.raises(ConfigError, match="version 99, not 4"):
        run_report([str(ledger.path)])


def test_what_is_no_ledger_at_all(ledger: Ledger) -> None:
    ledger.close()
    for leftover in ledger.path.glob(f"{FILE}*"):
        leftover.unlink()
    (ledger.path / FILE).write_bytes(b"not a database, but as long as one has to be" * 40)
    with pytest.raises(ConfigError, match="no readable ledger"):
        run_report([str(ledger.path)])
