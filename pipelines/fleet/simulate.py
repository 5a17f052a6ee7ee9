"""A fleet of no hosts at all: works take the time that the plan has for them, by its own clock.

:func:`forecast` sends works through the very dispatcher that real fleets have; what it says is what
that one would do if every plan were true and nothing failed.
"""

from __future__ import annotations

import heapq
import itertools
import math
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from pipelines.fleet.dispatch import Dispatcher
from pipelines.fleet.ledger import Ledger
from pipelines.fleet.model import Ended, Machine, Span, Work
from pipelines.fleet.rooms import seconds_on
from pipelines.fleet.rules import Rules

#: Seconds that a host made on demand takes to start, if nobody measured it.
BOOT = 60.0


@dataclass(frozen=True)
class Forecast:
    """What a fleet would do. Seconds."""

    seconds: float
    """From the first beginning to the last end."""
    spans: tuple[Span, ...]
    works: dict[str, int]
    """Stand -> how many."""
    held: dict[str, float]
    """Host made on demand -> how long it was there."""


class SimulatedEngine:
    """Implements :class:`pipelines.fleet.engine.Engine` with a clock that jumps to what is next."""

    def __init__(
        self,
        machines: Iterable[Machine],
        seconds: Callable[[Work, Machine], float] = seconds_on,
        *,
        boot: float = BOOT,
    ) -> None:
        """``seconds``: what a work takes on a host that is warm for it."""
        self.machines = {machine.name: machine for machine in machines}
        self.clock = 0.0
        self.held = dict.fromkeys(self.machines, 0.0)
        self._seconds, self._boot = seconds, boot
        self._alive: set[str] = set()
        self._since: dict[str, float] = {}
        self._warm: dict[str, set[str]] = {name: set() for name in self.machines}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._told: list[Ended] = []
        self._noticed = False

    def at(self, time: float, do: Callable[[], None]) -> None:
        """Have something happen then."""
        heapq.heappush(self._events, (time, next(self._count), do))

    def now(self) -> float:
        """Seconds since the simulation began."""
        return self.clock

    def alive(self) -> frozenset[str]:
        """The hosts that are there."""
        return frozenset(self._alive)

    def ask(self, host: str) -> None:
        """It is there at once, or when it has started."""
        if host not in self._alive:
            wait = self._boot if self.machines[host].made else 0.0
            self._since[host] = self.clock
            self.at(self.clock + wait, lambda: self._there(host))

    def _there(self, host: str) -> None:
        self._alive.add(host)
        self._noticed = True

    def why(self, host: str) -> str:  # noqa: ARG002 - of the protocol
        """Nothing keeps one away."""
        return ""

    def give(self, host: str) -> None:
        """Stop it; what it kept is lost."""
        self._alive.discard(host)
        self._warm[host].clear()
        self.held[host] += self.clock - self._since.pop(host, self.clock)

    def start(self, work: Work, host: str, attempt: int) -> None:
        """Have it end when its time is over."""
        took = self._seconds(work, self.machines[host])
        if work.warm and work.warm not in self._warm[host]:
            took += work.cold_seconds
        began = self.clock

        def end() -> None:
            self._warm[host].add(work.warm)
            self.tell(work.key, host, attempt, began)

        self.at(self.clock + took, end)

    def tell(self, key: str, host: str, attempt: int, began: float) -> None:
        """A work is done."""
        self._told.append(
            Ended(
                key=key, host=host, attempt=attempt, outcome="done", began=began, ended=self.clock
            )
        )

    def cancel(self, key: str) -> None:
        """Nobody cancels what is only reckoned."""

    def withdraw(self, work: Work, host: str, attempt: int) -> None:
        """Nothing is ever lost here."""

    def wait(self, timeout: float) -> list[Ended]:
        """Let time pass until something has happened, or so long; ``RuntimeError`` if nothing can.

        That would be a fault of the dispatcher's: it waits for what nobody has begun.
        """
        until = self.clock + timeout
        self._noticed = False
        while not self._told and not self._noticed:
            if not self._events or self._events[0][0] > until:
                if math.isinf(until):
                    raise RuntimeError("nothing more can happen, and the dispatcher waits")
                self.clock = until
                break
            self.clock = max(self.clock, self._events[0][0])
            heapq.heappop(self._events)[2]()
        # What happens in the same moment is told together, as a real engine would.
        while self._events and self._events[0][0] <= self.clock:
            heapq.heappop(self._events)[2]()
        told, self._told = self._told, []
        return told

    def close(self) -> None:
        """Hosts that were started are given back."""
        for name in [*self._since]:
            self.give(name)


def forecast(
    works: Iterable[Work],
    machines: Iterable[Machine],
    seconds: Callable[[Work, Machine], float] = seconds_on,
) -> Forecast:
    """What these works would take on these hosts. Raises :class:`ConfigError` as a fleet would."""
    machines = list(machines)
    engine = SimulatedEngine(machines, seconds)
    with tempfile.TemporaryDirectory(prefix="fleet-") as place:
        ledger = Ledger.create(Path(place), "forecast", 0.0, durable=False)
        try:
            ledger.put(works, machines, 0.0)
            summary = Dispatcher(ledger, engine, Rules(poll=math.inf)).run()
            engine.close()
            spans = tuple(one.span for one in ledger.attempts())
        finally:
            ledger.close()
    began = min((one.began for one in spans), default=0.0)
    ended = max((one.ended or 0.0 for one in spans), default=0.0)
    held = {name: engine.held[name] for name, one in engine.machines.items() if one.made}
    return Forecast(ended - began, spans, summary.works, held)
