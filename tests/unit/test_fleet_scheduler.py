"""The scheduler: what it does about hosts that fail, people who change their minds, and death."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from fleet_world import Session, World, simulated
from fleets import cell, end, gpu_test, machine

from pipelines.core.units import GIB
from pipelines.fleet.history import estimate_remaining
from pipelines.fleet.ledger import Ledger
from pipelines.fleet.model import FINAL, Machine, Needs, Span, Task, TaskEntry, Withdrawn
from pipelines.fleet.policy import Limits
from pipelines.fleet.scheduler import Scheduler, Summary

LIMITS = Limits(poll=5.0)


def up(fleet: Fleet) -> set[str]:
    return {name for name, one in fleet.scheduler.hosts.items() if one.state == "up"}


class Fleet:
    """A ledger, a world, and the controller of the moment."""

    def __init__(self, out: Path, tasks: list[Task], machines: list[Machine]) -> None:
        self.world = World(machines, seed=1)
        self.path = out
        ledger = Ledger.create(out, "order", durable=False)
        self.path = ledger.path
        ledger.put(tasks, machines, self.world.clock)
        ledger.close()
        self.start()

    def start(self) -> None:
        """A new controller."""
        self.ledger = Ledger(self.path, durable=False)
        self.ledger.hold()
        self.session = Session(self.world)
        self.scheduler = Scheduler(self.ledger, self.session, LIMITS)

    def kill(self) -> None:
        self.session.close()
        self.ledger.close()

    def until(self, when: Callable[[], bool]) -> None:
        for _ in range(10_000):
            if when():
                return
            self.scheduler.step()
        raise AssertionError("it never comes to that")

    def run(self) -> Summary:
        summary = self.scheduler.run()
        assert not self.world.wrong
        return summary

    def entry(self, key: str) -> TaskEntry:
        return next(one for one in self.ledger.tasks() if one.task.key == key)

    def tried(self, key: str) -> list[tuple[str, str | None]]:
        spans = self.ledger.attempts()
        return [(span.host, span.outcome) for span in spans if span.key == key]

    def runs(self, key: str) -> Callable[[], bool]:
        return lambda: any(key in host.jobs for host in self.world.hosts.values())

    def order(self, verb: str, subject: str = "", number: int = 0) -> int:
        other = Ledger(self.path)
        order = other.order(verb, subject, number, at=self.world.clock)  # type: ignore[arg-type]
        other.close()
        return order


A, B = machine("a"), machine("b")


def test_all_is_done_in_the_order_of_what_waits_for_what(tmp_path: Path) -> None:
    tasks = [cell("x/1of2", kind="shard", cell="x"), cell("x/2of2", kind="shard", cell="x")]
    tasks.append(cell("x", 80, kind="link", after=("x/1of2", "x/2of2")))
    tasks.append(gpu_test("x/test", after=("x",), cell="x"))
    fleet = Fleet(tmp_path, tasks, [A, machine("b", gpus=("9.0",))])
    assert fleet.run() == Summary({"done": 4})
    spans = {one.key: one for one in fleet.ledger.attempts()}
    assert spans["x/1of2"].host != spans["x/2of2"].host
    assert spans["x"].began >= max(spans[k].ended or 0 for k in ("x/1of2", "x/2of2"))
    assert spans["x/test"].host == "b"
    assert Ledger.find(tmp_path, "order") is None


def test_a_host_that_is_back_soon_goes_on_with_its_task(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, [cell("x")], [A, B])
    fleet.until(fleet.runs("x"))
    fleet.world.at(50, lambda: fleet.world.lose_way("a", 60))
    assert fleet.run().complete
    assert fleet.tried("x") == [("a", "lost"), ("a", "done")]
    assert fleet.world.compiled["x"] == 1, "it was begun anew"


def test_a_host_that_stays_away_loses_its_task_which_is_withdrawn_there(tmp_path: Path) -> None:
    tasks = [cell(key, 800_000, hosts=("a", "b", "c")) for key in ("x", "y")]
    fleet = Fleet(tmp_path, tasks, [A, B, machine("c")])
    fleet.until(lambda: fleet.runs("x")() and fleet.runs("y")())
    where = fleet.entry("x").host
    fleet.world.at(50, lambda: fleet.world.lose_way(where, 5000))
    fleet.until(lambda: fleet.entry("x").attempt == 2)
    assert fleet.world.clock - 1_000_050 >= LIMITS.grace
    assert "x" in fleet.world.hosts[where].jobs, "nobody could end it there"
    assert fleet.scheduler.entries["x"].host not in (where, fleet.entry("y").host)
    fleet.until(lambda: where in up(fleet))
    fleet.until(lambda: "x" not in fleet.world.hosts[where].jobs)
    assert fleet.run().complete
    assert [how for _, how in fleet.tried("x")] == ["lost", "done"]


def test_what_is_withdrawn_keeps_its_room_until_it_has_ended(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, [cell("x", 80_000), cell("y", 80_000, hosts=("a",))], [A, B])
    fleet.order("priority", "x", 1)
    fleet.until(lambda: fleet.entry("x").state == "running")
    fleet.world.lose_way(fleet.entry("x").host, 2000)
    assert fleet.run().complete  # and the world saw no host with more than it has room for


def test_after_two_hosts_have_died_it_is_quarantined(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, [cell("bad", hosts=("a", "b", "c")), cell("y")], [A, B, machine("c")])
    fleet.world.killers.add("bad")
    fleet.world.down = 5000.0
    summary = fleet.run()
    assert summary.tasks == {"quarantined": 1, "done": 1}
    bad = fleet.entry("bad")
    assert len(bad.died) == 2
    assert bad.error is not None
    assert bad.error.message.startswith(" and ".join(bad.died) + " were lost while working on bad")
    assert len({host for host, _ in fleet.tried("bad")}) == 2


def test_one_host_that_keeps_dying_is_not_tried_for_ever(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, [cell("bad", hosts=("a",))], [A])
    fleet.world.killers.add("bad")
    assert fleet.run().tasks == {"quarantined": 1}
    assert len(fleet.tried("bad")) == LIMITS.losses
    assert "6 attempts of bad were lost" in (fleet.entry("bad").error or end("x", "a")).message  # type: ignore[union-attr]


def disk_full_at_a(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever starts there is lost."""
    start = Session.start

    def full(self: Session, task: Task, host: str, attempt: int) -> None:
        start(self, task, host, attempt)
        if host == "a":
            self.tell(task.key, "lost", "no space left on device")

    monkeypatch.setattr(Session, "start", full)


def test_what_is_lost_at_a_host_that_is_there_goes_elsewhere_after_two_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(tmp_path, [cell("x")], [A, B])
    disk_full_at_a(monkeypatch)
    assert fleet.run().complete
    assert fleet.tried("x") == [("a", "lost"), ("a", "lost"), ("b", "done")]
    spans = fleet.ledger.attempts()
    assert spans[1].began - (spans[0].ended or 0) >= LIMITS.pause
    assert not fleet.world.hosts["a"].jobs, "it was withdrawn before it began elsewhere"


def test_where_it_is_not_known_what_runs_it_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(tmp_path, [cell("x")], [A, B])

    def blind(self: Session, task: Task, host: str) -> None:
        self.events.append(Withdrawn(task.key, host, "no answer"))

    disk_full_at_a(monkeypatch)
    monkeypatch.setattr(Session, "withdraw", blind)
    assert fleet.scheduler.run().complete
    assert fleet.tried("x")[-1] == ("b", "done")
    (a, _) = fleet.ledger.hosts()
    assert (a.state, a.why) == ("aside", "no answer")


def test_a_failure_is_not_tried_elsewhere_and_blocks_what_comes_after(tmp_path: Path) -> None:
    tasks = [cell(f"x/{n}of3", kind="shard", cell="x", hosts=("a",)) for n in (1, 2, 3)]
    tasks.append(cell("x", kind="link", after=tuple(one.key for one in tasks)))
    tasks.append(gpu_test("x/test", after=("x",), cell="x"))
    tasks.append(cell("other", 1, hosts=("b",)))
    fleet = Fleet(tmp_path, tasks, [A, machine("b", gpus=("9.0",))])
    fleet.world.failing.add("x/3of3")
    fleet.order("priority", "x/3of3", 5)
    assert fleet.run().tasks == {"failed": 1, "blocked": 4, "done": 1}
    assert fleet.tried("x/3of3") == [("a", "failed")]
    assert fleet.tried("x/1of3") == [], "nobody needs that share any more"
    assert fleet.entry("x/test").error.message == "it comes after x, which is blocked"  # type: ignore[union-attr]
    fleet.kill()
    fleet.world.failing.clear()
    fleet.order("retry", "x/3of3")
    fleet.start()
    assert fleet.run() == Summary({"done": 6})


def test_a_killed_controller_goes_on_where_things_run(tmp_path: Path) -> None:
    tasks = [cell(name, 8000) for name in ("x", "y", "z")]
    fleet = Fleet(tmp_path, tasks, [A, B])
    fleet.until(lambda: fleet.runs("x")() and fleet.runs("y")())
    fleet.kill()
    fleet.world.clock += 100
    fleet.start()
    assert fleet.run().complete
    assert all(fleet.world.compiled[task.key] == 1 for task in tasks)
    assert fleet.tried("x") == [(fleet.entry("x").host, "left"), (fleet.entry("x").host, "done")]
    assert len(fleet.tried("z")) == 1


def test_a_build_that_ended_while_nobody_looked_is_taken_home(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, [cell("x", 80)], [A])
    fleet.until(fleet.runs("x"))
    fleet.kill()
    fleet.world.advance(fleet.world.clock + 500, lambda: False)
    fleet.start()
    assert fleet.run().complete
    assert fleet.tried("x") == [("a", "left"), ("a", "done")]


def test_while_its_host_can_be_reached_a_task_of_before_is_begun_nowhere_else(
    tmp_path: Path,
) -> None:
    fleet = Fleet(tmp_path, [cell("x", 80_000)], [A, B])
    fleet.until(fleet.runs("x"))
    fleet.kill()
    fleet.world.lose_way("a", 100)
    fleet.start()
    fleet.until(lambda: fleet.entry("x").state == "running" and "a" in up(fleet))
    assert fleet.run().complete
    assert {host for host, _ in fleet.tried("x")} == {"a"}


def test_pause_and_resume(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, [cell("x"), cell("y")], [A])
    fleet.until(lambda: fleet.entry("x").state == "running")
    fleet.order("pause")
    fleet.until(lambda: fleet.entry("x").state == "done")
    assert fleet.entry("y").state == "waiting"
    fleet.kill()
    fleet.start()  # it stays paused
    fleet.world.at(7 * 3600, lambda: fleet.order("resume"))
    assert fleet.run().complete
    (y,) = [one for one in fleet.ledger.attempts() if one.key == "y"]
    assert y.began > 1_000_000 + 7 * 3600


def test_drain(tmp_path: Path) -> None:
    tasks = [cell(str(n)) for n in range(6)]
    fleet = Fleet(tmp_path, tasks, [A, B])
    fleet.order("drain", "a")
    fleet.until(lambda: fleet.entry("2").state == "done")
    assert {one.host for one in fleet.ledger.attempts()} == {"b"}
    fleet.order("undrain", "a")
    assert fleet.run().complete
    assert {one.host for one in fleet.ledger.attempts()} == {"a", "b"}


def test_cancel_what_runs_and_what_waits(tmp_path: Path) -> None:
    tasks = [
        cell("x", 8e6, hosts=("a",)),
        cell("y", hosts=("a",)),
        gpu_test("y/test", after=("y",), cell="y"),
    ]
    fleet = Fleet(tmp_path, tasks, [machine("a", gpus=("9.0",)), B])
    fleet.order("priority", "x", 1)
    fleet.until(fleet.runs("x"))
    first, second = fleet.order("cancel", "x"), fleet.order("cancel", "y")
    assert fleet.run().tasks == {"cancelled": 3}, "a cell with all its tasks"
    assert not any(host.jobs for host in fleet.world.hosts.values())
    assert fleet.ledger.answer(first) == "done"
    assert fleet.ledger.answer(second) is not None
    fleet.order("cancel", "x")
    fleet.scheduler.run()
    assert fleet.ledger.answer(second + 1) == "nothing to do: it is cancelled"


def test_a_cancelled_task_is_ended_by_the_next_controller_too(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, [cell("x", 8e6)], [A])
    fleet.until(fleet.runs("x"))
    with fleet.ledger.change(fleet.world.clock) as change:
        change.task(
            fleet.scheduler.entries["x"], cancelled=True
        )  # and killed before it is reported
    fleet.kill()
    fleet.start()
    assert fleet.run().tasks == {"cancelled": 1}
    assert not fleet.world.hosts["a"].jobs


def test_priority_of_a_cell_moves_all_its_works(tmp_path: Path) -> None:
    tasks = [cell("long", 9000), cell("x/1of1", 8, kind="shard", cell="x", hosts=("a",))]
    tasks.append(cell("x", 8, kind="link", after=("x/1of1",), hosts=("a",)))
    fleet = Fleet(tmp_path, tasks, [A])
    fleet.order("priority", "x", 3)
    assert fleet.run().complete
    assert [one.key for one in fleet.ledger.attempts()] == ["x/1of1", "x", "long"]


def test_a_host_that_never_comes_is_aside_while_others_go_on(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, [cell(str(n), 80_000) for n in range(4)], [A, B])
    fleet.world.hosts["b"].alive = fleet.world.hosts["b"].reachable = False
    assert fleet.run().complete
    (_, b) = fleet.ledger.hosts()
    assert (b.state, b.why) == ("aside", "no answer")
    looks = [one.at for one in fleet.ledger.events() if one.what == "asked" and one.host == "b"]
    pauses = [later - at for at, later in itertools.pairwise(looks)]
    assert pauses[:4] == [16.0, 31.0, 61.0, 121.0], "each is twice the last"
    assert max(pauses) <= LIMITS.max_pause + LIMITS.poll


def test_refused_hosts_do_nothing_and_tasks_without_a_host_are_blocked(tmp_path: Path) -> None:
    tasks = [cell("x"), cell("y", hosts=(), refused={"a": "no GPU"}), cell("z", after=("y",))]
    fleet = Fleet(tmp_path, tasks, [A, B])
    fleet.kill()
    ledger = Ledger(fleet.path)
    ledger.put([], [B], 5.0)
    ledger.close()
    fleet.start()
    assert fleet.run().tasks == {"done": 1, "blocked": 2}
    assert fleet.tried("x") == [("b", "done")]
    assert fleet.entry("y").error.message == "no host fits: a: no GPU"  # type: ignore[union-attr]


def test_what_no_host_fitted_is_done_once_the_next_controller_has_one_that_fits(
    tmp_path: Path,
) -> None:
    """The same command finds its fleet on whatever hosts."""
    tasks = [
        cell("x"),
        cell("y", hosts=("a",), needs=Needs(memory=100 * GIB)),
        cell("z", after=("y",)),
    ]
    fleet = Fleet(tmp_path, tasks, [A, B])
    assert (fleet.entry("y").state, fleet.entry("z").state) == ("blocked", "blocked")
    fleet.kill()
    large = machine("a", memory=200 * GIB)
    fleet.world.hosts["a"].machine = large
    ledger = Ledger(fleet.path)
    ledger.put(tasks, [large, B], 5.0)
    ledger.close()
    fleet.start()
    assert fleet.run().tasks == {"done": 3}


def test_what_was_done_as_a_whole_is_not_divided_by_the_next_controller(tmp_path: Path) -> None:
    """``--shards auto`` goes by the hosts that are there."""
    fleet = Fleet(tmp_path, [cell("x"), cell("y")], [A, B])
    fleet.until(lambda: fleet.scheduler.entries["x"].state == "done")
    fleet.kill()
    keys = ("x/1of2", "x/2of2")
    shards = [cell(key, kind="shard").model_copy(update={"cell": "x"}) for key in keys]
    ledger = Ledger(fleet.path)
    ledger.put([*shards, cell("x", kind="link", after=keys), cell("y")], [A, B], 5.0)
    ledger.close()
    fleet.start()
    assert fleet.run() == Summary({"done": 2})


def test_it_ends_when_no_host_is_left_and_says_why(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, [cell("x")], [A])
    fleet.kill()
    ledger = Ledger(fleet.path)
    ledger.put([], [], 5.0)
    ledger.close()
    fleet.start()
    summary = fleet.run()
    assert summary == Summary({"waiting": 1}, "no suitable host takes part")
    assert not summary.complete


def test_hosts_that_stay_away_are_not_waited_for_without_end(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, [cell("x")], [A])
    fleet.world.hosts["a"].alive = fleet.world.hosts["a"].reachable = False
    summary = fleet.run()
    assert summary.tasks == {"waiting": 1}
    assert "for a long time" in summary.stuck
    assert fleet.world.clock - 1_000_000 >= LIMITS.stuck


def test_another_host_that_is_there_does_not_make_it_wait_without_end(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, [cell("x", hosts=("a",)), cell("y", hosts=("b",))], [A, B])
    fleet.world.hosts["a"].alive = fleet.world.hosts["a"].reachable = False
    summary = fleet.run()
    assert summary.tasks == {"waiting": 1, "done": 1}
    assert "for a long time" in summary.stuck


def test_what_no_host_is_large_enough_for_is_blocked_with_the_reason(tmp_path: Path) -> None:
    large = cell("x", needs=Needs(memory=900 * GIB), hosts=("a", "b"))
    fleet = Fleet(tmp_path, [large, cell("y")], [A, B])
    assert fleet.run().tasks == {"blocked": 1, "done": 1}
    error = fleet.entry("x").error
    assert error is not None
    assert "a: it needs 900.0 GiB of memory, there are" in error.message


def test_a_clock_that_is_put_back_does_not_hold_anything_up(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, [cell("x")], [A, B])
    fleet.until(fleet.runs("x"))
    fleet.world.lose_way("a", 1e7)
    fleet.until(lambda: fleet.entry("x").bound == "a")
    now = fleet.session.now
    fleet.session.now = lambda: now() - 36_000.0  # type: ignore[method-assign]
    fleet.until(lambda: fleet.entry("x").host == "b")
    fleet.until(lambda: fleet.entry("x").state == "done")
    spans = fleet.ledger.attempts()
    assert all((span.ended or 0) >= span.began for span in spans)
    assert fleet.world.clock - 1_000_000 < 3 * LIMITS.grace


def test_a_clock_that_is_put_back_does_not_put_off_the_next_try(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, [cell("x")], [A])
    fleet.until(fleet.runs("x"))
    fleet.session.tell("x", "lost", "bytes that arrived are not the bytes that were sent")
    fleet.until(lambda: fleet.entry("x").not_before > 0)
    now = fleet.session.now
    fleet.session.now = lambda: now() - 36_000.0  # type: ignore[method-assign]
    fleet.until(lambda: fleet.entry("x").state == "done")
    assert fleet.world.clock - 1_000_000 < 300


def test_what_was_left_goes_on_at_the_same_host_with_the_next_controller(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, [cell("x", 8000)], [A, B])
    fleet.until(fleet.runs("x"))
    fleet.session.tell("x", "left", "its time is up")
    assert fleet.run() == Summary({"waiting": 1}), "it is not begun again at once, without end"
    fleet.kill()
    fleet.start()
    assert fleet.run().complete
    assert fleet.tried("x") == [("a", "left"), ("a", "done")]
    assert fleet.world.compiled["x"] == 1


@pytest.mark.parametrize("cores", [(16, 16, 16, 16), (4, 8, 32, 64)], ids=str)
def test_two_hundred_cells_on_four_hosts_take_little_more_than_they_must(
    tmp_path: Path, cores: tuple[int, ...]
) -> None:
    dice = random.Random(1)
    hosts = [machine(f"h{n}", cores=many) for n, many in enumerate(cores)]
    names = tuple(host.name for host in hosts)
    sizes = [dice.choice([300.0, 4200.0, 9522.0, 28_566.0]) for _ in range(200)]
    tasks = [
        cell(f"c{n}", size, hosts=names, warm=f"tools{n % 4}", cold_seconds=60.0)
        for n, size in enumerate(sizes)
    ]
    ideal = max(max(sizes) / max(cores), sum(sizes) / sum(cores))
    assert ideal <= simulated(tmp_path, tasks, hosts)[0] <= 1.15 * ideal


def test_shares_begin_early_enough_for_their_link(tmp_path: Path) -> None:
    """A share of 500 s is before cells of 600 s: its link of 200 s comes after it."""
    shares = [cell(f"x/{n}of2", 4000, kind="shard", cell="x") for n in (1, 2)]
    link = cell("x", 1600, kind="link", after=("x/1of2", "x/2of2"))
    tasks = [cell("y", 4800), cell("z", 4800), *shares, link]
    seconds, spans = simulated(tmp_path, tasks, [A, B])
    assert {one.key for one in spans[:2]} == {"x/1of2", "x/2of2"}
    assert seconds == 1300.0


@pytest.mark.parametrize("seed", range(4))
def test_what_is_left_is_told_within_half_as_much_again(seed: int, tmp_path: Path) -> None:
    """Over a campaign of shards, links and tests, each of which takes 1.5 to 3 times its plan."""
    dice = random.Random(seed)
    machines = [machine("a"), machine("b"), machine("c", slots=2)]
    tasks: list[Task] = []
    for number in range(10):
        name, where = f"c{number}", {"cell": f"c{number}", "hosts": ("a", "b", "c")}
        each = dice.uniform(100, 1000)
        shards = [cell(f"{name}/{n}of3", each, kind="shard", **where) for n in (1, 2, 3)]
        link = cell(name, 60, kind="link", after=tuple(one.key for one in shards), **where)
        tasks += [*shards, link, cell(f"{name}/test", 120, kind="test", after=(name,), **where)]
    slower = {task.key: dice.uniform(1.5, 3) for task in tasks}
    world = World(machines, seed, seconds=lambda task, at: at.seconds(task) * slower[task.key])
    ledger = Ledger.create(tmp_path, "simulated", world.clock, durable=False)
    ledger.put(tasks, machines, world.clock)
    scheduler, told = Scheduler(ledger, Session(world), Limits(poll=60.0)), []
    while any(one.state not in FINAL for one in ledger.tasks()):
        scheduler.step()
        left = estimate_remaining(ledger.tasks(), ledger.attempts(), machines, world.clock)
        told += [(world.clock, *left)] if left else []
    end = max(span.ended or 0.0 for span in ledger.attempts())
    ledger.close()
    assert len(told) > 30
    for now, least, most in told:
        if end - now > 60:
            assert least <= 1.5 * (end - now), f"{end - now:.0f} s are left"
            assert end - now <= 1.5 * most, f"{end - now:.0f} s are left"
            assert least <= most


def test_tests_are_left_to_do_like_builds() -> None:
    machines, builds = [machine("a")], [cell("x", 800.0), cell("y", 800.0)]
    test = cell("y/test", 800.0, kind="test", after=("y",))
    done = Span(key="x", kind="cell", host="a", began=0.0, ended=200.0, outcome="done")
    entries = [TaskEntry(one) for one in (*builds, test)]
    assert estimate_remaining(entries, [], machines, 200.0) is None, "nothing is done yet"
    entries[0].state = "done"
    assert estimate_remaining(entries, [done], machines, 200.0) == (400.0, 800.0)
    entries[1].state, entries[1].since = "running", 200.0
    assert estimate_remaining(entries, [done], machines, 300.0) == (300.0, 600.0)
    for one in entries:
        one.state = "done"
    assert estimate_remaining(entries, [done], machines, 600.0) is None
