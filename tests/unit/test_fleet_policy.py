"""What begins next and where: limits hold, what is first is first, warmth never costs more."""

from __future__ import annotations

import functools

import pytest
from fleets import cell, end, gpu_test, machine
from hypothesis import given
from hypothesis import strategies as st

from pipelines.core.units import GIB
from pipelines.fleet.model import HostEntry, Machine, Needs, Task, TaskEntry
from pipelines.fleet.policy import (
    Limits,
    Room,
    assign_tasks,
    downstream_seconds,
    fields_after_attempt,
    find_blocked_tasks,
)

HOSTS = ("a", "b", "c")


def rooms_of(*machines: Machine) -> dict[str, Room]:
    return {one.name: Room(one) for one in machines}


def chosen(tasks: list[Task], rooms: dict[str, Room], now: float = 0.0) -> list[tuple[str, str]]:
    """All that begins at one moment, in order."""
    begun = assign_tasks([(task, task.hosts) for task in in_order(tasks)], rooms, now)
    return [(task.key, room.machine.name) for task, room in begun]


def in_order(tasks: list[Task]) -> list[Task]:
    """By priority, GPU and length, as the scheduler has them."""
    return sorted(tasks, key=lambda one: (-one.priority, not one.needs.gpu, -one.core_seconds))


def test_priority_then_the_longest() -> None:
    tasks = [cell("short", 10), cell("long", 900), cell("first", 1, priority=1)]
    assert chosen(tasks, rooms_of(machine("a", slots=3))) == [
        ("first", "a"),
        ("long", "a"),
        ("short", "a"),
    ]


def test_what_a_link_waits_for_is_before_what_is_longer() -> None:
    """A share of 100 s with a link of 500 s after it is worth 600."""
    tasks = [
        cell("x/1of1", 800, kind="shard"),
        cell("x", 4000, after=("x/1of1",)),
        cell("y", 2400),
    ]
    rank = downstream_seconds(tasks, [machine("a")])
    assert rank == {"x": 500.0, "x/1of1": 600.0, "y": 300.0}


def test_ranks_of_a_long_chain() -> None:
    tasks = [cell("0", 8)] + [cell(str(n), 8, after=(str(n - 1),)) for n in range(1, 5000)]
    assert downstream_seconds(tasks, [machine("a")])["0"] == 5000.0


def test_limits_hold() -> None:
    small = machine("a", slots=2, memory=10 * GIB)
    tasks = [cell(str(n), 100 - n, needs=Needs(memory=4 * GIB)) for n in range(4)]
    assert [key for key, _ in chosen(tasks, rooms_of(small))] == ["0", "1"]
    tasks = [cell("big", needs=Needs(memory=11 * GIB)), cell("two", 1, needs=Needs(slots=2))]
    assert chosen(tasks, rooms_of(small)) == [("two", "a")]


def test_tests_without_a_gpu_are_as_many_as_slots() -> None:
    tests = [cell(f"t{n}", needs=Needs(slots=0, memory=GIB)) for n in range(9)]
    rooms = rooms_of(machine("a", slots=2, memory=128 * GIB))
    begun = chosen([*tests, cell("b")], rooms)
    assert sorted(key[0] for key, _ in begun) == ["b", "t", "t"]


def test_one_that_does_not_fit_keeps_no_other_from_its_room() -> None:
    tasks = [cell("big", 9000, needs=Needs(memory=60 * GIB)), cell("small", 1)]
    rooms = rooms_of(machine("a", slots=2), machine("b", slots=2))
    rooms["a"].take(cell("x", needs=Needs(memory=32 * GIB)), 99.0)
    rooms["b"].take(cell("y", needs=Needs(memory=32 * GIB)), 99.0)
    assert chosen(tasks, rooms) == [("small", "a")]


def test_gpu_tasks_go_to_gpus_that_are_free_and_right() -> None:
    both = machine("a", gpus=("8.6", "9.0"))
    tasks = [gpu_test("t1"), gpu_test("t2"), gpu_test("t3", hosts=("b",))]
    rooms = rooms_of(both, machine("b", gpus=("8.6",)))
    assert chosen(tasks, rooms) == [("t1", "a")]
    rooms = rooms_of(both)
    assert chosen(tasks[1:], rooms, 5.0) == [("t2", "a")]


def test_builds_leave_memory_to_a_test_that_waits_for_the_gpu() -> None:
    host = machine("a", slots=2, gpus=("9.0",), memory=16 * GIB)
    build = cell("build", hosts=("a",), needs=Needs(memory=8 * GIB))
    waits = gpu_test("waits", memory=12 * GIB, hosts=("a",))
    for tasks, begun in (([build, waits], []), ([build], [("build", "a")])):
        rooms = rooms_of(host)
        rooms["a"].take(gpu_test("runs", memory=2 * GIB), 10.0)
        assert chosen(tasks, rooms) == begun


def test_builds_keep_off_gpu_hosts_where_there_is_another() -> None:
    rooms = rooms_of(machine("a", gpus=("9.0",)), machine("b"))
    assert chosen([cell("x")], rooms) == [("x", "b")]


def test_of_hosts_alike_the_emptiest() -> None:
    rooms = rooms_of(*(machine(name, slots=2, cores=16) for name in HOSTS))
    tasks = [cell(str(n), 100 - n, hosts=HOSTS) for n in range(6)]
    assert [name for _, name in chosen(tasks, rooms)] == [*HOSTS, *HOSTS]


def test_of_two_free_hosts_the_warm_one() -> None:
    rooms = {"a": Room(machine("a")), "b": Room(machine("b"), {"cu128"})}
    assert chosen([cell("x", warm="cu128", cold_seconds=60)], rooms) == [("x", "b")]


@pytest.mark.parametrize(("until", "begun"), [(100.0, []), (4000.0, [("last", "a")])])
def test_the_last_one_waits_for_a_much_faster_host(
    until: float, begun: list[tuple[str, str]]
) -> None:
    rooms = rooms_of(machine("a", cores=2), machine("b", cores=64))
    rooms["b"].take(cell("busy"), until)
    assert chosen([cell("last", 6400)], rooms) == begun  # 200 s there, 3200 s here


def test_no_host_is_waited_for_that_does_not_end() -> None:
    """One that is late is thought to be as late again by half, so that waiting for it ends."""
    rooms = rooms_of(machine("a", cores=2), machine("b", cores=64))
    rooms["b"].take(cell("hangs"), 100.0)
    assert chosen([cell("last", 6400)], rooms, 150.0) == []
    assert chosen([cell("last", 6400)], rooms, 8000.0) == [("last", "a")]


def test_only_so_many_wait_for_the_fast_host_as_it_can_do_in_time() -> None:
    rooms = rooms_of(machine("a", cores=16), machine("b", cores=32))
    rooms["b"].take(cell("busy"), 50.0)
    tasks = [cell(name, 3200) for name in ("x", "y")]  # 200 s here; 50 + 100 s there
    assert len(chosen(tasks, rooms)) == 1


@functools.cache
def machines() -> st.SearchStrategy[list[Machine]]:
    one = st.builds(
        lambda name, slots, cores, memory, gpus: machine(
            name, slots=slots, cores=cores, memory=memory * GIB, gpus=gpus
        ),
        st.sampled_from(HOSTS),
        st.integers(1, 3),
        st.integers(1, 64),
        st.integers(4, 64),
        st.sampled_from([(), ("9.0",), ("8.6", "9.0")]),
    )
    return st.lists(one, min_size=1, max_size=3, unique_by=lambda m: m.name)


@functools.cache
def tasks() -> st.SearchStrategy[list[Task]]:
    one = st.builds(
        lambda key, seconds, slots, memory, gpu, hosts, priority, warm: cell(
            f"w{key}",
            seconds,
            needs=Needs(slots=0 if gpu else slots, memory=memory * GIB, gpu=gpu),
            hosts=tuple(hosts),
            priority=priority,
            warm=warm,
            cold_seconds=60.0,
        ),
        st.integers(0, 999),
        st.integers(1, 10_000),
        st.integers(0, 2),
        st.integers(0, 40),
        st.sampled_from([(), (), ("9.0",)]),
        st.sets(st.sampled_from(HOSTS), min_size=1),
        st.integers(-1, 1),
        st.sampled_from(["", "cu126", "cu128"]),
    )
    return st.lists(one, max_size=14, unique_by=lambda w: w.key)


@given(machines(), tasks(), st.sets(st.sampled_from(["cu126", "cu128"])))
def test_whatever_comes_no_host_is_given_more_than_it_has(
    hosts: list[Machine], asked: list[Task], warm: set[str]
) -> None:
    rooms = {one.name: Room(one, warm) for one in hosts}
    by_key = {task.key: task for task in asked}
    began = chosen(asked, rooms)
    assert len({key for key, _ in began}) == len(began)
    for host in hosts:
        mine = [by_key[key] for key, name in began if name == host.name]
        assert all(host.name in task.hosts for task in mine)
        assert sum(task.needs.slots for task in mine) <= host.slots
        assert sum(task.needs.memory for task in mine) <= host.memory
        on_gpu = [task for task in mine if task.needs.gpu]
        assert len(on_gpu) <= len(host.gpus)
        assert all(set(task.needs.gpu) & set(host.gpus) for task in on_gpu)


@given(machines(), tasks())
def test_whatever_comes_all_of_it_is_done(hosts: list[Machine], asked: list[Task]) -> None:
    """No task that some host could ever do is passed over for good."""
    by_key = {task.key: task for task in asked}
    running: dict[str, tuple[str, float]] = {}
    left, now = asked, 0.0
    for _ in range(200):
        rooms = rooms_of(*hosts)
        for key, (name, until) in running.items():
            rooms[name].take(by_key[key], until)
        for key, name in chosen(left, rooms, now):
            running[key] = (name, now + rooms[name].seconds(by_key[key]))
        left = [one for one in left if one.key not in running]
        if not running:
            break
        first = min(running, key=lambda key: running[key][1])
        now = running.pop(first)[1]
    assert not [one for one in left if any(m.name in one.hosts and m.can(one) for m in hosts)]


def test_pauses_grow_up_to_a_limit() -> None:
    pauses = [Limits().pause_after(n) for n in (0, 1, 2, 6, 7, 10**9)]
    assert pauses == [15, 30, 60, 900, 900, 900]


def test_what_a_task_takes_where() -> None:
    assert machine("a", cores=64, slots=4).seconds(cell("x", 640, width=64)) == 40
    assert machine("a", cores=64).seconds(cell("x", 640, width=2)) == 320
    assert machine("a", cores=1, slots=4).seconds(cell("x", 640)) == 640


def test_what_an_end_means() -> None:
    """For the task alone: what it was, how it ended, and whether it could go elsewhere."""

    def after(entry: TaskEntry, *, elsewhere: bool = True, **given: object) -> dict[str, object]:
        return fields_after_attempt(
            entry, end("x", "a", 3, **given), Limits(), 100.0, elsewhere=elsewhere
        )

    fresh, tried = TaskEntry(cell("x")), TaskEntry(cell("x"), losses={"a": 1})
    assert after(fresh) == {"state": "done", "error": None}
    assert after(fresh, outcome="failed")["state"] == "failed"
    left = after(fresh, outcome="left")
    assert (left["state"], left["bound"], left["suspended"]) == ("waiting", "a", True)
    lost = after(fresh, outcome="lost")
    assert (lost["bound"], lost["wait_until"], lost["not_before"]) == ("a", 400.0, 115.0)
    moved = after(tried, outcome="lost")
    assert (moved["avoid"], moved["remains"], "bound" in moved) == (("a",), {"a": 3}, False)
    assert after(tried, outcome="lost", elsewhere=False)["bound"] == "a"
    assert after(tried, outcome="lost", gone=True)["bound"] == "a"
    twice = after(TaskEntry(cell("x"), died=("b",)), outcome="lost", gone=True)
    assert (twice["state"], twice["remains"]) == ("quarantined", {"a": 3})
    ended = after(TaskEntry(cell("x"), cancelled=True), outcome="lost")
    assert (ended["state"], ended["remains"]) == ("cancelled", {"a": 3})


def test_what_can_never_begin() -> None:
    shards = tuple(f"x/{n}of2" for n in (1, 2))
    tasks = [cell(key, kind="shard", cell="x") for key in shards]
    tasks += [cell("x", kind="link", after=shards), cell("x/test", after=("x",)), cell("y")]
    entries = {one.key: TaskEntry(one) for one in tasks}
    hosts = {name: HostEntry(machine(name)) for name in ("a", "b")}
    assert find_blocked_tasks(entries, [*entries], hosts) == {}
    entries[shards[0]].state = "failed"
    found = find_blocked_tasks(entries, [*entries], hosts)
    assert [*found] == ["x", "x/test", shards[1]]
    assert found["x/test"].message == "it comes after x, which is blocked"
    small = {"a": HostEntry(machine("a", memory=GIB))}
    assert (
        "it needs 2.0 GiB of memory" in find_blocked_tasks(entries, [*entries], small)["y"].message
    )
