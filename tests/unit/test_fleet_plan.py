"""``invoke plan --fleet``: what a fleet would take and cost, by its own dispatcher."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fleet_shown import machine

from pipelines.commands.program import run
from pipelines.errors import ConfigError
from pipelines.fleet.estimate import estimate, least
from pipelines.fleet.ledger import Ledger
from pipelines.fleet.model import Needs, Work
from pipelines.fleet.states import state
from pipelines.fleet.survey import Surveyed
from pipelines.units import GIB

CONFIG = """
default: {host: lab1, recipe: flash-attn, python: "3.12"}
hosts:
  lab1: {kind: winrm, endpoint: "https://127.0.0.1:9/wsman", username: b,
         password_env: LAB1_PASSWORD, slots: 2, price: 1.2}
  lab2: {kind: winrm, endpoint: "https://127.0.0.1:9/wsman", username: b,
         password_env: LAB1_PASSWORD, price: 0.8}
  sandbox: {kind: sandbox}
fleet: {currency: EUR}
"""


def work(key: str, seconds: float = 3600, **keys: object) -> Work:
    given = {"key": key, "kind": "cell", "cell": key, "core_seconds": seconds, "width": 16}
    return Work.model_validate(given | {"hosts": ("lab1", "lab2")} | keys)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pipeline.yaml").write_text(CONFIG)
    monkeypatch.setenv("WCW_CONFIG", str(tmp_path / "pipeline.yaml"))
    monkeypatch.setenv("LAB1_PASSWORD", "wordpass")
    return tmp_path


def test_it_takes_what_the_dispatcher_takes() -> None:
    machines = [machine(1, slots=1, price=2.0), machine(2, slots=1, price=1.0)]
    told = estimate([work(f"c{n}") for n in range(8)], machines, "EUR")
    assert told.stuck == ()
    assert told.seconds == pytest.approx(4 * 225)  # 3600 core-seconds on 16 cores
    assert told.ideal == pytest.approx(4 * 225)
    assert told.core_seconds == 8 * 3600
    assert told.accounts.cost == pytest.approx(3.0 * 900 / 3600)
    assert told.accounts.utilisation == pytest.approx(1.0)
    assert told.accounts.alone is not None
    assert told.accounts.alone.machine.name == "lab2"  # as quick as the other, and cheaper


def test_nothing_is_quicker_than_its_longest_chain() -> None:
    machines = [machine(1, slots=1), machine(2, slots=1)]
    works = [work("a"), work("b", after=("a",)), work("c", after=("b",), needs=Needs(slots=0))]
    assert least(works, machines) == pytest.approx(3 * 225)
    assert least([], machines) == 0.0
    assert least(works, []) == 0.0


def test_what_no_host_has_room_for_is_said() -> None:
    large = work("large", needs=Needs(memory=900 * GIB))
    told = estimate([work("small"), large], [machine(1)])
    assert told.stuck == ("large",)
    assert told.core_seconds == 3600
    error = next(one.error for one in told.accounts.history.works if one.stand == "blocked")
    assert error is not None
    assert "lab1: it needs 900.0 GiB of memory, there are 64.0 GiB" in error.message
    alone = estimate([work("elsewhere", hosts=("lab9",))], [machine(1)])
    assert alone.stuck == ("elsewhere",)
    assert alone.seconds == 0


def test_zero_works_and_zero_hosts() -> None:
    empty = estimate([], [machine(1)])
    assert (empty.seconds, empty.ideal, empty.stuck) == (0, 0, ())
    assert estimate([work("a")], []).stuck == ("a",)


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    line = ["plan", "--fleet", "--json", "--archs", "80;90", "--torch", "2.8", *words]
    assert run(line) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def test_hosts_ways_and_cost(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = planned(capsys, "--python", "3.11,3.12")
    assert told["currency"] == "EUR"
    hosts = {one["name"]: one for one in told["hosts"]}
    assert [*hosts] == ["lab1", "lab2", "sandbox"]
    assert (hosts["lab1"]["slots"], hosts["lab1"]["price"], hosts["lab1"]["asked"]) == (
        2,
        1.2,
        False,
    )
    assert hosts["lab1"]["cells"] == hosts["lab2"]["cells"] > 1
    assert hosts["sandbox"]["cells"] == 0
    assert all("host-toolset" in why for why in hosts["sandbox"]["refused"].values())
    whole, shared = told["ways"]
    assert whole["way"] == "as whole wheels"
    assert shared["way"].startswith("in ")
    assert whole["works"] == hosts["lab1"]["cells"]
    assert shared["works"] > whole["works"]
    for way in told["ways"]:
        assert way["seconds"] >= way["least_seconds"] > 0
        assert way["cost"] > 0
        assert way["not_done"] == []
        assert {one["host"] for one in way["hosts"]} == {"lab1", "lab2"}
        cells = sum(one["cost"] for one in way["cells"])
        assert 0 < cells <= way["cost"] * 1.000001
    one = planned(capsys, "--python", "3.11,3.12", "--hosts", "lab2")
    assert one["ways"][0]["seconds"] > whole["seconds"]


def test_a_table_for_people(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--fleet", "--archs", "80;90", "--torch", "2.8"]) == 0
    said = capsys.readouterr().out
    assert "lab1" in said
    assert "host-toolset" in said
    assert "--ask asks every host itself" in said
    assert "as whole wheels: about " in said
    assert " EUR for " in said
    assert "alone: at least " in said


def test_a_host_that_cannot_be_reached(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["plan", "--fleet", "--json", "--ask", "--archs", "80;90", "--torch", "2.8"]
    assert run([*line, "--hosts", "lab1,lab2"]) == ConfigError.exit_code
    told = json.loads(capsys.readouterr().out)
    assert all("127.0.0.1" in one["aside"] for one in told["hosts"])
    assert told["ways"][0]["not_done"]
    assert "wordpass" not in json.dumps(told)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "lab1"], "--host does not go with --fleet"),
        (["--format", "gha"], "--format gha does not go with --fleet"),
        (["--hosts", "lab1,lab1"], "'lab1' is named twice"),
        (["--hosts", "lab7"], "unknown host 'lab7'"),
        (["--archs", "native"], "--archs native means one host's GPUs"),
        (["--hosts", "sandbox"], "no host of the fleet can build any"),
    ],
)
def test_what_makes_no_sense(
    project: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert run(["plan", "--fleet", "--torch", "2.8", *words]) == ConfigError.exit_code
    assert said in capsys.readouterr().err


def test_a_fleet_notes_what_it_is_to_take(tmp_path: Path) -> None:
    from pipelines.fleet.running import reckon

    known = Surveyed({"lab1": machine(1, slots=1), "lab2": machine(2)}, aside={"lab2": "away"})
    ledger = Ledger.create(tmp_path, "order", durable=False)
    try:
        assert state(ledger).reckoned is None
        reckon([work("a"), work("b")], known, ledger)
        assert state(ledger).reckoned == pytest.approx(450)
        reckon([work("a")], known, ledger)  # who goes on with it knows what it was to take
        assert state(ledger).reckoned == pytest.approx(450)
    finally:
        ledger.close()


def test_a_plan_does_not_load_dask() -> None:
    code = "import sys, pipelines.fleet.foretelling; sys.exit('distributed' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
