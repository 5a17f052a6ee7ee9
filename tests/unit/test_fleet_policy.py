"""What begins next and where: limits hold, what is first is first, warmth never costs more."""

from __future__ import annotations

import functools

from fleets import cell, gpu_test, machine
from hypothesis import given
from hypothesis import strategies as st

from pipelines.fleet.model import Machine, Needs, Work
from pipelines.fleet.policy import Candidate, Place, Queue, choose, pause_after, ranks, wanted
from pipelines.fleet.rooms import Room, seconds_on
from pipelines.units import GIB

HOSTS = ("a", "b", "c")


def candidate(work: Work, turn: int) -> Candidate:
    place = Place(work.priority, bool(work.needs.gpu), work.core_seconds, -turn, work.key)
    return Candidate(work, place, frozenset(work.hosts))


def queue_of(*works: Work) -> Queue:
    queue = Queue()
    for turn, work in enumerate(works):
        queue.add(candidate(work, turn))
    return queue


def rooms_of(*machines: Machine) -> dict[str, Room]:
    return {one.name: Room(one) for one in machines}


def chosen(queue: Queue, rooms: dict[str, Room], now: float = 0.0) -> list[tuple[str, str]]:
    """All that begins at one moment, in order."""
    found = []
    while one := choose(queue, rooms, now):
        work, room = one[0].work, one[1]
        queue.drop(work.key)
        room.take(work, now + room.seconds(work))
        found.append((work.key, room.name))
    return found


def test_priority_then_the_longest() -> None:
    works = [cell("short", 10), cell("long", 900), cell("first", 1, priority=1)]
    assert chosen(queue_of(*works), rooms_of(machine("a", slots=3))) == [
        ("first", "a"),
        ("long", "a"),
        ("short", "a"),
    ]


def test_what_a_link_waits_for_is_before_what_is_longer() -> None:
    """A share of 100 s with a link of 500 s after it is worth 600."""
    works = [
        cell("x/1of1", 800, kind="shard"),
        cell("x", 4000, after=("x/1of1",)),
        cell("y", 2400),
    ]
    rank = ranks(works, [machine("a")])
    assert rank == {"x": 500.0, "x/1of1": 600.0, "y": 300.0}


def test_ranks_of_a_long_chain() -> None:
    works = [cell("0", 8)] + [cell(str(n), 8, after=(str(n - 1),)) for n in range(1, 5000)]
    assert ranks(works, [machine("a")])["0"] == 5000.0


def test_limits_hold() -> None:
    small = machine("a", slots=2, memory=10 * GIB)
    works = [cell(str(n), 100 - n, needs=Needs(memory=4 * GIB)) for n in range(4)]
    assert [key for key, _ in chosen(queue_of(*works), rooms_of(small))] == ["0", "1"]
    works = [cell("big", needs=Needs(memory=11 * GIB)), cell("two", 1, needs=Needs(slots=2))]
    assert chosen(queue_of(*works), rooms_of(small)) == [("two", "a")]


def test_one_that_does_not_fit_keeps_no_other_from_its_room() -> None:
    works = [cell("big", 9000, needs=Needs(memory=60 * GIB)), cell("small", 1)]
    rooms = rooms_of(machine("a", slots=2), machine("b", slots=2))
    rooms["a"].take(cell("x", needs=Needs(memory=32 * GIB)), 99.0)
    rooms["b"].take(cell("y", needs=Needs(memory=32 * GIB)), 99.0)
    assert chosen(queue_of(*works), rooms) == [("small", "a")]


def test_gpu_works_go_to_gpus_that_are_free_and_right() -> None:
    both = machine("a", gpus=("8.6", "9.0"))
    works = [gpu_test("t1"), gpu_test("t2"), gpu_test("t3", hosts=("b",))]
    rooms = rooms_of(both, machine("b", gpus=("8.6",)))
    assert chosen(queue_of(*works), rooms) == [("t1", "a")]
    rooms["a"].drop("t1", 5.0)
    assert chosen(queue_of(*works[1:]), rooms, 5.0) == [("t2", "a")]


def test_builds_leave_memory_to_a_test_that_waits_for_the_gpu() -> None:
    host = machine("a", slots=2, gpus=("9.0",), memory=16 * GIB)
    build = cell("build", hosts=("a",), needs=Needs(memory=8 * GIB))
    rooms = rooms_of(host)
    rooms["a"].take(gpu_test("runs", memory=2 * GIB), 10.0)
    waits = gpu_test("waits", memory=12 * GIB, hosts=("a",))
    assert chosen(queue_of(build, waits), rooms) == []
    assert chosen(queue_of(build), rooms) == [("build", "a")]


def test_builds_keep_off_gpu_hosts_where_there_is_another() -> None:
    rooms = rooms_of(machine("a", gpus=("9.0",)), machine("b"))
    assert chosen(queue_of(cell("x")), rooms) == [("x", "b")]


def test_of_hosts_alike_the_emptiest() -> None:
    rooms = rooms_of(*(machine(name, slots=2, cores=16) for name in HOSTS))
    works = [cell(str(n), 100 - n, hosts=HOSTS) for n in range(6)]
    assert [name for _, name in chosen(queue_of(*works), rooms)] == [*HOSTS, *HOSTS]


def test_a_warm_host_is_worth_what_it_saves_and_no_more() -> None:
    rooms = rooms_of(machine("a"))
    rooms["a"].warm.add("cu128")
    longer = cell("longer", 1000, warm="cu130", cold_seconds=60)
    near = cell("near", 950, warm="cu128", cold_seconds=60)
    far = cell("far", 900, warm="cu128", cold_seconds=60)
    assert chosen(queue_of(longer, near), rooms_of(machine("a"))) == [("longer", "a")]
    assert chosen(queue_of(longer, far, cell("z", 1)), dict(rooms)) == [("longer", "a")]
    rooms["a"].drop("longer", 0.0)
    assert chosen(queue_of(longer, near, far), rooms) == [("near", "a")]


def test_of_two_free_hosts_the_warm_one() -> None:
    rooms = rooms_of(machine("a"), machine("b"))
    rooms["b"].warm.add("cu128")
    assert chosen(queue_of(cell("x", warm="cu128", cold_seconds=60)), rooms) == [("x", "b")]


def test_the_last_one_waits_for_a_much_faster_host() -> None:
    rooms = rooms_of(machine("a", cores=2), machine("b", cores=64))
    rooms["b"].take(cell("busy"), 100.0)
    assert chosen(queue_of(cell("last", 6400)), rooms) == []  # 200 s there, 3200 s here
    rooms["b"].ends["busy"] = 4000.0
    assert chosen(queue_of(cell("last", 6400)), rooms) == [("last", "a")]


def test_no_host_is_waited_for_that_does_not_end() -> None:
    """One that is late is thought to be as late again by half, so that waiting for it ends."""
    rooms = rooms_of(machine("a", cores=2), machine("b", cores=64))
    rooms["b"].take(cell("hangs"), 100.0)
    assert chosen(queue_of(cell("last", 6400)), rooms, 150.0) == []
    assert chosen(queue_of(cell("last", 6400)), rooms, 8000.0) == [("last", "a")]


def test_only_so_many_wait_for_the_fast_host_as_it_can_do_in_time() -> None:
    rooms = rooms_of(machine("a", cores=16), machine("b", cores=32))
    rooms["b"].take(cell("busy"), 50.0)
    works = [cell(name, 3200) for name in ("x", "y")]  # 200 s here; 50 + 100 s there
    assert len(chosen(queue_of(*works), rooms)) == 1


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
def works() -> st.SearchStrategy[list[Work]]:
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


@given(machines(), works(), st.sets(st.sampled_from(["cu126", "cu128"])))
def test_whatever_comes_no_host_is_given_more_than_it_has(
    hosts: list[Machine], asked: list[Work], warm: set[str]
) -> None:
    rooms = rooms_of(*hosts)
    for room in rooms.values():
        room.warm |= warm
    by_key = {work.key: work for work in asked}
    began = chosen(queue_of(*asked), rooms)
    assert len({key for key, _ in began}) == len(began)
    for host in hosts:
        mine = [by_key[key] for key, name in began if name == host.name]
        assert all(host.name in work.hosts for work in mine)
        assert sum(work.needs.slots for work in mine) <= host.slots
        assert sum(work.needs.memory for work in mine) <= host.memory
        on_gpu = [work for work in mine if work.needs.gpu]
        assert len(on_gpu) <= len(host.gpus)
        assert all(set(work.needs.gpu) & set(host.gpus) for work in on_gpu)
    for room in rooms.values():  # and all of it is given back
        for key in [*room.held]:
            room.drop(key, 0.0)
        assert (room.slots, room.memory) == (room.machine.slots, room.machine.memory)
        assert sorted(room.gpus) == sorted(room.machine.gpus)


@given(machines(), works(), st.sets(st.sampled_from(["cu126", "cu128"])))
def test_whatever_comes_warmth_costs_no_more_than_it_saves(
    hosts: list[Machine], asked: list[Work], warm: set[str]
) -> None:
    rooms = rooms_of(*hosts)
    for room in rooms.values():
        room.warm |= warm
    one = choose(queue_of(*asked), rooms, 0.0)
    ready = [
        work
        for work in asked
        if any(name in rooms and rooms[name].fits(work) for name in work.hosts)
    ]
    if one is None:
        # Nothing runs, so nothing is waited for: what has room begins.
        free = [w for w in ready if w.needs.gpu or not any(host.gpus for host in hosts)]
        assert not free
        return
    work = one[0].work
    assert work.priority == max(w.priority for w in ready if w.priority >= work.priority)
    for other in ready:
        if (other.priority, bool(other.needs.gpu)) == (work.priority, bool(work.needs.gpu)) and (
            one[1].name in other.hosts and one[1].fits(other) and not one[1].machine.gpus
        ):
            assert other.core_seconds <= work.core_seconds + work.cold_seconds


@given(machines(), works())
def test_whatever_comes_all_of_it_is_done(hosts: list[Machine], asked: list[Work]) -> None:
    """No work that some host could ever do is passed over for good."""
    rooms, queue, now = rooms_of(*hosts), queue_of(*asked), 0.0
    for _ in range(200):
        chosen(queue, rooms, now)
        ends = [(end, key, room) for room in rooms.values() for key, end in room.ends.items()]
        if not ends:
            break
        now, key, room = min(ends, key=lambda one: one[:2])
        room.drop(key, now)
    left = [one.work for one in queue.all()]
    assert not [w for w in left if any(n in rooms and rooms[n].can(w) for n in w.hosts)]


def test_hosts_are_made_for_what_waits_and_no_more() -> None:
    off = [machine(f"vm{n}", made=True, price=1.0 + n) for n in range(4)]
    names = tuple(one.name for one in off)
    works = [cell(str(n), 8000, hosts=("a", *names)) for n in range(3)]
    up = Room(machine("a"))
    up.take(cell("x"), 1e4)
    assert [m.name for m in wanted(queue_of(*works), off, [up], 120.0)] == ["vm0", "vm1", "vm2"]
    coming = [up, *(Room(m) for m in off[:3])]
    assert wanted(queue_of(*works), off[3:], coming, 120.0) == []
    assert wanted(queue_of(cell("x", 1, hosts=("a", *names))), off, [up], 120.0) == []
    assert wanted(queue_of(cell("x", hosts=("a",))), off, [up], 1.0) == []
    assert wanted(queue_of(gpu_test("t", hosts=names)), off, [], 1.0) == []
    assert wanted(Queue(), off, [], 1.0) == []


def test_pauses_grow_up_to_a_limit() -> None:
    assert [pause_after(n, 15, 900) for n in (0, 1, 2, 6, 7, 10**9)] == [15, 30, 60, 900, 900, 900]


def test_what_a_work_takes_where() -> None:
    assert seconds_on(cell("x", 640, width=64), machine("a", cores=64, slots=4)) == 40
    assert seconds_on(cell("x", 640, width=2), machine("a", cores=64)) == 320
    assert seconds_on(cell("x", 640), machine("a", cores=1, slots=4)) == 640
