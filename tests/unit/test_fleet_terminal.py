"""The fleet on the terminal: it fits, it says what is known, and its lines cannot be forged."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from fleet_shown import BEGAN, GONE, HOSTILE, machine, state
from fleets import cell, end
from fleets import machine as host
from rich.console import Console

from pipelines.fleet.history import FleetState, HostView, Trouble, Waiting, natural_sort_key
from pipelines.fleet.ledger import Ledger
from pipelines.fleet.model import Logged, Progress
from pipelines.fleet.terminal import LiveView, event_lines, render_fleet


def drawn(shown: FleetState, width: int = 100, height: int = 40) -> list[str]:
    console = Console(width=width, height=height, file=io.StringIO(), force_terminal=False)
    with console.capture() as captured:
        console.print(render_fleet(shown, width, height))
    return captured.get().splitlines()


@pytest.mark.parametrize("width", [40, 80, 100, 160])
@pytest.mark.parametrize("hosts", [0, 1, 4, 100, 200])
@pytest.mark.parametrize("height", [10, 24, 50])
def test_it_fits(width: int, hosts: int, height: int) -> None:
    lines = drawn(state(hosts), width, height)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    assert lines[0].startswith("fleet-2026") or width < 80


def test_what_is_folded_is_counted() -> None:
    shown = state(100)
    lines = drawn(shown, 100, 30)
    (folded,) = [line for line in lines if "more hosts" in line]
    named = {line.split()[0] for line in lines if line.startswith("lab")}
    assert folded.startswith(f"… and {100 - len(named)} more hosts: ")
    assert "lab3" in named  # which is lost: it is not folded away
    busy = sum(bool(h.running) for h in shown.hosts if h.machine.name not in named)
    assert f": {busy} busy with " in folded


def test_every_host_stands_there_if_there_is_room() -> None:
    lines = drawn(state(4), 100, 60)
    assert [n for n in range(4) if any(line.startswith(f"lab{n} ") for line in lines)] == [
        *range(4)
    ]
    assert not any("more host" in line for line in lines)
    assert any("lost: no answer from 10.0.0.7:5986" in line for line in lines)
    assert any("10/73" in line for line in lines)
    assert any("after 1of5, 2of5, 3of5 and 2 more" in line for line in lines)
    assert any("failed on lab1: nvcc: out of memory" in line for line in lines)


def test_nobody_forges_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.core.github.in_ci", True)
    wrong = GONE.model_copy(update={"message": HOSTILE})
    progress = Progress(key=HOSTILE, kind="cell", began=BEGAN, stage=HOSTILE, done=9, total=3)
    shown = state(
        name=HOSTILE,
        hosts=(
            HostView(machine=machine(1, name=HOSTILE), status="lost", why=HOSTILE),
            HostView(machine=machine(2, name=HOSTILE), status="ready", running=(progress,)),
        ),
        waiting=(Waiting(key=HOSTILE, kind="link", after=(HOSTILE,), why=HOSTILE),),
        troubles=(Trouble(key=HOSTILE, state="failed", host=HOSTILE, at=BEGAN, error=wrong),),
    )
    events = [Logged(1, BEGAN, HOSTILE, HOSTILE, HOSTILE, HOSTILE)]
    told = [one.plain for one in event_lines(events)]
    for text in (*drawn(shown), *told):
        assert "\x1b" not in text
        assert "\x07" not in text
        assert "\u202e" not in text
        assert "\n" not in text
        assert "::error" not in text
    assert all(len(line) <= 100 for line in drawn(shown))
    assert any("3/3" in line for line in drawn(shown))  # never more units than there are


def test_zero_works() -> None:
    empty = FleetState(name="fleet-x", began=BEGAN, now=BEGAN, tasks={})
    assert drawn(empty)[1].startswith("no tasks yet")


def test_what_takes_longer_than_estimated_is_not_said_to_be_done() -> None:
    assert any("longer than estimated" in line for line in drawn(state(left=(0.0, 0.0))))


def test_a_clock_that_went_back() -> None:
    shown = state(now=BEGAN - 3600)
    assert any("0 min 00 s" in line for line in drawn(shown))


def test_a_line_an_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.create(tmp_path, "order", durable=False)
    ledger.put([cell("w")], [host("a")], BEGAN)
    with ledger.change(BEGAN) as change:
        change.begin("w", 1, "a")
    file = io.StringIO()
    with LiveView(Console(file=file, width=100, force_terminal=False), ledger) as view:
        with ledger.change(BEGAN) as change:
            change.end(end("w", "a", outcome="lost", error=GONE))
            change.event("aside", host="a", message=GONE.message)
            change.event("controller")
        for _ in range(2):
            view.update(state(2, tasks={"waiting": 1, "done": 2}))
    assert file.getvalue().splitlines() == [
        f"w lost on a: {GONE.message}",
        f"a aside: {GONE.message}  (2 of 3 done)",
    ]
    monkeypatch.setenv("TERM", "xterm-256color")
    file = io.StringIO()
    console = Console(file=file, width=100, height=30, force_terminal=True, legacy_windows=False)
    with LiveView(console, ledger) as view:
        view.update(state(2))
    assert "200 tasks" in file.getvalue()
    ledger.close()


def test_names_in_their_order() -> None:
    assert sorted(["lab10", "lab2", "a", "lab2b"], key=natural_sort_key) == [
        "a",
        "lab2",
        "lab2b",
        "lab10",
    ]
