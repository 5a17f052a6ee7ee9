"""A container as a host: ephemeral, or persistent."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial

from pipelines.core.errors import HostError, RemoteError
from pipelines.core.evidence import Origin
from pipelines.core.hosttext import safe_line
from pipelines.hosts import images
from pipelines.hosts.base import OpenOptions
from pipelines.hosts.bounds import Bounds, in_bytes
from pipelines.hosts.container.backends import container_backend
from pipelines.hosts.container.config import OURS, ContainerHost
from pipelines.hosts.engine.container import ContainerSpec
from pipelines.hosts.engine.enginehost import ConnectionInfo, EngineHost
from pipelines.hosts.engine.error_patterns import engine_errors
from pipelines.hosts.engine.execstream import ExecStream
from pipelines.hosts.engine.manager import Ready, changed_error
from pipelines.hosts.passthrough.prerequisites import Requirements, survey_prerequisites
from pipelines.remote import cudafiles
from pipelines.session.base import Session
from pipelines.session.bootstrap import bootstrap_argv
from pipelines.session.channel import open_session, over_winrs

_log = logging.getLogger(__name__)


class Container(EngineHost):
    """Implements :class:`pipelines.hosts.base.Host`; its contents are up to its backend."""

    noun = "container"

    def __init__(self, name: str, config: ContainerHost, options: OpenOptions) -> None:
        """Does not contact the engine yet. Raises what :func:`container_backend` does."""
        super().__init__(name, config, options)
        self.config = config
        self.image = config.image
        if config.image == "sandbox" and not config.keep:  # wheels may be in a volume
            self.always_sent = ("archive",) if config.cache else ("archive", "files")
        self.backend = container_backend(config, options.python)
        self.system = self.backend.system
        self.executable = self.backend.python
        self.capabilities = self.backend.capabilities
        self.evidence = self.backend.evidence
        self.gpu_way = self.backend.gpu
        self.replacements = self.backend.replacements
        self.bounds = Bounds(cores=config.cores, memory=in_bytes(config.memory))
        self._image: images.Image | None = None

    def prerequisites(self) -> Mapping[str, object]:
        """The engine, and for Windows its isolation, builds and driver."""
        config, windows = self.config, self.backend.system == "windows"
        requirements = Requirements(
            system=self.backend.system,
            gpu=config.gpu,
            isolation=(config.isolation or "process") if windows else "",
            image="" if config.image in OURS else config.image,
        )
        return survey_prerequisites(config.reach, requirements)

    @property
    def origin(self) -> Origin:
        """Its engine and its image."""
        if self._image is None:
            return Origin()
        key = str(self._image.record.get("key", ""))
        return Origin(
            kind=self.config.kind,
            engine=safe_line(self.engine.title, 200),
            image=safe_line(self._image.id, 80),
            image_key=safe_line(key, 80),
        )

    def missing_image(self) -> str:
        """Its image, if the engine does not have it."""
        config, options = self.config, self.options
        if config.image not in OURS:
            there = self.engine.image(config.image) is not None
            return "" if there else f"the engine does not have image {config.image} yet"
        if not self._needs_new_image():
            return ""
        return (
            f"image {config.image} does not exist yet; the first provision builds it, or run: "
            f"invoke image build --host {self.name} --python {options.python}"
        )

    def _needs_new_image(self) -> bool:
        """Whether its image is one of ours that has to be built first."""
        what, options = self.config.image, self.options
        if what not in OURS:
            return False
        return images.find(self.engine, what, options.python, options.cache) is None

    def container_spec(self) -> ContainerSpec:
        """The container to create; its image is built or fetched if missing."""
        config, backend, options = self.config, self.backend, self.options
        image = images.ensure(
            self.engine, config.image, options.python, options.cache, options.events
        )
        self._image = image
        return ContainerSpec(
            host=self.name,
            kind="container",
            image=image.id,
            keys=backend.keys(self.engine),
            ephemeral_keys=backend.ephemeral_keys,
            caches=backend.caches,
            fill=partial(backend.fill, cache=options.cache),
            keep=config.keep,
            start_seconds=config.start_minutes * 60,
        )

    def _ready(self) -> Ready[ConnectionInfo]:
        return lambda managed: self.backend.connection_info(managed, self.engine)

    # -- the host protocol -----------------------------------------------------------------------

    def connect(self) -> Session:
        """Create the container, or find the persistent one, and open a session.

        Raises what :meth:`ContainerManager.open` and :func:`images.ensure` do.
        """
        with self._entering:
            if self._managed is None:
                kept = self.manager.persistent(self.name) if self.config.keep else None
                if kept is not None and self._needs_new_image():
                    raise changed_error(kept, self.name)  # not after hours of building one
                spec = self.container_spec()
                if kept is None:
                    self.options.events.step("starting a container")
                self._managed, connection = self.manager.open(spec, self._ready())
            else:
                connection = self.manager.await_ready(self._managed, self._ready())
        if not connection.url:
            session = open_session(
                self._stream(), name=self.name, reconnect=lambda: self._stream(again=True)
            )
            if self.gpu_way.requested:
                self._bring_cuda(session)
            return session
        remember = self.options.register_secret
        again = lambda: self._reconnect().endpoint(remember)  # noqa: E731
        return over_winrs(connection.endpoint(remember), self.executable, self.name, again=again)

    def _bring_cuda(self, session: Session) -> None:
        """Copy the driver's files where CUDA looks for them; :class:`HostError` without one."""
        try:
            brought = session.call(cudafiles.bring)
        except RemoteError as error:
            session.close()
            raise HostError(
                f"{self.name}: the container has no GPU: {error.message}",
                hint="Type: invoke doctor --host " + self.name,
            ) from error
        _log.info("%s: %d files of CUDA's driver", self.name, len(brought["files"]))

    def _stream(self, *, again: bool = False) -> ExecStream:
        if again:
            self._reconnect()
        managed = self._held()
        command = self.backend.command(bootstrap_argv(self.executable))
        try:
            return ExecStream(managed.container, command)
        except HostError:
            if (ended := managed.ended()) is not None:  # just now: its output helps more
                raise ended from None
            raise

    def restart(self, session: Session) -> Session:
        """Restart the container: it has no Windows of its own to restart."""
        session.close()
        managed = self._held()
        with engine_errors(f"restart container '{managed.name}'"):
            managed.restart()
        return self.connect()
