"""The sessions of one host of a fleet: opened at the first use, shared by its works, kept warm."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.beside import onlooker
from pipelines.buildplan import BuildPlan
from pipelines.console import say
from pipelines.errors import ConfigError, PipelineError
from pipelines.hosts.base import Silent
from pipelines.hosts.live import LiveSession, part_of
from pipelines.hosttext import line
from pipelines.record import StageRecord
from pipelines.remote import files
from pipelines.remote.facts import Facts
from pipelines.session.base import Session


class Telling(Silent):
    """What is told of a host while it is made ready goes to whoever asked for the host."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._one = onlooker()

    def step(self, text: str) -> None:
        """A line for each step, from whatever thread."""
        if self._one is not None:
            self._one.console.print(f"{self.name}: {text}", markup=False)


class PartSession(LiveSession):
    """A session that several works share; each plans with its part of the host alone."""

    def __init__(self, plan: BuildPlan, slots: int) -> None:
        super().__init__(plan.host)
        self._slots = slots
        self._opening = threading.RLock()

    def connect(self) -> Session:
        """The connection; one of several threads makes it."""
        with self._opening:
            return super().connect()

    @property
    def connected(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._session is not None

    def hang_up(self) -> None:
        """Leave the connection, not the host: the next use makes another one."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    @property
    def whole_facts(self) -> Facts:
        """What the host says of itself."""
        return super().facts

    @property
    def facts(self) -> Facts:
        """What the host says of itself, as much of it as one of its slots has."""
        return part_of(self.whole_facts, self._slots)


@dataclass
class Seat:
    """A session with a host, and what of it is known to be ready."""

    session: PartSession
    key: tuple[str, ...]
    lock: threading.RLock = field(default_factory=threading.RLock)
    """Held while it is provisioned: by one work for all."""
    ready: dict[tuple[str, ...], StageRecord] = field(default_factory=dict)
    """By the axes that one session serves: what provisioning left."""
    users: int = 0

    def mark(self, folder: Path) -> Path:
        """In a fleet's folder: it is there while what runs there was started by the fleet."""
        return folder / f".started-{'-'.join((self.session.host.name, *self.key))}"


class Seats:
    """One host's; those for other Pythons, or for packages that need more of C++, are others."""

    def __init__(
        self, slots: int, folder: Path, look: Callable[[BuildPlan, LiveSession], None]
    ) -> None:
        """``folder`` is the fleet's. ``look`` raises what speaks against a host.

        It is called each time that the host was connected to.
        """
        self._slots, self._folder, self._look = slots, folder, look
        self._lock = threading.Lock()
        self._seats: dict[tuple[str, ...], Seat] = {}

    @contextlib.contextmanager
    def taken(self, plan: BuildPlan) -> Iterator[Seat]:
        """The seat for a plan, reached and looked at; raises what reaching it does."""
        key = _key(plan)
        with self._lock:
            seat = self._seats.setdefault(key, Seat(PartSession(plan, self._slots), key))
            seat.users += 1
        try:
            with seat.lock:
                self._reach(plan, seat)
            yield seat
        except PipelineError:
            seat.ready.clear()  # it is looked at again before it is built on
            raise
        finally:
            with self._lock:
                seat.users -= 1

    def _reach(self, plan: BuildPlan, seat: Seat) -> None:
        host = seat.session.host
        if not seat.session.connected:
            life = host.lifecycle
            if life is not None and not life.address():
                # So it, and the builds in it, outlive a controller that is killed.
                with contextlib.suppress(ConfigError):  # it comes and goes with whoever uses it
                    life.start(tied=False)
                    seat.mark(self._folder).touch()
            seat.session.connect()
            try:
                self._look(plan, seat.session)
            except BaseException:
                seat.session.hang_up()  # or the next work would take it for looked at
                raise

    def unblock(self) -> None:
        """Break all connections; jobs go on. Whoever waits on one gets an error."""
        for seat in self._all():
            with contextlib.suppress(PipelineError, OSError):
                seat.session.hang_up()

    def reachable(self) -> bool:
        """Whether every session that was used can be had again.

        One that works still use is asked something: to break it would be their loss.
        """
        for seat in self._all():
            try:
                if seat.users:
                    seat.session.call(files.stat, path=seat.session.host.executable)
                    continue
                seat.session.hang_up()
                seat.session.connect()
            except PipelineError:
                return False
        return True

    def close(self, *, stop: bool) -> None:
        """Close the sessions that nobody uses; ``stop``: also what we have started."""
        with self._lock:
            idle = [seat for seat in self._seats.values() if not seat.users]
            for seat in idle:
                del self._seats[seat.key]
        for seat in idle:
            try:
                seat.session.close()
                life = seat.session.host.lifecycle
                mark = seat.mark(self._folder)
                if stop and life is not None and mark.exists():
                    life.stop()
                    mark.unlink(missing_ok=True)
            except PipelineError as error:
                say(f"{seat.session.host.name}: {line(error.message)}", style="yellow")

    def _all(self) -> list[Seat]:
        with self._lock:
            return list(self._seats.values())


def _key(plan: BuildPlan) -> tuple[str, ...]:
    return (plan.target.python, plan.recipe.api)


def axes_of(plan: BuildPlan) -> tuple[str, ...]:
    """What one provisioning serves."""
    return tuple(plan.target.session.values())
