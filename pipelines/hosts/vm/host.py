"""A virtual machine as a host: golden disk, overlay, boot, WinRM; ephemeral or persistent."""

from __future__ import annotations

import calendar
import contextlib
import logging
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

from docker.errors import DockerException
from docker.models.containers import Container
from docker.models.volumes import Volume
from requests.exceptions import RequestException

from pipelines.core.errors import ConfigError, HostError
from pipelines.core.evidence import Evidence, Origin
from pipelines.core.hosttext import safe_line
from pipelines.hosts import images
from pipelines.hosts.base import Capabilities, Events, OpenOptions
from pipelines.hosts.bounds import in_bytes
from pipelines.hosts.engine.container import ContainerSpec, ManagedContainer
from pipelines.hosts.engine.containerfiles import put_files, read_container_file
from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.engine.enginehost import (
    WINRM,
    ConnectionInfo,
    EngineHost,
    port_bind_address,
    url_of,
)
from pipelines.hosts.engine.manager import label_value
from pipelines.hosts.gpus import by_vfio, is_wanted
from pipelines.hosts.passthrough import vfio
from pipelines.hosts.passthrough.prerequisites import (
    Requirements,
    inspect_engine_machine,
    survey_prerequisites,
)
from pipelines.hosts.vm import disks
from pipelines.hosts.vm.config import VmHost
from pipelines.hosts.vm.golden import GoldenDiskBuilder
from pipelines.hosts.vm.machine import (
    GIVEN,
    KNOWN,
    STOP,
    Runner,
    container_exit_error,
    golden_mount,
    keys_of,
    runner_of,
)
from pipelines.hosts.windows import FIRST_PYTHON
from pipelines.hosts.windows.firstpython import connect_with_python
from pipelines.hosts.windows.reboot import reboot_and_wait
from pipelines.remote import facts
from pipelines.session.base import Session
from pipelines.session.channel import over_winrs
from pipelines.session.transports.identify import is_winrm_listening

_SAID = re.compile(rb"WCW-(READY|FAILED) *([^\r\n]*)")
_PIN = re.compile(rb"[0-9a-f]{64}")
_LOG_LINES = 2000
_LOOK = 0.5  # seconds between two checks of a log
_TELL = 10.0  # seconds between two progress reports
_ADOPTED = 1.0  # seconds that finding a persistent one may take


class Boot:
    """Watches one boot by COM1 and WinRM: called repeatedly, returns how to connect, or not yet."""

    def __init__(self, engine: Engine, events: Events) -> None:
        self._engine = engine
        self._events = events
        self._began = self._reported = time.monotonic()
        self._looked = 0.0

    def __call__(self, managed: ManagedContainer) -> ConnectionInfo | None:
        """How to connect, once its guest has printed its certificate on COM1 and WinRM has it.

        Raises :class:`HostError` for an error printed by the guest.
        """
        now = time.monotonic()
        if now - self._looked < _LOOK and now - self._began > _ADOPTED:
            return None
        self._looked = now
        started = str(managed.container.attrs["State"]["StartedAt"])[:19]
        if started.startswith("0001"):
            return None
        since = calendar.timegm(time.strptime(started, "%Y-%m-%dT%H:%M:%S"))
        try:
            log: bytes = managed.container.logs(since=since, tail=_LOG_LINES)
        except (DockerException, RequestException):
            return None  # the reason is read next
        word, rest = ([(b"", b""), *_SAID.findall(log)])[-1]  # Windows may have been restarted
        if word == b"FAILED":
            raise HostError(
                f"machine '{managed.name}': {safe_line(rest.decode('utf-8', 'replace'))}",
                hint=f"Its output: docker logs {managed.name}",
            )
        pin = _PIN.match(rest)
        if pin is None:
            self._report("booting", log)
            return None
        url = url_of(managed, self._engine)
        if not url or not is_winrm_listening(url, pin[0].decode()):
            self._report("the guest is ready, its WinRM does not answer yet", b"")
            return None
        known = (read_container_file(managed.container, KNOWN) or b"").decode("utf-8", "replace")
        user, _, password = known.strip().partition(":")
        return ConnectionInfo(url, pin[0].decode(), user, password)

    def _report(self, what: str, log: bytes) -> None:
        now = time.monotonic()
        if now - self._reported < _TELL:
            return
        self._reported = now
        last = safe_line((log.decode("utf-8", "replace").strip().splitlines() or [""])[-1], 80)
        self._events.step(f"{what}, {now - self._began:.0f} s{': ' if last else ''}{last}")


_log = logging.getLogger(__name__)

#: The image that runs QEMU, in the lock.
RUNNER = "dockurr-windows"
#: Minimum fraction of a guest's memory that its system reports: firmware and kernel keep some.
_USABLE = 0.85


class Vm(EngineHost):
    """Implements :class:`pipelines.hosts.base.Host`; not yet run with a real Windows."""

    noun = "machine"
    system = "linux"
    stop_seconds = STOP
    evidence = Evidence.WRITTEN

    def __init__(self, name: str, config: VmHost, options: OpenOptions) -> None:
        """Does not contact the engine yet."""
        super().__init__(name, config, options)
        self.config = config
        self._fresh = False
        self.executable = config.python
        self.always_sent = () if config.keep else ("tool", "archive", "files")
        self.image = config.image or options.cache.lock.images[RUNNER].reference
        self.capabilities = Capabilities(
            windows=True, msvc=True, gpu=is_wanted(config.gpu), publishable=True, services=True
        )
        self.gpu_way = by_vfio(config.gpu, 0)
        if config.python == FIRST_PYTHON:
            self.tools = ("cpython-3.11",)

    # -- its engine ------------------------------------------------------------------------------

    def prerequisites(self) -> Mapping[str, object]:
        """The engine, and KVM and the cards of its machine."""
        config = self.config
        requirements = Requirements(
            system="linux", gpu=config.gpu, kvm=config.kvm, image=self.image
        )
        return survey_prerequisites(config.reach, requirements)

    @property
    def origin(self) -> Origin:
        """Its engine, and the image that runs QEMU."""
        if self._managed is None:
            return Origin()
        return Origin(
            kind=self.config.kind,
            engine=safe_line(self.engine.title, 200),
            image=safe_line(self.runner.id, 80),
        )

    def missing_image(self) -> str:
        """Its golden disk if missing, or the image that creates it."""
        if self.engine.image(self.image) is None:
            return f"the engine does not have image {self.image} yet"
        if self.config.keep and self.manager.persistent(self.name) is not None:
            return ""
        making = self.golden_builder
        if (
            making.volume.find() is not None
            and disks.read_disk_state(making.volume).record is not None
        ):
            return ""
        return "no golden disk yet: the first provision creates it, which may take hours"

    @cached_property
    def runner(self) -> Runner:
        """The image that runs QEMU; fetched if missing."""
        image = self.image
        if "@" in image:
            options = self.options
            image = images.ensure(
                self.engine, image, options.python, options.cache, options.events
            ).id
        about = self.engine.image(image)
        if about is None:
            raise ConfigError(
                f"host '{self.name}': the engine has no image {image}",
                hint="Type: docker images --no-trunc",
            )
        return runner_of(about, image)

    @cached_property
    def passed(self) -> vfio.Passthrough | None:
        """What passing the requested GPUs takes.

        Raises :class:`ConfigError` if they do not exist, and what
        :func:`inspect_engine_machine` does.
        """
        if not is_wanted(self.config.gpu):
            return None
        machine = inspect_engine_machine(self.engine, self.runner.id)
        cards = vfio.select_gpu_slots(machine, self.config.gpu)
        self.gpu_way = by_vfio(self.config.gpu, len(cards))
        return vfio.plan_passthrough(machine, cards)

    @property
    def golden_builder(self) -> GoldenDiskBuilder:
        """Creates its golden disk."""
        return GoldenDiskBuilder(self.name, self.config, self.manager, self.runner, self.options)

    def container_spec(self, volume: str) -> ContainerSpec:
        """The machine to create, on the golden disk in ``volume``."""
        keys = keys_of(self.config, self.runner, passed=self.passed)
        keys["mounts"] = [golden_mount(volume)]
        keys["ports"] = {WINRM: (port_bind_address(self.engine), None)}
        return ContainerSpec(
            host=self.name,
            kind="vm",
            image=self.runner.id,
            keys=keys,
            ephemeral_keys={"entrypoint": self.runner.entrypoint("tied")},
            fill=self._fill,
            explain=container_exit_error,
            keep=self.config.keep,
            start_seconds=self.config.start_minutes * 60,
            stop_seconds=self.stop_seconds,
        )

    def _fill(self, container: Container) -> None:
        """A separate account: one file for the guest, which removes it, one for reconnecting."""
        # Windows requires three kinds of characters in a password.
        user, password = f"wcw-{secrets.token_hex(3)}", f"{secrets.token_urlsafe(24)}-aA1"
        account = f"{user}:{password}\n".encode()
        put_files(container, {GIVEN: account, KNOWN: account})

    # -- the host protocol -----------------------------------------------------------------------

    def prepare(self, *, repair: bool = False) -> None:
        """Create the golden disk if missing; for a repair, verify every byte of it.

        Raises what :meth:`GoldenDiskBuilder.ensure` does.
        """
        self._fresh = repair  # builds could have changed the Python of a persistent machine
        if repair or not (self.config.keep and self.manager.persistent(self.name) is not None):
            self.golden_builder.ensure(thorough=repair)

    def connect(self) -> Session:
        """Create the machine, or find the persistent one, and open a session.

        Raises what :meth:`ContainerManager.open` and :meth:`GoldenDiskBuilder.ensure` do.
        """
        with self._entering:
            connection = self._connect()
        remember = self.options.register_secret
        again = lambda: self._reconnect().endpoint(remember)  # noqa: E731
        # Without KVM a machine takes a minute where others take seconds.
        endpoint = replace(connection.endpoint(remember), patience=self.config.start_minutes * 60)
        if self.config.python != FIRST_PYTHON:
            return self._check_limits(over_winrs(endpoint, self.executable, self.name, again=again))
        fresh, self._fresh = self._fresh, False
        return self._check_limits(
            connect_with_python(
                endpoint,
                self.options.cache,
                self.options.events,
                name=self.name,
                again=again,
                fresh=fresh,
            )
        )

    def _check_limits(self, session: Session) -> Session:
        """The session; :class:`HostError` if the image gave the guest fewer resources."""
        with contextlib.ExitStack() as unless:
            unless.callback(session.close)
            actual = session.call(facts.facts)
            memory = (actual["memory"] or {}).get("total", 0)
            if actual["cpus"] < self.config.cpus or memory < _USABLE * in_bytes(self.config.memory):
                raise HostError(
                    f"machine '{self.name}' has {actual['cpus']} processors and {memory >> 20} "
                    f"MiB, requested were {self.config.cpus} and {self.config.memory}",
                    hint="The engine's machine does not have that many: lower 'cpus' or 'memory'.",
                )
            unless.pop_all()
        return session

    def _connect(self) -> ConnectionInfo:
        if self._managed is not None:
            return self.manager.await_ready(self._managed, self._ready())
        making = self.golden_builder
        persistent = self.manager.persistent(self.name) if self.config.keep else None
        if persistent is None or (
            persistent.status != "running" and making.volume.find() is not None
        ):
            making.ensure()
            self.options.events.step(f"booting {self.config.title}")
        self._managed, connection = self.manager.open(
            self.container_spec(making.volume.name), self._ready()
        )
        return connection

    def _ready(self) -> Boot:
        return Boot(self.engine, self.options.events)

    def restart(self, session: Session) -> Session:
        """Restart Windows and wait for it; its container keeps running."""
        return reboot_and_wait(self.connect, session, notice=2, progress=self.options.events.step)

    # -- lifecycle -----------------------------------------------------------------------

    def describe(self) -> str:
        """Its machines, its golden disks and their engine, in one line."""
        golden = [
            volume
            for volume in self.manager.volumes(self.name)
            if label_value(volume, "kind") == "golden"
        ]
        return f"{len(golden)} golden disks, {super().describe()}"

    def _stays(self, volume: Volume) -> bool:
        """Golden disks with the current key: creating one takes hours."""
        return (
            label_value(volume, "kind") == "golden"
            and volume.name == self.golden_builder.volume.name
        )
