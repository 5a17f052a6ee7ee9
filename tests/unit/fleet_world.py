"""Hosts that fail, by a clock of their own: what the dispatcher must live with.

A :class:`World` outlives controllers, as hosts do; a :class:`Session` is what one controller has of
it and dies with it. Builds make their bytes from their inputs, and the world counts what must never
happen: one build at two hosts that can be reached, more on a host than there is room for, a host
given back that works.
"""

from __future__ import annotations

import functools
import hashlib
import heapq
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.fleet.dispatch import Dispatcher
from pipelines.fleet.ledger import Ledger
from pipelines.fleet.model import Ended, Machine, Outcome, Span, Work
from pipelines.fleet.rooms import Room, seconds_on
from pipelines.record import ErrorResult

#: What befalls an attempt, and how often beside the others.
FAULTS = {
    "host dies": 3,
    "way lost": 3,
    "driver killed": 2,
    "damaged on its way": 2,
    "does not begin": 2,
}
NOTICED = 5.0  # seconds until a driver sees that its host is gone


@dataclass
class Host:
    machine: Machine
    alive: bool = True
    reachable: bool = True
    driver: bool = False
    """Of this controller."""
    since: float = 0.0
    jobs: dict[str, tuple[Work, float, int]] = field(default_factory=dict)
    """Key -> work, when it began (less what was there already), a number of its own."""
    kept: dict[str, float] = field(default_factory=dict)
    """Key -> seconds of work whose units are there."""
    done: dict[str, str] = field(default_factory=dict)
    """Key -> sha256 of what it made."""
    warm: set[str] = field(default_factory=set)


class World:
    """All hosts, and the time."""

    def __init__(
        self,
        machines: Iterable[Machine],
        seed: int,
        share: float = 0.0,
        *,
        seconds: Callable[[Work, Machine], float] = seconds_on,
        clock: float = 1_000_000.0,
    ) -> None:
        """``share`` of the attempts meet a fault; ``seconds``: what a work takes on a warm host."""
        self.random = random.Random(seed)
        self.share, self.seconds, self.clock = share, seconds, clock
        self.hosts = {one.name: Host(one, alive=not one.made) for one in machines}
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
                assert not math.isinf(until), "nothing more can happen, and the dispatcher waits"
                self.clock = max(self.clock, until)
                return
            self.clock = max(self.clock, self._events[0][0])
            heapq.heappop(self._events)[2]()

    def begin(self, work: Work, name: str) -> None:
        """Build it there, or find what was built there."""
        host = self.hosts[name]
        if work.key in host.done or work.key in host.jobs:
            return
        for other in self.hosts.values():
            if work.key in other.jobs and other is not host:
                if other.reachable and other.driver:
                    self.wrong.append(f"{work.key} runs at {name} and at {other.machine.name}")
                self.vain += 1
        room = Room(host.machine)
        for there, *_ in host.jobs.values():
            room.take(there, 0.0)
        if not room.fits(work):
            self.wrong.append(f"{name} has no room for {work.key} beside {list(host.jobs)}")
        number = next(self._count)
        kept = host.kept.get(work.key, 0.0)
        left = max(0.0, self.seconds(work, host.machine) - kept)
        if work.warm and work.warm not in host.warm:
            left += work.cold_seconds
        # From here on nothing of the fleet's own is called: a host is not killed with it.
        host.jobs[work.key] = (work, self.clock - kept, number)
        self.compiled[work.key] += 1
        self.at(left, lambda: self._end(name, work.key, number))
        if work.key in self.killers:
            self.at(left / 2, lambda: self.die(name, self.down))

    def _end(self, name: str, key: str, number: int) -> None:
        host = self.hosts[name]
        if key not in host.jobs or host.jobs[key][2] != number:
            return
        work = host.jobs.pop(key)[0]
        host.kept.pop(key, None)
        host.done[key] = self.made(work)
        host.warm.add(work.warm)
        if self.session is not None:
            self.session.ended(key, name)

    def made(self, work: Work) -> str:
        """Of what a build makes: of its name, and of what came home of all before it."""
        parts = [work.key, *(self.home.get(key, f"no {key}") for key in work.after)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def stop_jobs(self, name: str) -> None:
        """They end in mid-work; what is compiled stays."""
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

        if not host.machine.made:
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
        host = self.hosts[name]
        host.reachable = False
        session = self.session
        if session is not None and host.driver:
            self.at(NOTICED, lambda: session.gone(name))

    def kill_driver(self, name: str) -> None:
        if self.session is not None and self.hosts[name].driver:
            self.hosts[name].driver = False
            self.session.reasons[name] = "its driver was killed"
            self.session.noticed = True

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
        elif what == "driver killed":
            self.at(when, functools.partial(self.kill_driver, name))
        return what


class Session:
    """Implements :class:`pipelines.fleet.engine.Engine`; what one controller has of the world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.begun: dict[str, tuple[Work, str, int, float]] = {}
        self.damaged: set[tuple[str, int]] = set()
        self.told: list[Ended] = []
        self.noticed = False
        self.reasons: dict[str, str] = {}
        world.session = self
        for host in world.hosts.values():
            host.driver = False

    def now(self) -> float:
        return self.world.clock

    def alive(self) -> frozenset[str]:
        return frozenset(name for name, one in self.world.hosts.items() if one.driver)

    def ask(self, host: str) -> None:
        there = self.world.hosts[host]
        self.reasons.pop(host, None)

        def come() -> None:
            if not self._mine():
                return
            self.noticed = True
            if there.machine.made:
                there.alive = there.reachable = True
            if there.reachable and there.alive:
                there.driver = True
            else:
                self.reasons[host] = "no answer"

        if not there.driver:
            slow = there.machine.made and not there.alive
            self.world.at(60.0 if slow else 1.0, come)

    def _mine(self) -> bool:
        return self.world.session is self

    def why(self, host: str) -> str:
        return self.reasons.get(host, "")

    def give(self, host: str) -> None:
        there = self.world.hosts[host]
        if there.jobs:
            self.world.wrong.append(f"{host} is given back and builds {list(there.jobs)}")
        there.alive = there.reachable = there.driver = False
        there.kept.clear()

    def start(self, work: Work, host: str, attempt: int) -> None:
        world, there = self.world, self.world.hosts[host]
        self.begun[work.key] = (work, host, attempt, world.clock)
        if not there.driver:
            self.tell(work.key, "lost", "there is no driver", gone=True)
            return
        if not there.reachable:
            world.at(NOTICED, lambda: self.gone(host))
            return
        fault = world.befall(host, seconds_on(work, there.machine))
        if fault == "does not begin":
            self.tell(work.key, "lost", "no space left on device")
            return
        if fault == "damaged on its way":
            self.damaged.add((work.key, attempt))
        world.begin(work, host)
        if work.key in there.done:
            world.at(1.0, lambda: self.ended(work.key, host))

    def ended(self, key: str, host: str) -> None:
        """A build there is done: it comes home, if anybody waits for it and it can."""
        if not self._mine() or key not in self.begun or self.begun[key][1] != host:
            return
        there, (work, _, attempt, _) = self.world.hosts[host], self.begun[key]
        if not (there.driver and there.reachable) or key not in there.done:
            return
        if work.key in self.world.failing:
            self.tell(key, "failed", "error C2065")
        elif (key, attempt) in self.damaged:
            self.tell(key, "lost", "bytes that arrived are not the bytes that were sent")
        else:
            self.world.home[key] = there.done[key]
            self.tell(key, "done", sha256=there.done[key])

    def gone(self, host: str) -> None:
        """The driver sees that its host is gone, and says so of what it did, or of nothing."""
        there = self.world.hosts[host]
        if not self._mine() or not there.driver:
            return
        there.driver = False
        self.reasons[host] = "no answer"
        self.noticed = True
        mine = [key for key, (_, where, *_) in self.begun.items() if where == host]
        for key in mine if self.world.random.random() < 0.5 else ():
            self.tell(key, "lost", "no answer", gone=True)

    def tell(
        self, key: str, outcome: Outcome, why: str = "", *, gone: bool = False, sha256: str = ""
    ) -> None:
        _, host, attempt, began = self.begun.pop(key)
        error = ErrorResult(kind="HostError", title="host", message=why) if why else None
        self.told.append(
            Ended(
                key=key,
                host=host,
                attempt=attempt,
                outcome=outcome,
                began=began,
                ended=self.world.clock,
                error=error,
                gone=gone,
                told={"sha256": sha256} if sha256 else {},
            )
        )

    def cancel(self, key: str) -> None:
        if key in self.begun:
            self.world.hosts[self.begun[key][1]].jobs.pop(key, None)
            self.tell(key, "left", "cancelled")

    def withdraw(self, work: Work, host: str, attempt: int) -> None:
        there = self.world.hosts[host]
        can = there.driver and there.reachable
        if can:
            there.jobs.pop(work.key, None)
        self.told.append(
            Ended(
                key=work.key,
                host=host,
                attempt=attempt,
                outcome="left" if can else "lost",
                began=self.world.clock,
                ended=self.world.clock,
            )
        )

    def wait(self, timeout: float) -> list[Ended]:
        self.noticed = False
        self.world.advance(self.world.clock + timeout, lambda: bool(self.told) or self.noticed)
        told, self.told = self.told, []
        return told

    def close(self) -> None:
        self.world.session = None


def simulated(
    out: Path,
    works: Iterable[Work],
    machines: Iterable[Machine],
    seconds: Callable[[Work, Machine], float] = seconds_on,
) -> tuple[float, list[Span]]:
    """Seconds until all works are done on hosts that never fail, and what each host did."""
    machines = list(machines)
    world = World(machines, 1, seconds=seconds)
    ledger = Ledger.create(out, "simulated", world.clock, durable=False)
    try:
        ledger.put(works, machines, world.clock)
        assert Dispatcher(ledger, Session(world)).run().complete
        assert not world.wrong
        spans = [one.span for one in ledger.attempts()]
    finally:
        ledger.close()
    return world.clock - min(one.began for one in spans), spans
