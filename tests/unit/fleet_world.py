"""Hosts that fail, by a clock of their own: what the scheduler must live with.

A :class:`World` outlives controllers, as hosts do; a :class:`Session` is what one controller has of
it and dies with it. Builds make their bytes from their inputs, and the world counts what must never
happen: one build at two hosts that can be reached, more on a host than there is room for.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.fleet.ledger import Ledger
from pipelines.fleet.model import Ended, Event, Machine, Outcome, Reached, Span, Task, Withdrawn
from pipelines.fleet.policy import Limits, Room
from pipelines.fleet.scheduler import Scheduler
from pipelines.record.results import ErrorResult

#: What happens to an attempt, and its relative frequency.
FAULTS = {
    "host dies": 3,
    "way lost": 3,
    "damaged on its way": 2,
    "does not begin": 2,
}
NOTICED = 5.0  # seconds until a driver sees that its host is gone


@dataclass
class Host:
    machine: Machine
    alive: bool = True
    reachable: bool = True
    connected: bool = False
    """By this controller."""
    since: float = 0.0
    jobs: dict[str, tuple[Task, float, int]] = field(default_factory=dict)
    """Key -> task, when it began (less what was there already), a number of its own."""
    kept: dict[str, float] = field(default_factory=dict)
    """Key -> seconds of work whose units are there."""
    done: dict[str, str] = field(default_factory=dict)
    """Key -> sha256 of what it made."""
    warm: set[str] = field(default_factory=set)


def planned(task: Task, machine: Machine) -> float:
    return machine.seconds(task)


class World:
    """All hosts, and the time."""

    def __init__(
        self,
        machines: Iterable[Machine],
        seed: int,
        share: float = 0.0,
        *,
        seconds: Callable[[Task, Machine], float] = planned,
        clock: float = 1_000_000.0,
    ) -> None:
        """``share`` of the attempts meet a fault; ``seconds``: what a task takes on a warm host."""
        self.random = random.Random(seed)
        self.share, self.seconds, self.clock = share, seconds, clock
        self.hosts = {one.name: Host(one) for one in machines}
        self.home: dict[str, str] = {}
        self.befell: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.vain = 0
        self.compiled: Counter[str] = Counter()
        self.failing: set[str] = set()
        """Works that fail wherever they are built."""
        self.killers: set[str] = set()
        """Works under which every host dies."""
        self.down = 60.0
        """Seconds that such a host is away."""
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._count = itertools.count()
        self.session: Session | None = None

    def at(self, seconds: float, do: Callable[[], object]) -> None:
        heapq.heappush(self._events, (self.clock + seconds, next(self._count), do))

    def advance(self, until: float, enough: Callable[[], bool]) -> None:
        while not enough():
            if not self._events or self._events[0][0] > until:
                assert not math.isinf(until), "nothing more can happen, and the scheduler waits"
                self.clock = max(self.clock, until)
                return
            self.clock = max(self.clock, self._events[0][0])
            heapq.heappop(self._events)[2]()

    def begin(self, task: Task, name: str) -> None:
        """Build it there, or find what was built there."""
        host = self.hosts[name]
        if task.key in host.done or task.key in host.jobs:
            return
        for other in self.hosts.values():
            if task.key in other.jobs and other is not host:
                if other.reachable and other.connected:
                    self.wrong.append(f"{task.key} runs at {name} and at {other.machine.name}")
                self.vain += 1
        room = Room(host.machine)
        for there, *_ in host.jobs.values():
            room.take(there, 0.0)
        if not room.fits(task):
            self.wrong.append(f"{name} has no room for {task.key} beside {list(host.jobs)}")
        number = next(self._count)
        kept = host.kept.get(task.key, 0.0)
        left = max(0.0, self.seconds(task, host.machine) - kept)
        if task.warm and task.warm not in host.warm:
            left += task.cold_seconds
        # From here on nothing of the fleet's own is called: a host is not killed with it.
        host.jobs[task.key] = (task, self.clock - kept, number)
        self.compiled[task.key] += 1
        self.at(left, lambda: self._end(name, task.key, number))
        if task.key in self.killers:
            self.at(left / 2, lambda: self.die(name, self.down))

    def _end(self, name: str, key: str, number: int) -> None:
        host = self.hosts[name]
        if key not in host.jobs or host.jobs[key][2] != number:
            return
        task = host.jobs.pop(key)[0]
        host.kept.pop(key, None)
        host.done[key] = self.made(task)
        host.warm.add(task.warm)
        if self.session is not None:
            self.session.ended(key, name)

    def made(self, task: Task) -> str:
        """Of what a build makes: of its name, and of what came home of all before it."""
        parts = [task.key, *(self.home.get(key, f"no {key}") for key in task.after)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def stop_jobs(self, name: str) -> None:
        """They end in mid-task; what is compiled stays."""
        host = self.hosts[name]
        for key, (_, began, _) in host.jobs.items():
            host.kept[key] = (self.clock - began) * self.random.random()
        host.jobs.clear()

    def die(self, name: str, down: float) -> None:
        host = self.hosts[name]
        if not host.alive:
            return
        host.alive = False
        self.stop_jobs(name)
        self.cut(name)

        def again() -> None:
            host.alive = host.reachable = True

        self.at(down, again)

    def lose_way(self, name: str, down: float) -> None:
        host = self.hosts[name]
        if not host.reachable:
            return
        self.cut(name)

        def again() -> None:
            host.reachable = host.alive

        self.at(down, again)

    def cut(self, name: str) -> None:
        host, session = self.hosts[name], self.session
        host.reachable = False
        if session is not None and host.connected:
            self.at(NOTICED, lambda: session.gone(name))

    def befall(self, name: str, seconds: float) -> str:
        """Let something happen to an attempt, or nothing."""
        if self.random.random() >= self.share:
            return ""
        what = self.random.choices([*FAULTS], [*FAULTS.values()])[0]
        self.befell[what] += 1
        when, down = self.random.uniform(0, seconds), self.random.choice([30, 200, 2000])
        if what == "host dies":
            self.at(when, lambda: self.die(name, down))
        elif what == "way lost":
            self.at(when, lambda: self.lose_way(name, down))
        return what


class Session:
    """Implements :class:`pipelines.fleet.model.Workers`; what one controller has of the world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.begun: dict[str, tuple[Task, str, int]] = {}
        self.damaged: set[tuple[str, int]] = set()
        self.events: list[Event] = []
        world.session = self
        for host in world.hosts.values():
            host.connected = False

    def now(self) -> float:
        return self.world.clock

    def _mine(self) -> bool:
        return self.world.session is self

    def reach(self, host: str) -> None:
        there = self.world.hosts[host]

        def come() -> None:
            if self._mine():
                there.connected = there.reachable and there.alive
                self.events.append(Reached(host, "" if there.connected else "no answer"))

        self.world.at(1.0, come)

    def start(self, task: Task, host: str, attempt: int) -> None:
        world, there = self.world, self.world.hosts[host]
        assert task.key not in self.begun, "it has begun, and not ended"
        self.begun[task.key] = (task, host, attempt)
        if not there.reachable:
            world.at(NOTICED, lambda: self.gone(host))
            return
        fault = world.befall(host, there.machine.seconds(task))
        if fault == "does not begin":
            self.tell(task.key, "lost", "no space left on device")
            return
        if fault == "damaged on its way":
            self.damaged.add((task.key, attempt))
        world.begin(task, host)
        if task.key in there.done:
            world.at(1.0, lambda: self.ended(task.key, host))

    def ended(self, key: str, host: str) -> None:
        """A build there is done: it is downloaded, if anybody waits for it and it can be."""
        if not self._mine() or key not in self.begun or self.begun[key][1] != host:
            return
        there, (task, _, attempt) = self.world.hosts[host], self.begun[key]
        if not there.reachable or key not in there.done:
            return
        if task.key in self.world.failing:
            self.tell(key, "failed", "error C2065")
        elif (key, attempt) in self.damaged:
            self.tell(key, "lost", "bytes that arrived are not the bytes that were sent")
        else:
            self.world.home[key] = there.done[key]
            self.tell(key, "done", sha256=there.done[key])

    def gone(self, host: str) -> None:
        """One of the host's tasks finds that it is gone; the others are disconnected for that."""
        if not self._mine() or self.world.hosts[host].reachable:
            return
        self.world.hosts[host].connected = False
        mine = [key for key, (_, where, _) in self.begun.items() if where == host]
        for key in mine[:1]:
            self.tell(key, "lost", "no answer", gone=True)

    def disconnect(self, host: str, why: str) -> None:
        for key in [key for key, (_, where, _) in self.begun.items() if where == host]:
            self.tell(key, "lost", why, gone=True)

    def tell(
        self, key: str, outcome: Outcome, why: str = "", *, gone: bool = False, sha256: str = ""
    ) -> None:
        _, host, attempt = self.begun.pop(key)
        error = ErrorResult(kind="HostError", title="host", message=why) if why else None
        self.events.append(
            Ended(
                key=key,
                host=host,
                attempt=attempt,
                outcome=outcome,
                error=error,
                gone=gone,
                details={"sha256": sha256} if sha256 else {},
            )
        )

    def cancel(self, key: str) -> None:
        if key in self.begun:
            self.world.hosts[self.begun[key][1]].jobs.pop(key, None)
            self.tell(key, "left", "cancelled")

    def withdraw(self, task: Task, host: str) -> None:
        there = self.world.hosts[host]
        if there.reachable:
            there.jobs.pop(task.key, None)
        gone = not there.reachable
        self.events.append(Withdrawn(task.key, host, "no answer" if gone else "", gone))

    def wait(self, timeout: float) -> list[Event]:
        self.world.advance(self.world.clock + timeout, lambda: bool(self.events))
        events, self.events = self.events, []
        return events

    def close(self) -> None:
        self.world.session = None


def simulated(
    out: Path,
    tasks: Iterable[Task],
    machines: Iterable[Machine],
    seconds: Callable[[Task, Machine], float] = planned,
) -> tuple[float, list[Span]]:
    """Seconds until all tasks are done on hosts that never fail, and what each host did."""
    machines = list(machines)
    world = World(machines, 1, seconds=seconds)
    ledger = Ledger.create(out, "simulated", world.clock, durable=False)
    try:
        ledger.put(tasks, machines, world.clock)
        assert Scheduler(ledger, Session(world), Limits(poll=600.0)).run().complete
        assert not world.wrong
        spans = ledger.attempts()
    finally:
        ledger.close()
    return world.clock - min(one.began for one in spans), spans
