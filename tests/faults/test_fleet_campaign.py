"""A thousand cells through the very scheduler, with faults, and controllers killed anywhere.

Seeded: ``CAMPAIGN_SEED`` and ``CAMPAIGN_CELLS`` choose another one. The clock is simulated, nothing
else of the fleet is: ledger, policy and scheduler are those of ``invoke build --fleet``. The line
that it prints is that of the documents.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

from fleet_world import Session, World

from pipelines import fleet
from pipelines.core.units import GIB
from pipelines.fleet.ledger import Ledger
from pipelines.fleet.model import Machine, Needs, Task, Verb
from pipelines.fleet.policy import Limits
from pipelines.fleet.scheduler import Scheduler

CELLS = int(os.environ.get("CAMPAIGN_CELLS", "1000"))
SEED = int(os.environ.get("CAMPAIGN_SEED", "20261123"))
ROOM = str(Path(fleet.__file__).parent)


class Killed(BaseException):
    """As kill -9: nothing may catch it; what is not committed is not there."""


class Killer:
    """Kills the controller before some statement of the fleet's own code."""

    def __init__(self, seed: int, share: float) -> None:
        self.random = random.Random(seed)
        self.share = share
        self.left = -1
        self.places: Counter[tuple[str, int]] = Counter()

    def arm(self) -> None:
        if self.random.random() < self.share:
            self.left = int(self.random.expovariate(1 / 150))
            sys.settrace(self._trace)
        else:
            sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(ROOM):
            return None
        if event == "line":
            self.left -= 1
            if self.left < 0:
                sys.settrace(None)
                self.places[Path(frame.f_code.co_filename).name, frame.f_lineno] += 1
                raise Killed
        return self._trace


def matrix(cells: int, hosts: int, seed: int) -> tuple[list[Task], list[Machine]]:
    """Cells, some divided into shares, some with a test on a GPU; hosts of several sizes."""
    dice = random.Random(seed)
    machines = [
        Machine(
            name=f"host{n}",
            slots=dice.choice([1, 1, 2]),
            cores=dice.choice([8, 16, 32]),
            memory=64 * GIB,
            gpus=("9.0",) if n % 5 == 0 else (),
        )
        for n in range(hosts)
    ]
    names = tuple(one.name for one in machines)
    tasks: list[Task] = []
    for n in range(cells):
        seconds = dice.uniform(300, 9000)
        common: dict[str, Any] = {"cell": f"cell{n}", "hosts": names, "warm": f"tools{n % 6}"}
        needs = Needs(memory=dice.choice([4, 16, 40]) * GIB)
        after: tuple[str, ...] = ()
        if n % 10 == 0:
            after = tuple(f"cell{n}/{k}of4" for k in range(1, 5))
            for key in after:
                share = seconds / 4
                tasks.append(
                    Task(key=key, kind="shard", core_seconds=share, width=18, needs=needs, **common)
                )
            seconds = 60
        kind = "link" if after else "cell"
        tasks.append(
            Task(
                key=f"cell{n}",
                kind=kind,  # type: ignore[arg-type]
                core_seconds=seconds,
                width=73,
                needs=needs,
                after=after,
                **common,
            )
        )
        if n % 4 == 0:
            test = Needs(slots=0, memory=4 * GIB, gpu=("9.0",))
            tasks.append(
                Task(
                    key=f"cell{n}/test",
                    kind="test",
                    core_seconds=120,
                    needs=test,
                    after=(f"cell{n}",),
                    **common,
                )
            )
    return tasks, machines


class People:
    """They change their minds: drain hosts and use them again, hurry tasks, pause all of it."""

    def __init__(self, world: World, path: Path, tasks: list[Task], seed: int) -> None:
        self.world, self.path, self.tasks = world, path, tasks
        self.random = random.Random(seed)
        self.orders: Counter[str] = Counter()
        self.leave(*self.next())

    def next(self) -> tuple[float, Verb, str, int]:
        host = self.random.choice([*self.world.hosts])
        task = self.random.choice(self.tasks)
        kind = self.random.choice(["pause", "drain", "priority", "priority"])
        subject = {
            "pause": "",
            "drain": host,
            "priority": self.random.choice([task.key, task.cell]),
        }
        return self.random.expovariate(1 / 300), kind, subject[kind], self.random.randrange(-2, 3)  # type: ignore[return-value]

    def leave(self, seconds: float, verb: Verb, subject: str, number: int) -> None:
        def now() -> None:
            trace = sys.gettrace()
            sys.settrace(None)  # it is another process, and not the one that is killed
            ledger = Ledger(self.path, durable=False)
            ledger.order(verb, subject, number, at=self.world.clock)
            ledger.close()
            self.orders[verb] += 1
            if verb == "pause":
                self.leave(60.0, "resume", "", 0)
            elif verb == "drain":
                self.leave(900.0, "undrain", subject, 0)
            if verb in ("pause", "drain", "priority"):
                self.leave(*self.next())
            sys.settrace(trace)

        self.world.at(seconds, now)


def expected(tasks: list[Task]) -> dict[str, str]:
    """What every task makes where nothing ever fails."""
    found: dict[str, str] = {}
    for task in tasks:  # what comes before is before it in the list
        parts = [task.key, *(found[key] for key in task.after)]
        found[task.key] = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return found


def campaign(place: Path, cells: int, seed: int, *, faults: float, kills: float) -> str:
    tasks, machines = matrix(cells, 20, seed)
    world, killer = World(machines, seed, faults), Killer(seed, kills)
    began = time.monotonic()
    controllers = 0
    retried: set[str] = set()
    Ledger.create(place, "campaign", durable=False).close()
    path = next(place.glob("fleet-*"))
    with_orders = Ledger(path, durable=False)
    with_orders.put(tasks, machines, world.clock)
    with_orders.close()
    people = People(world, path, tasks, seed)
    while True:
        controllers += 1
        ledger = Ledger(path, durable=False)
        try:
            killer.arm()
            ledger.hold()
            ledger.put(tasks, machines, world.clock)
            scheduler = Scheduler(ledger, Session(world), Limits(poll=15.0))
            scheduler.run(killer.arm)
        except Killed:
            continue
        finally:
            sys.settrace(None)
            ledger.close()
            world.session = None
        ledger = Ledger(path)
        entries, attempts = ledger.tasks(), ledger.attempts()
        stuck = [one for one in entries if one.state != "done"]
        for entry in stuck:  # two different hosts were gone with it: a person looks, and says so
            if entry.state == "quarantined":
                lost = [one for one in attempts if one.key == entry.task.key]
                assert len(entry.died) > 1 or len(lost) >= 6, entry
                retried.add(entry.task.key)
                ledger.order("retry", entry.task.key, at=world.clock)
            else:
                assert entry.state == "blocked", entry
        ledger.close()
        if not stuck:
            break
    # What was promised.
    assert not world.wrong, world.wrong[:5]
    done = [one for one in attempts if one.outcome == "done"]
    assert Counter(one.key for one in done) == Counter(task.key for task in tasks)
    made = {one.key: one.details["sha256"] for one in done}
    assert made == expected(tasks)
    assert all((one.ended or 0) >= one.began for one in attempts if one.outcome)
    assert not [one for one in attempts if one.outcome is None], "an attempt without an end"
    for key, each in itertools.groupby(sorted(attempts, key=lambda a: a.key), lambda a: a.key):
        spans = sorted((one.attempt, one.began, one.ended) for one in each)
        for (_, _, end), (_, start, _) in itertools.pairwise(spans):
            assert (end or math.inf) <= start, f"{key}: two attempts at once"
    return (
        f"FLEET CAMPAIGN seed {seed}: {cells} cells, {len(tasks)} tasks, 20 hosts, "
        f"{sum(world.befell.values())} faults {dict(world.befell)}, {controllers - 1} controllers "
        f"killed at {len(killer.places)} different statements, {people.orders.total()} orders of "
        "people; 0 lost, 0 run twice at once, "
        f"0 wrong bytes; {len(retried)} quarantined, {world.vain} went elsewhere while a host that "
        f"nobody could reach had them, {time.monotonic() - began:.0f} s"
    )


def test_nothing_is_lost(tmp_path: Path) -> None:
    sys.stdout.write(f"\n{campaign(tmp_path, CELLS, SEED, faults=0.1, kills=0.04)}\n")


def small() -> tuple[list[Task], list[Machine]]:
    """A wheel in two shares with its test, and another cell."""
    machines = [
        Machine(name="a", cores=8, memory=64 * GIB, gpus=("9.0",)),
        Machine(name="b", cores=8, memory=64 * GIB),
        Machine(name="c", cores=8, memory=64 * GIB),
    ]
    common: dict[str, Any] = {"hosts": ("a", "b", "c"), "width": 8, "cold_seconds": 0.0}
    shares = [
        Task(key=f"x/{n}of2", kind="shard", cell="x", core_seconds=1600, **common) for n in (1, 2)
    ]
    after = tuple(one.key for one in shares)
    link = Task(key="x", kind="link", cell="x", core_seconds=400, after=after, **common)
    needs = Needs(slots=0, gpu=("9.0",))
    test = Task(
        key="x/test", kind="test", cell="x", core_seconds=80, after=("x",), needs=needs, **common
    )
    return [
        *shares,
        link,
        test,
        Task(key="y", kind="cell", cell="y", core_seconds=4000, **common),
    ], machines


def killed_once(place: Path, statement: int) -> tuple[int, str]:
    """One small fleet whose controller is killed before that statement: how many it ran, where."""
    tasks, machines = small()
    world, killer = World(machines, 1), Killer(1, 0.0)
    world.at(30, lambda: world.lose_way("a", 400))  # longer than a task waits for its host
    world.at(90, lambda: world.die("b", 30))
    Ledger.create(place, "once", durable=False).close()
    path = next(place.glob("fleet-*"))
    killer.left = statement
    sys.settrace(killer._trace)
    over = False
    while not over:
        with contextlib.ExitStack() as stack, contextlib.suppress(Killed):
            ledger = Ledger(path, durable=False)
            stack.callback(ledger.close)
            ledger.hold()
            ledger.put(tasks, machines, world.clock)
            Scheduler(ledger, Session(world), Limits(poll=15.0)).run()
            over = True
        world.session = None
    sys.settrace(None)
    ledger = Ledger(path)
    done = [one for one in ledger.attempts() if one.outcome == "done"]
    stands = {one.task.key: one.state for one in ledger.tasks()}
    ledger.close()
    assert not world.wrong, (statement, world.wrong)
    assert set(stands.values()) == {"done"}, (statement, stands)
    assert {one.key: one.details["sha256"] for one in done} == expected(tasks), statement
    assert len(done) == len(tasks), statement
    return statement - killer.left, "".join(f"{name}:{line}" for name, line in killer.places)


def test_killed_before_any_statement(tmp_path: Path) -> None:
    """All of them, one fleet each: ``CAMPAIGN_STEP=1``; by default every 23rd."""
    step = int(os.environ.get("CAMPAIGN_STEP", "23"))
    (tmp_path / "whole").mkdir()
    ran, _ = killed_once(tmp_path / "whole", 10**9)
    places = set()
    for statement in range(0, ran, step):
        place = tmp_path / str(statement)
        place.mkdir()
        places.add(killed_once(place, statement)[1])
    assert len(places) > 50
    sys.stdout.write(
        f"\nFLEET KILLED before {len(range(0, ran, step))} of {ran} statements that a small fleet "
        f"executes, {len(places)} different ones: 0 lost, 0 run twice at once, 0 wrong bytes\n"
    )
