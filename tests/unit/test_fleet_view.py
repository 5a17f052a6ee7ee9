"""The fleet on the terminal: it fits, it says what is known, and nobody can forge a line of it."""

from __future__ import annotations

import io

import pytest
from fleet_shown import BEGAN, GONE, HOSTILE, WRONG, cell, machine, state
from rich.console import Console

from pipelines.fleet import view
from pipelines.fleet.live import Show
from pipelines.fleet.model import (
    Doing,
    FleetState,
    HostState,
    Span,
    Trouble,
    Waiting,
)


def drawn(shown: FleetState, width: int = 100, height: int = 40) -> list[str]:
    console = Console(width=width, height=height, file=io.StringIO(), force_terminal=False)
    with console.capture() as captured:
        console.print(view.render(shown, width, height))
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
    busy = sum(bool(h.doing) for h in shown.hosts if h.machine.name not in named)
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
    monkeypatch.setattr("pipelines.github.in_ci", True)
    wrong = GONE.model_copy(update={"message": HOSTILE})
    doing = Doing(key=HOSTILE, kind="cell", began=BEGAN, stage=HOSTILE, done=9, total=3)
    shown = state(
        name=HOSTILE,
        hosts=(
            HostState(machine=machine(1, name=HOSTILE), standing="lost", why=HOSTILE),
            HostState(machine=machine(2, name=HOSTILE), standing="ready", doing=(doing,)),
        ),
        waiting=(Waiting(key=HOSTILE, kind="link", after=(HOSTILE,), why=HOSTILE),),
        troubles=(Trouble(key=HOSTILE, stand="failed", host=HOSTILE, at=BEGAN, error=wrong),),
        dashboard=HOSTILE,
    )
    told = view.plain(view.told(None, shown))
    for text in (*drawn(shown), *told):
        assert "\x1b" not in text
        assert "\x07" not in text
        assert "\u202e" not in text
        assert "\n" not in text
        assert "::error" not in text
    assert all(len(line) <= 100 for line in drawn(shown))
    assert any("3/3" in line for line in drawn(shown))  # never more units than there are


def test_zero_works() -> None:
    empty = FleetState(name="fleet-x", began=BEGAN, now=BEGAN, works={})
    assert "nothing to do" in drawn(empty)
    assert view.told(None, empty) == []


def test_a_clock_that_went_back() -> None:
    shown = state(now=BEGAN - 3600)
    assert any("0 min 00 s" in line for line in drawn(shown))


def test_a_line_an_event() -> None:
    key = cell(1)
    idle = HostState(machine=machine(1), standing="ready")
    busy = idle.model_copy(update={"doing": (Doing(key=key, kind="cell", began=BEGAN),)})
    first = state(hosts=(idle,), troubles=(), works={"waiting": 1, "done": 0})
    second = first.model_copy(update={"hosts": (busy,), "works": {"running": 1}})
    span = Span(
        key=key, kind="cell", host="lab1", began=BEGAN, ended=BEGAN + 65, outcome="done", attempt=1
    )
    third = first.model_copy(update={"latest": (span,), "works": {"done": 1}})
    assert view.plain(view.told(None, first)) == []
    (begins,) = view.plain(view.told(first, second))
    assert begins.startswith(f"{key} begins on lab1  (0 of 1 done")
    (done,) = view.plain(view.told(second, third))
    assert done.startswith(f"{key} done on lab1, 1 min 05 s  (1 of 1 done")
    assert view.told(third, third) == []
    lost = Trouble(key=key, stand="waiting", host="lab1", at=BEGAN + 9, error=GONE)
    failed = Trouble(key=key, stand="failed", host="lab2", at=BEGAN + 10, error=WRONG)
    worse = third.model_copy(update={"troubles": (failed, lost), "paused": True})
    said = view.plain(view.told(third, worse))
    assert said[0] == f"{key} lost on lab1: {GONE.message}"
    assert said[1] == f"{key} failed on lab2: {WRONG.message}"
    assert said[2].startswith("paused")


def test_a_dumb_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    with Show(Console(file=file, width=100, force_terminal=False)) as show:
        show.update(state(2))
        show.update(state(2))
    lines = file.getvalue().splitlines()
    assert lines
    assert len(lines) == len(set(lines))
    assert not any("\x1b" in line for line in lines)
    monkeypatch.setenv("TERM", "xterm-256color")
    file = io.StringIO()
    console = Console(file=file, width=100, height=30, force_terminal=True, legacy_windows=False)
    with Show(console) as show:
        show.update(state(2))
    assert "200 works" in file.getvalue()


def test_names_in_their_order() -> None:
    assert sorted(["lab10", "lab2", "a", "lab2b"], key=view.numbered) == [
        "a",
        "lab2",
        "lab2b",
        "lab10",
    ]
