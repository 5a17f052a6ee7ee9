"""A container as a host: made for one command line, or lasting and found again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from functools import cached_property, partial

from pipelines.errors import ConfigError, HostError, RemoteError
from pipelines.evidence import Origin
from pipelines.hosts import images
from pipelines.hosts.base import Bounds, Host, Lifecycle, Opening
from pipelines.hosts.container.config import OURS, ContainerHost
from pipelines.hosts.container.faces import Entrance, face_of
from pipelines.hosts.engine.box import Box
from pipelines.hosts.engine.boxes import Boxes, Order, label
from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.engine.execstream import ExecStream
from pipelines.hosts.engine.keys import in_bytes
from pipelines.hosts.engine.refusals import telling
from pipelines.hosts.passthrough.groundwork import Wanted, survey
from pipelines.hosttext import line
from pipelines.remote import cudafiles
from pipelines.session.base import DeadHostError, GoneHostError, Session
from pipelines.session.bootstrap import bootstrap_argv
from pipelines.session.channel import open_session, over_winrs
from pipelines.session.transports.endpoint import Endpoint, Secret

_log = logging.getLogger(__name__)

#: How often a command starts a lasting container again that has ended under it.
RESTARTS = 3


class Container(Host):
    """Implements :class:`pipelines.hosts.base.Host`; what is in it is its face's affair."""

    def __init__(self, name: str, config: ContainerHost, given: Opening) -> None:
        """Nothing is asked of the engine yet. Raises what :func:`face_of` does."""
        self.name = name
        self.config = config
        self.given = given
        self.face = face_of(config, given.python)
        self.executable = self.face.python
        self.capabilities = self.face.capabilities
        self.evidence = self.face.evidence
        self.gpu_way = self.face.gpu
        self.bounds = Bounds(cores=config.cores, memory=in_bytes(config.memory))
        self._box: Box | None = None
        self._image: images.Image | None = None
        self._restarts = 0
        self._entering = threading.Lock()

    # -- its engine ------------------------------------------------------------------------------

    @cached_property
    def engine(self) -> Engine:
        """Reached at its first use; raises what :class:`Engine` does."""
        engine = self.config.reach()
        engine.require(self.face.system, f"host '{self.name}'")
        return engine

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

    @property
    def boxes(self) -> Boxes:
        """The containers of this checkout there."""
        return Boxes(self.engine)

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

    def _ready(self, box: Box) -> Entrance | None:
        return self.face.entrance(box, self.engine)

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
                self._box, entrance = self.boxes.open(order, self._ready)
            else:
                entrance = self.boxes.await_ready(self._box, self._ready)
        if not entrance.url:
            session = open_session(
                self._stream(), name=self.name, reconnect=lambda: self._stream(again=True)
            )
            if self.gpu_way.asked:
                self._bring_cuda(session)
            return session
        endpoint = self._endpoint(entrance)
        again = lambda: self._endpoint(self._enter_again())  # noqa: E731
        return over_winrs(endpoint, self.executable, self.name, again=again)

    def _bring_cuda(self, session: Session) -> None:
        """Put the driver's files where CUDA looks for them; :class:`HostError` without a driver."""
        try:
            brought = session.call(cudafiles.bring)
        except RemoteError as error:
            session.close()
            raise HostError(
                f"{self.name}: no GPU came into the container: {error.message}",
                advice="Type: invoke doctor --host " + self.name,
            ) from error
        _log.info("%s: %d files of CUDA's driver", self.name, len(brought["files"]))

    def _endpoint(self, entrance: Entrance) -> Endpoint:
        return Endpoint(
            url=entrance.url,
            username=entrance.user,
            password=Secret(self.given.remember(entrance.password)),
            pin=entrance.pin,
        )

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

    def _held(self) -> Box:
        if self._box is None:
            raise GoneHostError(f"{self.name}: its container was removed")
        return self._box

    def _enter_again(self) -> Entrance:
        """After a lost connection; a lasting container that has ended is started again.

        Raises ``GoneHostError`` for one that is gone, and what the engine says where it does not
        answer.
        """
        with self._entering:
            box = self._held()
            ended = box.ended()
            if isinstance(ended, GoneHostError) or (
                ended is not None and not isinstance(ended, DeadHostError)
            ):
                raise ended
            if ended is not None:
                if self._restarts == RESTARTS:
                    raise ended
                self._restarts += 1
                self.given.events.step(f"{ended.message}; starting it again")
                with telling(f"start container '{box.name}'"):
                    box.container.start()
            return self.boxes.await_ready(box, self._ready)

    def ended(self) -> str:
        """Why the container is no more, if it is not."""
        ended = self._box.ended() if self._box is not None else None
        return ended.message if isinstance(ended, DeadHostError) else ""

    def is_gone(self) -> bool:
        """Whether the container is no more: of one that is not a lasting one nothing stays."""
        return self._box is not None and isinstance(self._box.ended(), GoneHostError)

    def restart(self, session: Session) -> Session:
        """Stop what runs in the container and start it again: it has no Windows of its own."""
        session.close()
        box = self._held()
        with telling(f"restart container '{box.name}'"):
            box.restart()
        return self.connect()

    def close(self) -> None:
        """Remove the container unless it is a lasting one."""
        box, self._box = self._box, None
        if box is None:
            return
        try:
            if not self.config.keep:
                self.boxes.remove(box.container)
        finally:
            box.close()

    # -- its life, by hand -----------------------------------------------------------------------

    @property
    def lifecycle(self) -> Lifecycle:
        """Itself: it is made, started and removed from here."""
        return self

    def start(self, *, tied: bool) -> object:  # noqa: ARG002 - a lasting one is what stays
        """Make and start the lasting container; :class:`ConfigError` where none is asked for."""
        if not self.config.keep:
            raise ConfigError(
                f"host '{self.name}' comes and goes with each command line",
                advice="Give it 'keep: true' in pipeline.yaml for one that stays.",
            )
        with self.connect():
            return self._held().name

    def stop(self) -> bool:
        """Stop the lasting container; whether it was running."""
        found = self.boxes.kept(self.name)
        if found is None or found.status != "running":
            return False
        with telling(f"stop container '{found.name}'"):
            found.stop(timeout=20)
        return True

    def describe(self) -> str:
        """Its containers and where they are, in a line."""
        found = self.boxes.all(self.name)
        states = ", ".join(f"{one.name} {one.status}" for one in found) or "absent"
        return f"{states}  on {self.engine.title}"

    def address(self) -> str:
        """The lasting container's name and owner while it runs; empty when it does not."""
        found = self.boxes.kept(self.name)
        if found is None or found.status != "running":
            return ""
        return f"container {found.name} of {label(found, 'who')}"

    def teardown(self) -> None:
        """Remove its containers and their volumes; images stay.

        Raises :class:`HostError` while another command uses one.
        """
        for one in self.boxes.unused(self.name):
            self.boxes.remove(one)
        for volume in self.boxes.volumes(self.name):
            with telling(f"remove volume {volume.name}"):
                volume.remove()
