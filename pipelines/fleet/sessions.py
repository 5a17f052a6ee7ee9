"""The sessions of one host of a fleet: opened at the first use, shared by its tasks, kept warm."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.core.console import say
from pipelines.core.errors import ConfigError, PipelineError
from pipelines.core.hosttext import safe_line
from pipelines.core.observer import current_observer
from pipelines.hosts.base import Silent
from pipelines.hosts.live import LiveSession, part_of
from pipelines.plan.matrix.buildplan import BuildPlan
from pipelines.record.results import StageRecord
from pipelines.remote import files
from pipelines.remote.facts import Facts
from pipelines.session.base import Session


class Notices(Silent):
    """What a host's start says goes to the log of the task that asked for the host."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._one = current_observer()

    def step(self, text: str) -> None:
        """A line for each step, from whatever thread."""
        if self._one is not None:
            self._one.console.print(f"{self.name}: {text}", markup=False)


class PartSession(LiveSession):
    """A session that several tasks share; each plans with its part of the host alone."""

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
class SharedSession:
    """A session with a host, and what of it is known to be ready."""

    session: PartSession
    key: tuple[str, ...]
    lock: threading.RLock = field(default_factory=threading.RLock)
    """Held while it is provisioned: by one task for all."""
    ready: dict[tuple[str, ...], StageRecord] = field(default_factory=dict)
    """By the axes that one session serves: what provisioning left."""
    users: int = 0

    def mark(self, folder: Path) -> Path:
        """In a fleet's folder: it is there while what runs there was started by the fleet."""
        return folder / f".started-{'-'.join((self.session.host.name, *self.key))}"


class Sessions:
    """One host's; those for other Pythons, or for packages that need more of C++, are others."""

    def __init__(
        self, slots: int, folder: Path, look: Callable[[BuildPlan, LiveSession], None]
    ) -> None:
        """``folder`` is the fleet's; ``look`` is called after each connection, and may raise."""
        self._slots, self._folder, self._look = slots, folder, look
        self._lock = threading.Lock()
        self._shared: dict[tuple[str, ...], SharedSession] = {}

    @contextlib.contextmanager
    def shared(self, plan: BuildPlan) -> Iterator[SharedSession]:
        """The session for a plan, reached and looked at; raises what reaching it does."""
        key = (plan.target.python, plan.recipe.api)
        with self._lock:
            new = SharedSession(PartSession(plan, self._slots), key)
            shared = self._shared.setdefault(key, new)
            shared.users += 1
        try:
            with shared.lock:
                self._reach(plan, shared)
            yield shared
        except PipelineError:
            shared.ready.clear()  # it is looked at again before it is built on
            raise
        finally:
            with self._lock:
                shared.users -= 1

    def _reach(self, plan: BuildPlan, shared: SharedSession) -> None:
        session = shared.session
        if session.connected:
            return
        life = session.host.lifecycle
        if life is not None and not life.address():
            # So it, and the builds in it, outlive a controller that is killed.
            with contextlib.suppress(ConfigError):  # it comes and goes with whoever uses it
                life.start(ephemeral=False)
                shared.mark(self._folder).touch()
        session.connect()
        try:
            self._look(plan, session)
        except BaseException:
            session.hang_up()  # or the next task would take it for looked at
            raise

    def unblock(self) -> None:
        """Break all connections; jobs go on. Whoever waits on one gets an error."""
        for shared in self._all():
            with contextlib.suppress(PipelineError, OSError):
                shared.session.hang_up()

    def reachable(self) -> bool:
        """Whether every used session can be opened again.

        One that tasks still use is only asked something, not closed.
        """
        for shared in self._all():
            session = shared.session
            try:
                if shared.users:
                    session.call(files.stat, path=session.host.executable)
                else:
                    session.hang_up()
                    session.connect()
            except PipelineError:
                return False
        return True

    def close(self, *, stop: bool) -> None:
        """Close the sessions that no task uses; ``stop``: also what the fleet has started."""
        with self._lock:
            idle = [one for one in self._shared.values() if not one.users]
            for shared in idle:
                del self._shared[shared.key]
        for shared in idle:
            life, mark = shared.session.host.lifecycle, shared.mark(self._folder)
            try:
                shared.session.close()
                if stop and life is not None and mark.exists():
                    life.stop()
                    mark.unlink(missing_ok=True)
            except PipelineError as error:
                say(f"{shared.session.host.name}: {safe_line(error.message)}", style="yellow")

    def _all(self) -> list[SharedSession]:
        with self._lock:
            return list(self._shared.values())


def session_axes(plan: BuildPlan) -> tuple[str, ...]:
    """What one provisioning serves."""
    return tuple(plan.target.session.values())
