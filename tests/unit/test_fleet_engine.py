"""Dask carries works to drivers: limits, ends of every kind, lost workers; through real Dask."""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import pytest

from pipelines.beside import heed, tell_stage, tell_units
from pipelines.console import console, say
from pipelines.errors import (
    AuditError,
    AuthError,
    BuildError,
    ConfigError,
    HostError,
    PipelineError,
    ProvisionError,
    SetupError,
    SmokeError,
    StorageError,
    TimeUpError,
    TransferError,
)
from pipelines.fleet import drivers as drivers_module
from pipelines.fleet.dask_engine import DaskEngine
from pipelines.fleet.drivers import Done, Driver, log_of
from pipelines.fleet.model import Ended, Machine, Needs, Work
from pipelines.session.base import DeadHostError, FullHostError, UnfitHostError
from pipelines.units import GIB

PATIENCE = 120.0


def work(key: str, slots: int = 1, memory: int = GIB, gpu: tuple[str, ...] = ()) -> Work:
    return Work(
        key=key,
        kind="cell" if slots else "test",
        cell=key,
        core_seconds=1,
        needs=Needs(slots=slots, memory=memory, gpu=gpu),
    )


def machine(name: str, slots: int = 1, gpus: tuple[str, ...] = ()) -> Machine:
    return Machine(name=name, slots=slots, cores=4, memory=8 * GIB, gpus=gpus)


class Steps:
    """An errand whose works do what a test wants; it counts how many go on at a time."""

    def __init__(self, act: Callable[[Work], None] = lambda _: None) -> None:
        self.act = act
        self.lock = threading.Lock()
        self.now = self.most = self.released = 0
        self.withdrawn: list[str] = []
        self.away: PipelineError | None = None
        self.unblocked = threading.Event()

    def do(self, work: Work, done: Done) -> None:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            done.run = f"/runs/{work.key}"
            self.act(work)
            done.told["units"] = 3
        finally:
            with self.lock:
                self.now -= 1

    def withdraw(self, work: Work) -> None:
        self.withdrawn.append(work.key)

    def reach(self) -> None:
        if self.away is not None:
            raise self.away

    def unblock(self) -> None:
        self.unblocked.set()

    def reachable(self) -> bool:
        return self.away is None

    def release(self) -> None:
        self.released += 1


class Fleet:
    """An engine with a driver for each errand."""

    def __init__(self, folder: Path, errands: dict[str, Steps], *machines: Machine) -> None:
        known = {one.name: one for one in machines}
        self.drivers = {name: Driver(name, one, folder) for name, one in errands.items()}
        self.engine = DaskEngine(
            self.drivers, {name: known.get(name, machine(name)) for name in errands}
        )
        self.folder = folder

    def ends(self, count: int) -> dict[str, Ended]:
        """The next ``count`` ends, by their works."""
        found: list[Ended] = []
        deadline = time.monotonic() + PATIENCE
        while len(found) < count:
            assert time.monotonic() < deadline, f"only {found}"
            found += self.engine.wait(0.2)
        return {one.key: one for one in found}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Callable[..., Fleet]]:
    made: list[Fleet] = []

    def make(*machines: Machine, **errands: Steps) -> Fleet:
        made.append(Fleet(tmp_path, errands, *machines))
        return made[-1]

    yield make
    for one in made:
        one.engine.close()


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_work_is_done_where_it_was_told_to(fleet: Callable[..., Fleet]) -> None:
    one, two = Steps(), Steps()
    made = fleet(a=one, b=two)
    made.engine.ask("a")
    made.engine.ask("b")
    until(lambda: made.engine.alive() == {"a", "b"})
    made.engine.start(work("w/1of2"), "b", 4)
    (ended,) = made.ends(1).values()
    assert (ended.host, ended.attempt, ended.outcome, ended.run, ended.told) == (
        "b",
        4,
        "done",
        "/runs/w/1of2",
        {"units": 3},
    )
    assert ended.ended >= ended.began
    assert (one.most, two.most) == (0, 1)


def test_a_sign_in_that_was_refused_is_not_tried_again(tmp_path: Path) -> None:
    """Accounts are locked for that."""
    tries: list[str] = []

    def refuse(one: Work) -> None:
        tries.append(one.key)
        raise AuthError("lab1 refused the password")

    steps = Steps(refuse)
    driver = Driver("a", steps, tmp_path)
    first = driver.do(work("w"), 1)
    assert (first.outcome, first.gone) == ("lost", True)
    steps.act = lambda one: tries.append(one.key)
    assert driver.reach() == "lab1 refused the password"
    again = driver.do(work("v"), 1)
    assert (again.outcome, again.gone) == ("lost", True)
    assert driver.withdraw(work("w"), 1).outcome == "lost"
    assert (tries, steps.withdrawn) == (["w"], [])
    other = Driver("b", Steps(), tmp_path)
    other.errand.away = AuthError("lab2 refused the password")  # type: ignore[attr-defined]
    assert "lab2" in other.reach()
    other.errand.away = None  # type: ignore[attr-defined]
    assert "lab2" in other.reach()


def test_slots_and_gpus_hold_whoever_starts_too_much(fleet: Callable[..., Fleet]) -> None:
    """More than the machine has: one after the other, whatever the dispatcher believes."""
    steps = Steps(lambda _: time.sleep(0.05))
    made = fleet(machine("a", slots=2, gpus=("9.0",)), a=steps)
    for number in range(6):
        made.engine.start(work(f"w{number}"), "a", 1)
    assert {one.outcome for one in made.ends(6).values()} == {"done"}
    assert steps.most <= 2
    steps.most = 0
    for number in range(3):
        made.engine.start(work(f"t{number}", slots=0, gpu=("9.0",)), "a", 1)
    assert len(made.ends(3)) == 3
    assert steps.most == 1


def test_a_test_need_not_wait_for_builds(fleet: Callable[..., Fleet]) -> None:
    tested = threading.Event()
    steps = Steps(lambda one: tested.set() if one.kind == "test" else _wait(tested))
    made = fleet(a=steps)
    made.engine.start(work("w"), "a", 1)
    made.engine.start(work("t", slots=0), "a", 1)
    assert {one.outcome for one in made.ends(2).values()} == {"done"}


def _wait(event: threading.Event) -> None:
    assert event.wait(PATIENCE)


def test_what_a_host_can_never_give_is_told_and_does_not_wait_forever(
    fleet: Callable[..., Fleet],
) -> None:
    made = fleet(a=Steps())
    made.engine.start(work("w", memory=9 * GIB), "a", 1)
    made.engine.start(work("t", slots=0, gpu=("9.0",)), "a", 1)
    ends = made.ends(2)
    assert {one.outcome for one in ends.values()} == {"lost"}
    assert ends["w"].error is not None
    assert "memory" in ends["w"].error.message
    assert ends["t"].error is not None
    assert "gpus: 1 of 0" in ends["t"].error.message


@pytest.mark.parametrize(
    ("error", "outcome", "gone"),
    [
        (BuildError("e"), "failed", False),
        (ConfigError("e"), "failed", False),
        (AuditError("e"), "failed", False),
        (SmokeError("e"), "failed", False),
        (TimeUpError("e"), "left", False),
        (ProvisionError("e"), "lost", False),
        (TransferError("e"), "lost", False),
        (HostError("e"), "lost", True),  # nobody reaches it
        (AuthError("e"), "lost", True),
        (DeadHostError("e"), "lost", False),  # the next one starts it anew
        (UnfitHostError("e"), "lost", True),
        (SetupError("e"), "lost", True),
        (FullHostError("e"), "lost", True),
        (StorageError("e"), "lost", True),  # our own disk has room
        (ZeroDivisionError("e"), "failed", False),
    ],
)
def test_whose_fault_it_is(tmp_path: Path, error: Exception, outcome: str, gone: bool) -> None:
    def act(_: Work) -> None:
        raise error

    steps = Steps(act)
    steps.away = HostError("not there")
    ended = Driver("a", steps, tmp_path).do(work("w"), 2)
    assert (ended.outcome, ended.gone) == (outcome, gone)
    assert ended.run == "/runs/w"
    if outcome != "left":
        assert ended.error is not None
        assert "e" in ended.error.message
        assert ended.error.message in log_of(tmp_path, "w").read_text()


def test_a_host_that_is_there_is_not_gone_with_the_work(tmp_path: Path) -> None:
    def act(_: Work) -> None:
        raise HostError("the connection was lost")

    ended = Driver("a", Steps(act), tmp_path).do(work("w"), 1)
    assert (ended.outcome, ended.gone) == ("lost", False)


def test_our_own_full_disk_is_no_hosts_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def act(_: Work) -> None:
        raise StorageError("no space left")

    driver = Driver("a", Steps(act), tmp_path)
    monkeypatch.setattr(drivers_module, "_room", lambda _: 1000)
    assert driver.do(work("w"), 1).outcome == "left"
    assert driver.broken is not None


def test_each_has_its_own_words_and_none_reach_the_terminal(
    fleet: Callable[..., Fleet], capsys: pytest.CaptureFixture[str]
) -> None:
    both = threading.Barrier(2, timeout=PATIENCE)

    def act(one: Work) -> None:
        both.wait()
        for number in range(50):
            say(f"{one.key} says {number}")
        assert not console.is_terminal
        tell_stage("build")
        tell_units(3, 7)
        both.wait()
        (doing,) = made.drivers[one.key].doing()
        assert (doing.stage, doing.done, doing.total) == ("build", 3, 7)

    made = fleet(a=Steps(act), b=Steps(act))
    made.engine.start(work("a"), "a", 1)
    made.engine.start(work("b"), "b", 1)
    assert {one.outcome for one in made.ends(2).values()} == {"done"}
    for name in "ab":
        lines = log_of(made.folder, name).read_text().splitlines()
        assert lines == [f"{name} says {number}" for number in range(50)]
    say("ours")
    assert capsys.readouterr().out == "ours\n"


def _until_told(steps: Steps) -> None:
    while True:  # as Job.follow does with each sign of life
        heed()
        if steps.unblocked.wait(0.02):
            raise HostError("the session is closed")


def test_a_cancelled_work_is_ended_on_its_host_and_others_go_on(
    fleet: Callable[..., Fleet],
) -> None:
    steps, other = Steps(), Steps()
    steps.act = lambda _: _until_told(steps)
    over = threading.Event()
    other.act = lambda _: _wait(over)
    made = fleet(a=steps, b=other)
    made.engine.start(work("w"), "a", 1)
    made.engine.start(work("v"), "b", 1)
    until(lambda: steps.now and other.now)
    made.engine.cancel("w")
    (ended,) = made.ends(1).values()
    assert (ended.key, ended.outcome, steps.withdrawn) == ("w", "left", ["w"])
    over.set()
    assert made.ends(1)["v"].outcome == "done"
    made.engine.cancel("v")  # over by now: nobody minds
    assert other.withdrawn == []


def test_a_work_that_is_cancelled_twice_is_ended_on_its_host(fleet: Callable[..., Fleet]) -> None:
    """The second time comes while its job is being ended, which must not be left half-way."""
    steps, again = Steps(), threading.Event()
    steps.act = lambda _: _until_told(steps)

    def withdraw(work: Work) -> None:
        until(again.is_set)
        heed()
        steps.withdrawn.append(work.key)

    steps.withdraw = withdraw  # type: ignore[method-assign]
    made = fleet(a=steps)
    made.engine.start(work("w"), "a", 1)
    until(lambda: steps.now)
    made.engine.cancel("w")
    until(lambda: not steps.now)
    made.engine.cancel("w")
    again.set()
    assert (made.ends(1)["w"].outcome, steps.withdrawn) == ("left", ["w"])


def test_a_work_that_is_cancelled_before_its_driver_has_it_is_ended(
    fleet: Callable[..., Fleet],
) -> None:
    steps, over = Steps(), threading.Event()
    steps.act = lambda work: _wait(over) if work.key == "first" else _until_told(steps)
    made = fleet(a=steps)
    made.engine.start(work("first"), "a", 1)
    until(lambda: steps.now)
    made.engine.start(work("w"), "a", 1)  # Dask keeps it until there is a slot
    made.engine.cancel("w")
    over.set()
    ended = made.ends(2)
    assert (ended["first"].outcome, ended["w"].outcome) == ("done", "left")


def test_what_a_host_says_in_an_error_is_harmless_in_the_log(
    fleet: Callable[..., Fleet], tmp_path: Path
) -> None:
    def fail(_: Work) -> None:
        raise BuildError(
            "ninja said \x1b[2J\x1b]0;title\x07\x08 it broke\nand why", advice="\x9b look"
        )

    made = fleet(a=Steps(fail))
    made.engine.start(work("w"), "a", 1)
    made.ends(1)
    said = log_of(tmp_path, "w").read_text("utf-8")
    assert "it broke\nand why" in said
    assert not [one for one in said if one != "\n" and (ord(one) < 32 or 0x7F <= ord(one) < 0xA0)]


def test_dask_leaves_no_files(
    fleet: Callable[..., Fleet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    with dask.config.set({"temporary-directory": str(place)}):
        made = fleet(a=Steps())
        assert [one.name[:10] for one in place.iterdir()] == ["wcw-fleet-"]
        made.engine.close()
    assert [*place.iterdir()] == []


def test_what_is_withdrawn_elsewhere_does_not_hide_what_goes_on(
    fleet: Callable[..., Fleet],
) -> None:
    """The end of a lost attempt has the work's key, and a cancel still finds the new one."""
    steps, other = Steps(), Steps()
    steps.act = lambda _: _until_told(steps)
    made = fleet(a=steps, b=other)
    made.engine.start(work("w"), "a", 2)
    until(lambda: steps.now)
    made.engine.withdraw(work("w"), "b", 1)
    ended = made.ends(1)["w"]
    assert (ended.host, ended.attempt, ended.outcome) == ("b", 1, "left")
    made.engine.cancel("w")
    assert made.ends(1)["w"].attempt == 2


def test_leaving_leaves_everything_where_it_is(fleet: Callable[..., Fleet]) -> None:
    steps = Steps()
    steps.act = lambda _: _until_told(steps)
    made = fleet(machine("a", slots=2), a=steps)
    made.engine.start(work("w"), "a", 1)
    made.engine.start(work("v"), "a", 1)
    until(lambda: steps.now == 2)
    began = time.monotonic()
    made.engine.close()
    assert time.monotonic() - began < 10
    assert (steps.now, steps.withdrawn) == (0, [])


def test_a_driver_that_dies_is_told_as_lost(fleet: Callable[..., Fleet]) -> None:
    steps, over = Steps(), threading.Event()
    steps.act = lambda _: _wait(over)
    made = fleet(a=steps, b=Steps())
    for name in "ab":
        made.engine.ask(name)
    until(lambda: made.engine.alive() == {"a", "b"})
    made.engine.start(work("w"), "a", 1)
    until(lambda: steps.now)
    cluster = made.engine._cluster
    closing = cluster.workers["a"].close(timeout=0, executor_wait=False)
    loop: Any = cluster.loop
    asyncio.run_coroutine_threadsafe(closing, loop.asyncio_loop).result(PATIENCE)
    ended = made.ends(1)["w"]
    assert (ended.outcome, ended.host) == ("lost", "a")
    assert ended.error is not None
    assert "driver of a has ended" in ended.error.message
    until(lambda: made.engine.alive() == {"b"})
    made.engine.start(work("w"), "b", 2)
    assert made.ends(1)["w"].outcome == "done"
    over.set()


def test_a_host_that_is_away_says_why_and_may_come_back(fleet: Callable[..., Fleet]) -> None:
    steps = Steps()
    steps.away = HostError("\x1b[31mno route")
    made = fleet(a=steps)
    made.engine.ask("a")
    until(lambda: made.engine.why("a"))
    assert made.engine.why("a") == "no route"
    assert not made.engine.alive()
    steps.away = None
    made.engine.ask("a")
    until(lambda: "a" in made.engine.alive())
    assert made.engine.why("a") == ""
    steps.act = lambda _: (_ for _ in ()).throw(UnfitHostError("it is two"))
    made.engine.start(work("w"), "a", 1)
    assert made.ends(1)["w"].gone
    assert (made.engine.alive(), made.engine.why("a")) == (frozenset(), "it is two")


def test_a_host_is_given_back_only_when_it_rests(tmp_path: Path) -> None:
    over, steps = threading.Event(), Steps()
    steps.act = lambda _: _wait(over)
    driver = Driver("a", steps, tmp_path)
    busy = threading.Thread(target=driver.do, args=(work("w"), 1))
    busy.start()
    until(lambda: steps.now)
    driver.release()
    assert steps.released == 0
    over.set()
    busy.join()
    driver.release()
    assert steps.released == 1


def test_works_that_begin_while_we_leave_do_nothing(tmp_path: Path) -> None:
    steps = Steps()
    driver = Driver("a", steps, tmp_path)
    driver.leave()
    assert driver.do(work("w"), 1).outcome == "left"
    assert steps.most == 0


def test_a_folder_that_takes_no_log_is_told(tmp_path: Path) -> None:
    ended = Driver("a", Steps(), tmp_path / "missing").do(work("w"), 1)
    assert ended.outcome != "done"
    assert ended.error is not None
