"""A virtual machine as a host: golden disk, overlay, boot, WinRM; then gone, or lasting."""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

from docker.models.containers import Container
from docker.models.volumes import Volume

from pipelines.core.errors import ConfigError, HostError
from pipelines.core.evidence import Evidence, Origin
from pipelines.core.hosttext import line
from pipelines.hosts import images
from pipelines.hosts.base import Capabilities, Opening
from pipelines.hosts.engine.boxes import Order, label
from pipelines.hosts.engine.boxhost import BoxHost
from pipelines.hosts.engine.containerfiles import put_files
from pipelines.hosts.engine.entrance import WINRM, Entrance, bound
from pipelines.hosts.engine.keys import in_bytes
from pipelines.hosts.gpus import by_vfio, is_wanted
from pipelines.hosts.passthrough import vfio
from pipelines.hosts.passthrough.groundwork import Wanted, machine_of, survey
from pipelines.hosts.vm import disks
from pipelines.hosts.vm.boot import Boot
from pipelines.hosts.vm.config import VmHost
from pipelines.hosts.vm.exits import explained
from pipelines.hosts.vm.golden import Making
from pipelines.hosts.vm.machine import (
    GIVEN,
    KNOWN,
    STOP,
    Runner,
    golden_mount,
    keys_of,
    runner_of,
)
from pipelines.hosts.windows import FIRST_PYTHON
from pipelines.hosts.windows.entering import with_python
from pipelines.hosts.windows.reboot import reboot_and_wait
from pipelines.remote import facts
from pipelines.session.base import Session
from pipelines.session.channel import over_winrs

_log = logging.getLogger(__name__)

#: The image that runs QEMU, in the lock.
RUNNER = "dockurr-windows"
#: Of a guest's memory, what its system says it has at the least: firmware and kernel keep some.
_USABLE = 0.85


class Vm(BoxHost):
    """Implements :class:`pipelines.hosts.base.Host`; nobody has shown it with a real Windows."""

    noun = "machine"
    system = "linux"
    stop_seconds = STOP
    evidence = Evidence.WRITTEN

    def __init__(self, name: str, config: VmHost, given: Opening) -> None:
        """Nothing is asked of the engine yet."""
        super().__init__(name, config, given)
        self.config = config
        self._fresh = False
        self.executable = config.python
        self.capabilities = Capabilities(
            windows=True, msvc=True, gpu=is_wanted(config.gpu), publishable=True, services=True
        )
        self.gpu_way = by_vfio(config.gpu, 0)
        if config.python == FIRST_PYTHON:
            self.tools = ("cpython-3.11",)

    # -- its engine ------------------------------------------------------------------------------

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
                hint="Type: docker images --no-trunc",
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
        keys["ports"] = {WINRM: (bound(self.engine), None)}
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
            stop_seconds=self.stop_seconds,
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
        self._fresh = repair  # a lasting machine has the Python that builds could write to
        if repair or not (self.config.keep and self.boxes.kept(self.name) is not None):
            self.making.ensure(thorough=repair)

    def connect(self) -> Session:
        """Make the machine, or find the lasting one, and open a session.

        Raises what :meth:`Boxes.open` and :meth:`Making.ensure` do.
        """
        with self._entering:
            entrance = self._enter()
        remember = self.given.remember
        again = lambda: self._enter_again().endpoint(remember)  # noqa: E731
        # Without KVM a machine takes a minute where others take seconds.
        endpoint = replace(entrance.endpoint(remember), patience=self.config.start_minutes * 60)
        if self.config.python != FIRST_PYTHON:
            return self._as_ordered(over_winrs(endpoint, self.executable, self.name, again=again))
        fresh, self._fresh = self._fresh, False
        return self._as_ordered(
            with_python(
                endpoint,
                lambda: self.given.cache,
                self.given.events,
                name=self.name,
                again=again,
                fresh=fresh,
            )
        )

    def _as_ordered(self, session: Session) -> Session:
        """The session; :class:`HostError` where the image has given the guest less."""
        with contextlib.ExitStack() as unless:
            unless.callback(session.close)
            found = session.call(facts.facts)
            memory = (found["memory"] or {}).get("total", 0)
            if found["cpus"] < self.config.cpus or memory < _USABLE * in_bytes(self.config.memory):
                raise HostError(
                    f"machine '{self.name}' has {found['cpus']} processors and {memory >> 20} MiB, "
                    f"asked for were {self.config.cpus} and {self.config.memory}",
                    hint="The engine's machine has not got them: lower 'cpus' or 'memory'.",
                )
            unless.pop_all()
        return session

    def _enter(self) -> Entrance:
        if self._box is not None:
            return self.boxes.await_ready(self._box, self._ready())
        making = self.making
        kept = self.boxes.kept(self.name) if self.config.keep else None
        if kept is None or (kept.status != "running" and making.volume.find() is not None):
            making.ensure()
            self.given.events.step(f"booting {self.config.title}")
        self._box, entrance = self.boxes.open(self.order(making.volume.name), self._ready())
        return entrance

    def _ready(self) -> Boot:
        return Boot(self.engine, self.given.events)

    def restart(self, session: Session) -> Session:
        """Restart Windows and wait for it; its container stays, and nobody else is in it."""
        return reboot_and_wait(self.connect, session, notice=2, progress=self.given.events.step)

    # -- its life, by hand -----------------------------------------------------------------------

    def describe(self) -> str:
        """Its machines and golden disks and where they are, in a line."""
        golden = [one for one in self.boxes.volumes(self.name) if label(one, "kind") == "golden"]
        return f"{len(golden)} golden disks, {super().describe()}"

    def _stays(self, volume: Volume) -> bool:
        """Golden disks of today's key: it takes hours to make one."""
        return label(volume, "kind") == "golden" and volume.name == self.making.volume.name
