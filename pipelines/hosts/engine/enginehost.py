"""A host that is one container of an engine: its lifecycle with commands, and by hand."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from docker.models.volumes import Volume

from pipelines.core.errors import ConfigError
from pipelines.hosts.base import Host, Lifecycle, OpenOptions
from pipelines.hosts.engine.container import ManagedContainer
from pipelines.hosts.engine.engine import Engine, System
from pipelines.hosts.engine.error_patterns import engine_errors
from pipelines.hosts.engine.keys import EngineKeys
from pipelines.hosts.engine.manager import ContainerManager, Ready, label_value
from pipelines.session.base import DeadHostError, GoneHostError
from pipelines.session.transports.endpoint import Endpoint, Secret

#: WinRM's port in a container.
WINRM = "5986/tcp"


@dataclass(frozen=True)
class ConnectionInfo:
    """How to connect to a host that is ready."""

    url: str = ""
    """WinRM address; empty for one that is reached by exec."""
    pin: str = ""
    """sha256 of the certificate WinRM presents."""
    user: str = ""
    password: str = field(default="", repr=False)

    def endpoint(self, remember: Callable[[str], str]) -> Endpoint:
        """As an endpoint for sessions; ``remember`` receives the password."""
        password = Secret(remember(self.password))
        return Endpoint(url=self.url, username=self.user, password=password, pin=self.pin)


def port_bind_address(engine: Engine) -> str:
    """The address of published ports: loopback, or all addresses of a remote engine's machine."""
    return "0.0.0.0" if engine.remote else "127.0.0.1"  # noqa: S104 - pinned, NTLM


def url_of(managed: ManagedContainer, engine: Engine) -> str:
    """The URL of WinRM behind the published port; empty while there is none."""
    for binding in (managed.container.ports or {}).get(WINRM) or []:
        if (port := str(binding.get("HostPort", ""))).isdecimal():
            return f"https://{engine.remote or '127.0.0.1'}:{port}/wsman"
    return ""


#: How often a command restarts a persistent container that ended during it.
RESTARTS = 3


class EngineHost(Host):
    """Ephemeral, or persistent; its contents are up to its kind."""

    noun: ClassVar[str]
    """Its name in messages."""
    system: System
    """The operating system its engine must run."""
    stop_seconds: ClassVar[int] = 20
    """How long an orderly shutdown may take."""

    def __init__(self, name: str, config: EngineKeys, options: OpenOptions) -> None:
        """Does not contact the engine yet."""
        self.name = name
        self.options = options
        self._keys = config
        self._managed: ManagedContainer | None = None
        self._restarts = 0
        self._entering = threading.Lock()

    @cached_property
    def engine(self) -> Engine:
        """Connected at first use; raises what :class:`Engine` does."""
        engine = self._keys.reach()
        engine.require(self.system, f"host '{self.name}'")
        return engine

    @cached_property
    def manager(self) -> ContainerManager:
        """The containers of this checkout on it."""
        return ContainerManager(self.engine)

    @abstractmethod
    def _ready(self) -> Ready[ConnectionInfo]:
        """Polled until it returns how to connect."""

    # -- while a command uses it -----------------------------------------------------------------

    def _held(self) -> ManagedContainer:
        if self._managed is None:
            raise GoneHostError(f"{self.name}: its {self.noun} was removed")
        return self._managed

    def _reconnect(self) -> ConnectionInfo:
        """After a lost connection; a persistent container that has ended is restarted.

        Raises ``GoneHostError`` for one that is gone, and the engine's error if it does not
        respond.
        """
        with self._entering:
            managed = self._held()
            ended = managed.ended()
            if ended is not None:
                if not isinstance(ended, DeadHostError) or isinstance(ended, GoneHostError):
                    raise ended
                if self._restarts == RESTARTS:
                    raise ended
                self._restarts += 1
                self.options.events.step(f"{ended.message}; starting it again")
                with engine_errors(f"start {self.noun} '{managed.name}'"):
                    managed.container.start()
            return self.manager.await_ready(managed, self._ready())

    def ended(self) -> str:
        """Why it ended, if it has."""
        ended = self._managed.ended() if self._managed is not None else None
        return ended.message if isinstance(ended, DeadHostError) else ""

    def is_gone(self) -> bool:
        """Whether it is gone: nothing remains of an ephemeral one."""
        return self._managed is not None and isinstance(self._managed.ended(), GoneHostError)

    def close(self) -> None:
        """Remove it and its files, unless it is persistent."""
        managed, self._managed = self._managed, None
        if managed is None:
            return
        try:
            if not self._keys.keep:
                self.manager.discard(managed.container)
        finally:
            managed.close()

    # -- lifecycle -----------------------------------------------------------------------

    @property
    def lifecycle(self) -> Lifecycle:
        """Itself: the pipeline creates, starts and removes it."""
        return self

    def start(self, *, ephemeral: bool) -> object:  # noqa: ARG002 - a persistent one stays anyway
        """Create and start the persistent one; :class:`ConfigError` if none is configured."""
        if not self._keys.keep:
            raise ConfigError(
                f"host '{self.name}' only exists while a command runs",
                hint="Set 'keep: true' in pipeline.yaml to keep it.",
            )
        with self.connect():
            return self._held().name

    def stop(self) -> bool:
        """Shut the persistent one down; whether it was running."""
        container = self.manager.persistent(self.name)
        if container is None or container.status != "running":
            return False
        self.options.events.step(f"shutting it down, {self.stop_seconds} s at most")
        with engine_errors(f"stop {self.noun} '{container.name}'"):
            container.stop(timeout=self.stop_seconds)
        return True

    def describe(self) -> str:
        """The existing ones and their engine, in one line."""
        containers = self.manager.all(self.name)
        states = (
            ", ".join(f"{container.name} {container.status}" for container in containers)
            or "absent"
        )
        return f"{states}  on {self.engine.title}"

    def address(self) -> str:
        """The persistent one's name and owner while it runs; otherwise empty."""
        container = self.manager.persistent(self.name)
        if container is None or container.status != "running":
            return ""
        return f"{self.noun} {container.name} of {label_value(container, 'who')}"

    def teardown(self) -> bool:
        """Remove its containers and their volumes; images stay.

        Raises :class:`HostError` while another command uses one.
        """
        containers = [*self.manager.unused(self.name)]
        for container in containers:
            self.manager.remove(container)
        volumes = [one for one in self.manager.volumes(self.name) if not self._stays(one)]
        for volume in volumes:
            with engine_errors(f"remove volume {volume.name}"):
                volume.remove()
        return bool(containers or volumes)

    def _stays(self, volume: Volume) -> bool:  # noqa: ARG002 - of those that keep some
        """Whether a volume outlives the host."""
        return False
