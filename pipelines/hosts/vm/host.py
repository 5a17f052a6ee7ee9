"""A virtual machine as a host: golden disk, overlay, boot, WinRM; then gone, or lasting."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Mapping
from functools import cached_property

from docker.models.containers import Container

from pipelines.errors import ConfigError
from pipelines.evidence import Evidence, Origin
from pipelines.hosts import images
from pipelines.hosts.base import Capabilities, Host, Lifecycle, Opening
from pipelines.hosts.engine.box import Box
from pipelines.hosts.engine.boxes import Boxes, Order, label
from pipelines.hosts.engine.containerfiles import put_files
from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.engine.refusals import telling
from pipelines.hosts.gpus import by_vfio, is_wanted
from pipelines.hosts.passthrough import vfio
from pipelines.hosts.passthrough.groundwork import Wanted, machine_of, survey
from pipelines.hosts.vm import disks
from pipelines.hosts.vm.boot import Boot, Entrance
from pipelines.hosts.vm.config import VmHost
from pipelines.hosts.vm.exits import explained
from pipelines.hosts.vm.golden import Making
from pipelines.hosts.vm.machine import (
    GIVEN,
    KNOWN,
    PORT,
    STOP,
    Runner,
    address_of,
    golden_mount,
    keys_of,
    runner_of,
)
from pipelines.hosts.windows import FIRST_PYTHON
from pipelines.hosts.windows.entering import with_python
from pipelines.hosts.windows.reboot import reboot_and_wait
from pipelines.hosttext import line
from pipelines.session.base import DeadHostError, GoneHostError, Session
from pipelines.session.channel import over_winrs
from pipelines.session.transports.endpoint import Endpoint, Secret

_log = logging.getLogger(__name__)

#: The image that runs QEMU, in the lock.
RUNNER = "dockurr-windows"
#: How often a command starts a lasting machine again that has ended under it.
RESTARTS = 3


class Vm(Host):
    """Implements :class:`pipelines.hosts.base.Host`; nobody has shown it with a real Windows."""

    evidence = Evidence.WRITTEN

    def __init__(self, name: str, config: VmHost, given: Opening) -> None:
        """Nothing is asked of the engine yet."""
        self.name = name
        self.config = config
        self.given = given
        self.executable = config.python
        self.capabilities = Capabilities(
            windows=True, msvc=True, gpu=is_wanted(config.gpu), publishable=True, services=True
        )
        self.gpu_way = by_vfio(config.gpu, 0)
        if config.python == FIRST_PYTHON:
            self.tools = ("cpython-3.11",)
        self._box: Box | None = None
        self._restarts = 0
        self._entering = threading.Lock()

    # -- its engine ------------------------------------------------------------------------------

    @cached_property
    def engine(self) -> Engine:
        """Reached at its first use; raises what :class:`Engine` does."""
        engine = self.config.reach()
        engine.require("linux", f"host '{self.name}'")
        return engine

    def groundwork(self) -> Mapping[str, object]:
        """The engine, and KVM and the cards of its machine."""
        config = self.config
        wanted = Wanted(system="linux", gpu=config.gpu, kvm=config.kvm, image=self._image())
        return survey(config.reach, wanted)

    @property
    def origin(self) -> Origin:
        """Its engine, and the image that runs QEMU."""
        if self._box is None:
            return Origin()
        return Origin(
            kind=self.config.kind,
            engine=line(self.engine.title, 200),
            image=line(self.runner.id, 80),
        )

    def unmade(self) -> str:
        """Its golden disk, if there is none, or the image that makes it."""
        if self.engine.image(self._image()) is None:
            return f"the engine does not have image {self._image()} yet"
        if self.config.keep and self.boxes.kept(self.name) is not None:
            return ""
        making = self.making
        if making.volume.find() is not None and disks.look(making.volume).record is not None:
            return ""
        return "there is no golden disk yet: the first provision makes it, which may take hours"

    @cached_property
    def boxes(self) -> Boxes:
        """The containers of this checkout there."""
        return Boxes(self.engine)

    @cached_property
    def runner(self) -> Runner:
        """The image that runs QEMU; fetched if it is missing."""
        wanted = self._image()
        if "@" in wanted:
            given = self.given
            wanted = images.ensure(self.engine, wanted, given.python, given.cache, given.events).id
        about = self.engine.image(wanted)
        if about is None:
            raise ConfigError(
                f"host '{self.name}': the engine has no image {wanted}",
                advice="Type: docker images --no-trunc",
            )
        return runner_of(about, wanted)

    def _image(self) -> str:
        return self.config.image or self.given.cache.lock.images[RUNNER].reference

    @cached_property
    def passed(self) -> vfio.Passed | None:
        """What the GPUs take that are asked for.

        Raises :class:`ConfigError` where they are not there, and what :func:`machine_of` does.
        """
        if not is_wanted(self.config.gpu):
            return None
        machine = machine_of(self.engine, self.runner.id)
        cards = vfio.choose(machine, self.config.gpu)
        self.gpu_way = by_vfio(self.config.gpu, len(cards))
        return vfio.passed(machine, cards)

    @property
    def making(self) -> Making:
        """What makes its golden disk."""
        return Making(self.name, self.config, self.boxes, self.runner, self.given)

    def order(self, volume: str) -> Order:
        """The machine that is wanted, on the golden disk in ``volume``."""
        keys = keys_of(self.config, self.runner, passed=self.passed)
        keys["mounts"] = [golden_mount(volume)]
        keys["ports"] = {PORT: (address_of(self.engine), None)}
        return Order(
            host=self.name,
            kind="vm",
            image=self.runner.id,
            keys=keys,
            tied={"entrypoint": self.runner.entrypoint("tied")},
            fill=self._fill,
            explain=explained,
            keep=self.config.keep,
            start_seconds=self.config.start_minutes * 60,
            stop_seconds=STOP,
        )

    def _fill(self, container: Container) -> None:
        """An account of its own: once for the guest, which removes it, once to find it again."""
        # Windows wants three kinds of characters of a password.
        user, password = f"wcw-{secrets.token_hex(3)}", f"{secrets.token_urlsafe(24)}-aA1"
        account = f"{user}:{password}\n".encode()
        put_files(container, {GIVEN: account, KNOWN: account})

    # -- the host protocol -----------------------------------------------------------------------

    def prepare(self, *, repair: bool = False) -> None:
        """Make the golden disk if there is none; compare every byte of it for a repair.

        Raises what :meth:`Making.ensure` does.
        """
        if repair or not (self.config.keep and self.boxes.kept(self.name) is not None):
            self.making.ensure(thorough=repair)

    def connect(self) -> Session:
        """Make the machine, or find the lasting one, and open a session.

        Raises what :meth:`Boxes.open` and :meth:`Making.ensure` do.
        """
        with self._entering:
            entrance = self._enter()
        again = lambda: self._endpoint(self._enter_again())  # noqa: E731
        endpoint = self._endpoint(entrance)
        if self.config.python != FIRST_PYTHON:
            return over_winrs(endpoint, self.executable, self.name, again=again)
        return with_python(
            endpoint, lambda: self.given.cache, self.given.events, name=self.name, again=again
        )

    def _enter(self) -> Entrance:
        if self._box is not None:
            return self.boxes.await_ready(self._box, self._boot())
        making = self.making
        kept = self.boxes.kept(self.name) if self.config.keep else None
        if kept is None or (kept.status != "running" and making.volume.find() is not None):
            making.ensure()
            self.given.events.step(f"booting {self.config.title}")
        self._box, entrance = self.boxes.open(self.order(making.volume.name), self._boot())
        return entrance

    def _boot(self) -> Boot:
        return Boot(self.engine.remote or "127.0.0.1", self.given.events)

    def _endpoint(self, entrance: Entrance) -> Endpoint:
        return Endpoint(
            url=entrance.url,
            username=entrance.user,
            password=Secret(self.given.remember(entrance.password)),
            pin=entrance.pin,
        )

    def _enter_again(self) -> Entrance:
        """After a lost connection; a lasting machine that has ended is started again.

        Raises ``GoneHostError`` for one that is gone, and what the engine says where it does not
        answer.
        """
        with self._entering:
            box = self._box
            if box is None:
                raise GoneHostError(f"{self.name}: its machine was removed")
            ended = box.ended()
            if ended is not None:
                if isinstance(ended, GoneHostError) or self._restarts == RESTARTS:
                    raise ended
                if not isinstance(ended, DeadHostError):
                    raise ended
                self._restarts += 1
                self.given.events.step(f"{ended.message}; starting it again")
                with telling(f"start machine '{box.name}'"):
                    box.container.start()
            return self.boxes.await_ready(box, self._boot())

    def ended(self) -> str:
        """Why the machine is no more, if it is not."""
        ended = self._box.ended() if self._box is not None else None
        return ended.message if isinstance(ended, DeadHostError) else ""

    def is_gone(self) -> bool:
        """Whether the machine is no more: of one that is not a lasting one nothing stays."""
        return self._box is not None and isinstance(self._box.ended(), GoneHostError)

    def restart(self, session: Session) -> Session:
        """Restart Windows and wait for it; its container stays."""
        return reboot_and_wait(self.connect, session, progress=self.given.events.step)

    def close(self) -> None:
        """Remove the machine and its disk unless it is a lasting one."""
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
        """Make and boot the lasting machine; :class:`ConfigError` where none is asked for."""
        if not self.config.keep:
            raise ConfigError(
                f"host '{self.name}' comes and goes with each command line",
                advice="Give it 'keep: true' in pipeline.yaml for one that stays.",
            )
        with self.connect():
            return self._box.name if self._box is not None else self.name

    def stop(self) -> bool:
        """Shut the lasting machine's Windows down; whether it was running."""
        found = self.boxes.kept(self.name)
        if found is None or found.status != "running":
            return False
        self.given.events.step(f"shutting Windows down, {STOP} s at most")
        with telling(f"stop machine '{found.name}'"):
            found.stop(timeout=STOP)
        return True

    def describe(self) -> str:
        """Its machines and golden disks and where they are, in a line."""
        found = self.boxes.all(self.name)
        states = ", ".join(f"{one.name} {one.status}" for one in found) or "absent"
        golden = [one for one in self.boxes.volumes() if label(one, "kind") == "golden"]
        return f"{states}, {len(golden)} golden disks  on {self.engine.title}"

    def address(self) -> str:
        """The lasting machine's name and owner while it runs; empty when it does not."""
        found = self.boxes.kept(self.name)
        if found is None or found.status != "running":
            return ""
        return f"machine {found.name} of {label(found, 'who')}"

    def teardown(self) -> None:
        """Remove its machines and their disks, and golden disks of other keys than today's.

        Raises :class:`HostError` while another command uses one.
        """
        for found in self.boxes.unused(self.name):
            self.boxes.remove(found)
        useful = self.making.volume.name
        for volume in self.boxes.volumes(self.name):
            if volume.name != useful:
                with telling(f"remove volume {volume.name}"):
                    volume.remove()
