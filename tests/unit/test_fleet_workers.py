"""Threads that do tasks at hosts: ends of every kind, and whose fault they are."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipelines.core.console import console, say
from pipelines.core.errors import (
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
from pipelines.core.observer import check_stop, report_stage, report_units
from pipelines.core.units import GIB
from pipelines.fleet import workers as workers_module
from pipelines.fleet.model import Ended, Event, Needs, Reached, Task, Withdrawn
from pipelines.fleet.workers import HostWorker, HostWorkers, Result, log_of
from pipelines.session.base import DeadHostError, FullHostError, UnfitHostError

PATIENCE = 120.0


def task(key: str, slots: int = 1, memory: int = GIB, gpu: tuple[str, ...] = ()) -> Task:
    return Task(
        key=key,
        kind="cell" if slots else "test",
        cell=key,
        core_seconds=1,
        needs=Needs(slots=slots, memory=memory, gpu=gpu),
    )


class Steps:
    """An executor whose tasks do what a test wants; it counts how many go on at a time."""

    def __init__(self, act: Callable[[Task], None] = lambda _: None) -> None:
        self.act = act
        self.lock = threading.Lock()
        self.now = self.most = 0
        self.withdrawn: list[str] = []
        self.away: PipelineError | None = None
        self.unblocked = threading.Event()

    def do(self, task: Task, done: Result) -> None:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            done.run = f"/runs/{task.key}"
            self.act(task)
            done.details["units"] = 3
        finally:
            with self.lock:
                self.now -= 1

    def withdraw(self, task: Task) -> None:
        self.withdrawn.append(task.key)

    def reach(self) -> None:
        if self.away is not None:
            raise self.away

    def unblock(self) -> None:
        self.unblocked.set()

    def reachable(self) -> bool:
        return self.away is None


class Fleet:
    """The workers of some hosts."""

    def __init__(self, folder: Path, executors: dict[str, Steps]) -> None:
        self.workers = {name: HostWorker(name, one, folder) for name, one in executors.items()}
        self.pool = HostWorkers(self.workers)
        self.folder = folder

    def events(self, count: int) -> list[Event]:
        """The next ``count`` events."""
        found: list[Event] = []
        deadline = time.monotonic() + PATIENCE
        while len(found) < count:
            assert time.monotonic() < deadline, f"only {found}"
            found += self.pool.wait(0.2)
        return found

    def ends(self, count: int) -> dict[str, Ended]:
        """The next ``count`` ends, by their tasks."""
        return {one.key: one for one in self.events(count) if isinstance(one, Ended)}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Callable[..., Fleet]]:
    made: list[Fleet] = []

    def make(**executors: Steps) -> Fleet:
        made.append(Fleet(tmp_path, executors))
        return made[-1]

    yield make
    for one in made:
        one.pool.close()


def do(worker: HostWorker, one: Task, attempt: int = 1) -> Ended:
    return worker.begin(one, attempt)()


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_task_is_done_where_it_was_started(fleet: Callable[..., Fleet]) -> None:
    one, two = Steps(), Steps()
    made = fleet(a=one, b=two)
    made.pool.start(task("w/1of2"), "b", 4)
    (ended,) = made.ends(1).values()
    assert (ended.host, ended.attempt, ended.outcome, ended.run, ended.details) == (
        "b",
        4,
        "done",
        "/runs/w/1of2",
        {"units": 3},
    )
    assert (one.most, two.most) == (0, 1)


def test_a_sign_in_that_was_refused_is_not_tried_again(tmp_path: Path) -> None:
    """Accounts are locked for that."""
    tries: list[str] = []

    def refuse(one: Task) -> None:
        tries.append(one.key)
        raise AuthError("lab1 refused the password")

    steps = Steps(refuse)
    worker = HostWorker("a", steps, tmp_path)
    first = do(worker, task("w"), 1)
    assert (first.outcome, first.gone) == ("lost", True)
    steps.act = lambda one: tries.append(one.key)
    assert worker.reach().why == "lab1 refused the password"
    again = do(worker, task("v"), 1)
    assert (again.outcome, again.gone) == ("lost", True)
    assert worker.withdraw(task("w")).why == "lab1 refused the password"
    assert (tries, steps.withdrawn) == (["w"], [])
    other = HostWorker("b", Steps(), tmp_path)
    other.executor.away = AuthError("lab2 refused the password")  # type: ignore[attr-defined]
    assert "lab2" in other.reach().why
    other.executor.away = None  # type: ignore[attr-defined]
    assert "lab2" in other.reach().why


def _wait(event: threading.Event) -> None:
    assert event.wait(PATIENCE)


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
        (HostError("e"), "lost", True),  # it is unreachable
        (AuthError("e"), "lost", True),
        (DeadHostError("e"), "lost", False),  # the next one starts it again
        (UnfitHostError("e"), "lost", True),
        (SetupError("e"), "lost", True),
        (FullHostError("e"), "lost", True),
        (StorageError("e"), "lost", True),  # our own disk has room
        (ZeroDivisionError("e"), "failed", False),
    ],
)
def test_whose_fault_it_is(tmp_path: Path, error: Exception, outcome: str, gone: bool) -> None:
    def act(_: Task) -> None:
        raise error

    steps = Steps(act)
    steps.away = HostError("not there")
    ended = do(HostWorker("a", steps, tmp_path), task("w"), 2)
    assert (ended.outcome, ended.gone) == (outcome, gone)
    assert ended.run == "/runs/w"
    if outcome != "left":
        assert ended.error is not None
        assert "e" in ended.error.message
        assert ended.error.message in log_of(tmp_path, "w").read_text()


def test_a_host_that_is_there_is_not_gone_with_the_task(tmp_path: Path) -> None:
    def act(_: Task) -> None:
        raise HostError("the connection was lost")

    ended = do(HostWorker("a", Steps(act), tmp_path), task("w"), 1)
    assert (ended.outcome, ended.gone) == ("lost", False)


def test_our_own_full_disk_is_no_hosts_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def act(_: Task) -> None:
        raise StorageError("no space left")

    worker = HostWorker("a", Steps(act), tmp_path)
    monkeypatch.setattr(workers_module, "_free_disk_bytes", lambda _: 1000)
    assert do(worker, task("w"), 1).outcome == "left"
    assert worker.broken is not None


def test_each_has_its_own_words_and_none_reach_the_terminal(
    fleet: Callable[..., Fleet], capsys: pytest.CaptureFixture[str]
) -> None:
    both = threading.Barrier(2, timeout=PATIENCE)

    def act(one: Task) -> None:
        both.wait()
        for number in range(50):
            say(f"{one.key} says {number}")
        assert not console.is_terminal
        report_stage("build")
        report_units(3, 7)
        both.wait()
        (progress,) = made.workers[one.key].progress()
        assert (progress.stage, progress.done, progress.total) == ("build", 3, 7)

    made = fleet(a=Steps(act), b=Steps(act))
    made.pool.start(task("a"), "a", 1)
    made.pool.start(task("b"), "b", 1)
    assert {one.outcome for one in made.ends(2).values()} == {"done"}
    for name in "ab":
        lines = log_of(made.folder, name).read_text().splitlines()
        assert lines == [f"{name} says {number}" for number in range(50)]
    say("ours")
    assert capsys.readouterr().out == "ours\n"


def _until_told(steps: Steps) -> None:
    while True:  # as Job.follow does with each sign of life
        check_stop()
        if steps.unblocked.wait(0.02):
            raise HostError("the session is closed")


def test_a_cancelled_task_is_ended_on_its_host_and_others_go_on(
    fleet: Callable[..., Fleet],
) -> None:
    steps, other = Steps(), Steps()
    steps.act = lambda _: _until_told(steps)
    over = threading.Event()
    other.act = lambda _: _wait(over)
    made = fleet(a=steps, b=other)
    made.pool.start(task("w"), "a", 1)
    made.pool.start(task("v"), "b", 1)
    until(lambda: steps.now and other.now)
    made.pool.cancel("w")
    (ended,) = made.ends(1).values()
    assert (ended.key, ended.outcome, steps.withdrawn) == ("w", "left", ["w"])
    over.set()
    assert made.ends(1)["v"].outcome == "done"
    made.pool.cancel("v")  # over by now: no error
    assert other.withdrawn == []


def test_a_task_that_is_cancelled_twice_is_ended_on_its_host(fleet: Callable[..., Fleet]) -> None:
    """The second time comes while its job is being ended, which must not be left half-way."""
    steps, again = Steps(), threading.Event()
    steps.act = lambda _: _until_told(steps)

    def withdraw(task: Task) -> None:
        until(again.is_set)
        check_stop()
        steps.withdrawn.append(task.key)

    steps.withdraw = withdraw  # type: ignore[method-assign]
    made = fleet(a=steps)
    made.pool.start(task("w"), "a", 1)
    until(lambda: steps.now)
    made.pool.cancel("w")
    until(lambda: not steps.now)
    made.pool.cancel("w")
    again.set()
    assert (made.ends(1)["w"].outcome, steps.withdrawn) == ("left", ["w"])


def test_a_task_that_is_cancelled_before_its_driver_has_it_is_ended(
    fleet: Callable[..., Fleet],
) -> None:
    steps, over = Steps(), threading.Event()
    steps.act = lambda task: _wait(over) if task.key == "first" else _until_told(steps)
    made = fleet(a=steps)
    made.pool.start(task("first"), "a", 1)
    until(lambda: steps.now)
    made.pool.start(task("w"), "a", 1)
    made.pool.cancel("w")
    over.set()
    ended = made.ends(2)
    assert (ended["first"].outcome, ended["w"].outcome) == ("done", "left")


def test_what_a_host_says_in_an_error_is_harmless_in_the_log(
    fleet: Callable[..., Fleet], tmp_path: Path
) -> None:
    def fail(_: Task) -> None:
        raise BuildError(
            "ninja said \x1b[2J\x1b]0;title\x07\x08 it broke\nand why", hint="\x9b look"
        )

    made = fleet(a=Steps(fail))
    made.pool.start(task("w"), "a", 1)
    made.ends(1)
    said = log_of(tmp_path, "w").read_text("utf-8")
    assert "it broke\nand why" in said
    assert not [one for one in said if one != "\n" and (ord(one) < 32 or 0x7F <= ord(one) < 0xA0)]


def test_what_is_withdrawn_elsewhere_does_not_hide_what_goes_on(
    fleet: Callable[..., Fleet],
) -> None:
    steps, other = Steps(), Steps()
    steps.act = lambda _: _until_told(steps)
    made = fleet(a=steps, b=other)
    made.pool.start(task("w"), "a", 2)
    until(lambda: steps.now)
    made.pool.withdraw(task("w"), "b")
    assert made.events(1) == [Withdrawn("w", "b", "")]
    assert other.withdrawn == ["w"]
    made.pool.cancel("w")
    assert made.ends(1)["w"].attempt == 2


def test_what_cannot_be_withdrawn_says_why(fleet: Callable[..., Fleet]) -> None:
    steps = Steps()
    made = fleet(a=steps)

    def withdraw(task: Task) -> None:
        raise HostError("no route")

    steps.withdraw = withdraw  # type: ignore[method-assign]
    steps.away = HostError("no route")
    made.pool.withdraw(task("w"), "a")
    assert made.events(1) == [Withdrawn("w", "a", "no route", gone=True)]
    made.workers["a"].folder = made.folder / "missing"
    made.pool.withdraw(task("w"), "a")
    (event,) = made.events(1)
    assert isinstance(event, Withdrawn)
    assert event.why


def test_a_host_that_is_gone_ends_all_of_its_tasks(fleet: Callable[..., Fleet]) -> None:
    """As lost there, each once its thread has ended; what begins later is no matter of that."""
    steps = Steps()
    steps.act = lambda _: _until_told(steps)
    made = fleet(a=steps)
    for key in "wv":
        made.pool.start(task(key), "a", 1)
    until(lambda: steps.now == 2)
    made.pool.disconnect("a", "its console is dark")
    for ended in made.ends(2).values():
        assert (ended.outcome, ended.gone, steps.withdrawn) == ("lost", True, [])
        assert ended.error is not None
        assert ended.error.message == "a: its console is dark"
    steps.act = lambda _: check_stop()
    made.pool.start(task("w"), "a", 2)
    assert made.ends(1)["w"].outcome == "done"


def test_what_does_not_leave_a_host_that_is_gone_is_given_up(
    fleet: Callable[..., Fleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, and no second one is started there."""
    monkeypatch.setattr(workers_module, "_LEAVE", 0.2)
    steps, over = Steps(), threading.Event()
    steps.act = lambda task: _wait(over) if task.key == "w" else None
    made = fleet(a=steps)
    made.pool.start(task("w"), "a", 1)
    until(lambda: steps.now)
    made.pool.disconnect("a", "it is dark")
    ended = made.ends(1)["w"]
    assert (ended.outcome, ended.gone, ended.attempt) == ("lost", True, 1)
    made.pool.start(task("w"), "a", 2)
    again = made.ends(1)["w"]
    assert (again.outcome, again.gone, again.attempt) == ("lost", False, 2)
    over.set()
    until(lambda: not steps.now)
    made.pool.start(task("v"), "a", 1)
    assert [one.key for one in made.events(1) if isinstance(one, Ended)] == ["v"]
    until(lambda: not made.workers["a"]._strays)
    made.pool.start(task("w"), "a", 3)
    assert made.ends(1)["w"].outcome == "done"


def test_an_attempt_that_hangs_is_lost(
    fleet: Callable[..., Fleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No error comes of it, so that it would be waited for without end; one that works stays."""
    monkeypatch.setattr(workers_module, "_LEAVE", 0.2)
    monkeypatch.setattr(workers_module, "_SILENCE", 0.5)
    over = threading.Event()

    def report(_: Task) -> None:
        while not over.wait(0.01):
            check_stop()

    made = fleet(a=Steps(lambda _: _wait(over)), b=Steps(report))
    made.pool.start(task("hangs"), "a", 1)
    made.pool.start(task("works"), "b", 1)
    ended = made.ends(1)["hangs"]
    assert (ended.outcome, ended.gone, ended.host) == ("lost", True, "a")
    over.set()
    assert made.ends(1)["works"].outcome == "done"


def test_a_withdrawal_that_waits_for_a_host_that_is_gone_ends(fleet: Callable[..., Fleet]) -> None:
    steps, begun = Steps(), threading.Event()

    def withdraw(task: Task) -> None:
        begun.set()
        _wait(steps.unblocked)
        raise HostError("its connection was broken")

    steps.withdraw = withdraw  # type: ignore[method-assign]
    made = fleet(a=steps)
    made.pool.withdraw(task("w"), "a")
    until(begun.is_set)
    made.pool.disconnect("a", "it is dark")
    assert made.events(1) == [Withdrawn("w", "a", "its connection was broken")]


@pytest.mark.parametrize("error", [RuntimeError("odd"), KeyboardInterrupt()])
def test_what_is_cancelled_and_could_not_be_ended_may_still_run(
    fleet: Callable[..., Fleet], error: BaseException
) -> None:
    """As lost it is among what remains there; as failed it would be taken for ended."""
    steps = Steps()
    steps.act = lambda _: _until_told(steps)

    def withdraw(task: Task) -> None:
        raise error

    steps.withdraw = withdraw  # type: ignore[method-assign]
    made = fleet(a=steps)
    made.pool.start(task("w"), "a", 1)
    until(lambda: steps.now)
    made.pool.cancel("w")
    assert made.ends(1)["w"].outcome == "lost"


def test_an_attempt_that_leaves_nonsense_ends_too(fleet: Callable[..., Fleet]) -> None:
    steps = Steps()

    def do(task: Task, done: Result) -> None:
        done.details["units"] = None  # type: ignore[assignment]

    steps.do = do  # type: ignore[method-assign]
    made = fleet(a=steps)
    made.pool.start(task("w"), "a", 1)
    ended = made.ends(1)["w"]
    assert (ended.outcome, ended.details) == ("failed", {})
    assert ended.error is not None
    assert "should not happen" in ended.error.message


def test_leaving_leaves_everything_where_it_is(fleet: Callable[..., Fleet]) -> None:
    steps = Steps()
    steps.act = lambda _: _until_told(steps)
    made = fleet(a=steps)
    made.pool.start(task("w"), "a", 1)
    made.pool.start(task("v"), "a", 1)
    until(lambda: steps.now == 2)
    began = time.monotonic()
    made.pool.close()
    assert time.monotonic() - began < 10
    assert (steps.now, steps.withdrawn) == (0, [])


def test_a_host_that_is_away_says_why_and_may_come_back(fleet: Callable[..., Fleet]) -> None:
    steps = Steps()
    steps.away = HostError("\x1b[31mno route")
    made = fleet(a=steps)
    made.pool.reach("a")
    assert made.events(1) == [Reached("a", "no route")]
    steps.away = None
    made.pool.reach("a")
    assert made.events(1) == [Reached("a", "")]


def test_works_that_begin_while_we_leave_do_nothing(tmp_path: Path) -> None:
    steps = Steps()
    worker = HostWorker("a", steps, tmp_path)
    worker.leave()
    assert do(worker, task("w"), 1).outcome == "left"
    assert steps.most == 0


def test_a_folder_that_takes_no_log_is_told(tmp_path: Path) -> None:
    ended = do(HostWorker("a", Steps(), tmp_path / "missing"), task("w"), 1)
    assert ended.outcome != "done"
    assert ended.error is not None
