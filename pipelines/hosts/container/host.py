"""A container as a host: made for one command line, or lasting and found again."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial

from pipelines.core.errors import HostError, RemoteError
from pipelines.core.evidence import Origin
from pipelines.core.hosttext import line
from pipelines.hosts import images
from pipelines.hosts.base import Opening
from pipelines.hosts.bounds import Bounds
from pipelines.hosts.container.config import OURS, ContainerHost
from pipelines.hosts.container.faces import face_of
from pipelines.hosts.engine.boxes import Order, Ready
from pipelines.hosts.engine.boxhost import BoxHost
from pipelines.hosts.engine.entrance import Entrance
from pipelines.hosts.engine.execstream import ExecStream
from pipelines.hosts.engine.keys import in_bytes
from pipelines.hosts.engine.refusals import telling
from pipelines.hosts.passthrough.groundwork import Wanted, survey
from pipelines.remote import cudafiles
from pipelines.session.base import Session
from pipelines.session.bootstrap import bootstrap_argv
from pipelines.session.channel import open_session, over_winrs

_log = logging.getLogger(__name__)


class Container(BoxHost):
    """Implements :class:`pipelines.hosts.base.Host`; what is in it is its face's affair."""

    noun = "container"

    def __init__(self, name: str, config: ContainerHost, given: Opening) -> None:
        """Nothing is asked of the engine yet. Raises what :func:`face_of` does."""
        super().__init__(name, config, given)
        self.config = config
        self.face = face_of(config, given.python)
        self.system = self.face.system
        self.executable = self.face.python
        self.capabilities = self.face.capabilities
        self.evidence = self.face.evidence
        self.gpu_way = self.face.gpu
        self.instead = self.face.instead
        self.bounds = Bounds(cores=config.cores, memory=in_bytes(config.memory))
        self._image: images.Image | None = None

    def groundwork(self) -> Mapping[str, object]:
        """The engine, and for a Windows the isolation, the builds and the driver."""
        config, windows = self.config, self.face.system == "windows"
        wanted = Wanted(
            system=self.face.system,
            gpu=config.gpu,
            isolation=(config.isolation or "process") if windows else "",
            image="" if config.image in OURS else config.image,
        )
        return survey(config.reach, wanted)

    @property
    def origin(self) -> Origin:
        """Its engine and its image."""
        if self._image is None:
            return Origin()
        key = str(self._image.record.get("key", ""))
        return Origin(
            kind=self.config.kind,
            engine=line(self.engine.title, 200),
            image=line(self._image.id, 80),
            image_key=line(key, 80),
        )

    def unmade(self) -> str:
        """Its image, if the engine does not have it."""
        config, given = self.config, self.given
        if config.image not in OURS:
            there = self.engine.image(config.image) is not None
            return "" if there else f"the engine does not have image {config.image} yet"
        if images.find(self.engine, config.image, given.python, given.cache) is not None:
            return ""
        return (
            f"image {config.image} is not there yet; the first provision builds it, or: "
            f"invoke image build --host {self.name} --python {given.python}"
        )

    def order(self) -> Order:
        """The container that is wanted; its image is built or fetched if it is missing."""
        config, face, given = self.config, self.face, self.given
        image = images.ensure(self.engine, config.image, given.python, given.cache, given.events)
        self._image = image
        return Order(
            host=self.name,
            kind="container",
            image=image.id,
            keys=face.keys(self.engine),
            tied=face.tied,
            caches=face.caches,
            fill=partial(face.fill, cache=given.cache),
            keep=config.keep,
            start_seconds=config.start_minutes * 60,
        )

    def _ready(self) -> Ready[Entrance]:
        return lambda box: self.face.entrance(box, self.engine)

    # -- the host protocol -----------------------------------------------------------------------

    def connect(self) -> Session:
        """Make the container, or find the lasting one, and open a session.

        Raises what :meth:`Boxes.open` and :func:`images.ensure` do.
        """
        with self._entering:
            if self._box is None:
                order = self.order()
                if not order.keep or self.boxes.kept(self.name) is None:
                    self.given.events.step("starting a container")
                self._box, entrance = self.boxes.open(order, self._ready())
            else:
                entrance = self.boxes.await_ready(self._box, self._ready())
        if not entrance.url:
            session = open_session(
                self._stream(), name=self.name, reconnect=lambda: self._stream(again=True)
            )
            if self.gpu_way.asked:
                self._bring_cuda(session)
            return session
        remember = self.given.remember
        again = lambda: self._enter_again().endpoint(remember)  # noqa: E731
        return over_winrs(entrance.endpoint(remember), self.executable, self.name, again=again)

    def _bring_cuda(self, session: Session) -> None:
        """Put the driver's files where CUDA looks for them; :class:`HostError` without a driver."""
        try:
            brought = session.call(cudafiles.bring)
        except RemoteError as error:
            session.close()
            raise HostError(
                f"{self.name}: no GPU came into the container: {error.message}",
                hint="Type: invoke doctor --host " + self.name,
            ) from error
        _log.info("%s: %d files of CUDA's driver", self.name, len(brought["files"]))

    def _stream(self, *, again: bool = False) -> ExecStream:
        if again:
            self._enter_again()
        box = self._held()
        command = self.face.command(bootstrap_argv(self.executable))
        try:
            return ExecStream(box.container, command)
        except HostError:
            if (ended := box.ended()) is not None:  # just now: what it said helps more
                raise ended from None
            raise

    def restart(self, session: Session) -> Session:
        """Stop what runs in the container and start it again: it has no Windows of its own."""
        session.close()
        box = self._held()
        with telling(f"restart container '{box.name}'"):
            box.restart()
        return self.connect()
