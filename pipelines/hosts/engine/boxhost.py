"""A host that is one container of an engine: its life with the commands, and by hand."""

from __future__ import annotations

import threading
from abc import abstractmethod
from functools import cached_property
from typing import ClassVar

from docker.models.volumes import Volume

from pipelines.core.errors import ConfigError
from pipelines.hosts.base import Host, Lifecycle, Opening
from pipelines.hosts.engine.box import Box
from pipelines.hosts.engine.boxes import Boxes, Ready, label
from pipelines.hosts.engine.engine import Engine, System
from pipelines.hosts.engine.entrance import Entrance
from pipelines.hosts.engine.keys import EngineKeys
from pipelines.hosts.engine.refusals import telling
from pipelines.session.base import DeadHostError, GoneHostError

#: How often a command starts a lasting one again that has ended under it.
RESTARTS = 3


class BoxHost(Host):
    """Made for one command line, or lasting and found again; what is in it is its kind's affair."""

    noun: ClassVar[str]
    """What people call it."""
    system: System
    """What its engine must run."""
    stop_seconds: ClassVar[int] = 20
    """How long it may take to end in good order."""

    def __init__(self, name: str, config: EngineKeys, given: Opening) -> None:
        """Nothing is asked of the engine yet."""
        self.name = name
        self.given = given
        self._keys = config
        self._box: Box | None = None
        self._restarts = 0
        self._entering = threading.Lock()

    @cached_property
    def engine(self) -> Engine:
        """Reached at its first use; raises what :class:`Engine` does."""
        engine = self._keys.reach()
        engine.require(self.system, f"host '{self.name}'")
        return engine

    @cached_property
    def boxes(self) -> Boxes:
        """The containers of this checkout there."""
        return Boxes(self.engine)

    @abstractmethod
    def _ready(self) -> Ready[Entrance]:
        """Asks, again and again, whether it can be entered."""

    # -- while a command uses it -----------------------------------------------------------------

    def _held(self) -> Box:
        if self._box is None:
            raise GoneHostError(f"{self.name}: its {self.noun} was removed")
        return self._box

    def _enter_again(self) -> Entrance:
        """After a lost connection; a lasting one that has ended is started again.

        Raises ``GoneHostError`` for one that is gone, and what the engine says where it does not
        answer.
        """
        with self._entering:
            box = self._held()
            ended = box.ended()
            if ended is not None:
                if not isinstance(ended, DeadHostError) or isinstance(ended, GoneHostError):
                    raise ended
                if self._restarts == RESTARTS:
                    raise ended
                self._restarts += 1
                self.given.events.step(f"{ended.message}; starting it again")
                with telling(f"start {self.noun} '{box.name}'"):
                    box.container.start()
            return self.boxes.await_ready(box, self._ready())

    def ended(self) -> str:
        """Why it is no more, if it is not."""
        ended = self._box.ended() if self._box is not None else None
        return ended.message if isinstance(ended, DeadHostError) else ""

    def is_gone(self) -> bool:
        """Whether it is no more: of one that is not a lasting one nothing stays."""
        return self._box is not None and isinstance(self._box.ended(), GoneHostError)

    def close(self) -> None:
        """Remove it, and what it has written, unless it is a lasting one."""
        box, self._box = self._box, None
        if box is None:
            return
        try:
            if not self._keys.keep:
                self.boxes.discard(box.container)
        finally:
            box.close()

    # -- its life, by hand -----------------------------------------------------------------------

    @property
    def lifecycle(self) -> Lifecycle:
        """Itself: it is made, started and removed from here."""
        return self

    def start(self, *, tied: bool) -> object:  # noqa: ARG002 - a lasting one is what stays
        """Make and start the lasting one; :class:`ConfigError` where none is asked for."""
        if not self._keys.keep:
            raise ConfigError(
                f"host '{self.name}' comes and goes with each command line",
                hint="Give it 'keep: true' in pipeline.yaml for one that stays.",
            )
        with self.connect():
            return self._held().name

    def stop(self) -> bool:
        """Shut the lasting one down; whether it was running."""
        found = self.boxes.kept(self.name)
        if found is None or found.status != "running":
            return False
        self.given.events.step(f"shutting it down, {self.stop_seconds} s at most")
        with telling(f"stop {self.noun} '{found.name}'"):
            found.stop(timeout=self.stop_seconds)
        return True

    def describe(self) -> str:
        """Those that there are and where they are, in a line."""
        found = self.boxes.all(self.name)
        states = ", ".join(f"{one.name} {one.status}" for one in found) or "absent"
        return f"{states}  on {self.engine.title}"

    def address(self) -> str:
        """The lasting one's name and owner while it runs; empty when it does not."""
        found = self.boxes.kept(self.name)
        if found is None or found.status != "running":
            return ""
        return f"{self.noun} {found.name} of {label(found, 'who')}"

    def teardown(self) -> None:
        """Remove its containers and their volumes; images stay.

        Raises :class:`HostError` while another command uses one.
        """
        for one in self.boxes.unused(self.name):
            self.boxes.remove(one)
        for volume in self.boxes.volumes(self.name):
            if not self._stays(volume):
                with telling(f"remove volume {volume.name}"):
                    volume.remove()

    def _stays(self, volume: Volume) -> bool:  # noqa: ARG002 - of those that keep some
        """Whether a volume is more than the host's that is removed."""
        return False
