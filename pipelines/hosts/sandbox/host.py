"""The sandbox as a host: created if missing, started if stopped, reached over WinRM.

With ``gpu: bridge`` HOME is a different one, and its Windows has a bridge to this machine's driver.
``HOME/prefix`` is the Windows, ``HOME/run`` has the files of a running one. Changes of either
require the lock next to HOME, so that two concurrent commands create and start only one sandbox.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.core.errors import ConfigError, HostError
from pipelines.core.evidence import Bridge, Evidence
from pipelines.core.extras import require_extra
from pipelines.core.logs import log_duration
from pipelines.core.toolsets import WITH_LIBRARY
from pipelines.hosts.base import IN_SANDBOX, CacheEntry, Capabilities, Host, Lifecycle, OpenOptions
from pipelines.hosts.gpus import by_bridge
from pipelines.hosts.sandbox import debian, health, image
from pipelines.hosts.sandbox.config import SandboxHost
from pipelines.hosts.sandbox.making import exclusive_lock
from pipelines.hosts.sandbox.state import (
    IN_USE,
    DamagedSandboxError,
    State,
    await_service,
    is_service_alive,
    make_run,
    read_live_state,
    start_service,
)
from pipelines.hosts.sandbox.wine import SEAL, Prefix, require_machine, wine_version
from pipelines.session.base import DeadHostError, Session
from pipelines.session.transports.endpoint import Endpoint, Secret

if TYPE_CHECKING:
    from pipelines.hosts.sandbox.bridge.attachment import Attachment

_log = logging.getLogger(__name__)

#: How often a command restarts a sandbox that ended during it, before giving up.
RESTARTS = 3
_STOP_TIMEOUT = 30.0


class Sandbox(Host):
    """One sandbox; implements :class:`pipelines.hosts.base.Host`."""

    capabilities = Capabilities(
        windows=True, msvc=False, gpu=False, publishable=False, emulated=True
    )
    evidence = Evidence.BINARIES
    replacements = IN_SANDBOX

    def __init__(self, name: str, config: SandboxHost, options: OpenOptions) -> None:
        """Nothing is created or started yet; :meth:`start` does that."""
        cache, python = options.cache, options.python
        self.name = name
        self.config = config
        self.python = python
        self.executable = rf"C:\Python{python.replace('.', '')}\python.exe"
        self.tools = image.image_tool_names(python)
        self.cache = cache
        self.events = options.events
        self.remember = options.register_secret
        base = config.base(name)
        self.slot = config.slot
        kinds = f"{'-msvc' if self.slot else ''}{'-gpu' if config.gpu else ''}"
        self.home = base.with_name(f"{base.name}-py{python}{kinds}")
        if self.status() in ("absent", "broken"):
            self.always_sent = ("tool", "archive", "files")
        self.gpu_way = way = by_bridge(config.gpu)
        self.replacements = {} if self.slot is not None else IN_SANDBOX
        self.capabilities = replace(self.capabilities, gpu=way.bridged, msvc=self.slot is not None)
        self._bridge: Attachment | None = None
        if way.bridged:
            from pipelines.hosts.sandbox.bridge.attachment import Attachment

            self._bridge = Attachment(self.home, way.visible, options.events.step)
            self.tools += self._bridge.tools
        self._wants_libcxx = options.api in WITH_LIBRARY and config.slot is None
        self._tied: subprocess.Popen[bytes] | None = None
        self._looks = False
        self._reached: State | None = None
        self._restarts = 0
        self._reviving = threading.Lock()

    @property
    def run(self) -> Path:
        """The directory of a running sandbox's state."""
        return self.home / "run"

    @property
    def prefix(self) -> Path:
        """Its Windows: drive and registry."""
        return self.home / "prefix"

    @property
    def aside(self) -> Path:
        """Where a damaged Windows is moved."""
        return self.home / "prefix.aside"

    # -- state ---------------------------------------------------------------------------------

    def state(self) -> State | None:
        """What the running service published; ``None`` if none is running."""
        return read_live_state(self.run)

    def status(self) -> str:
        """The state, one of the following.

        ``absent``; ``broken``: its files are damaged; ``running``; ``changing``: starting or
        stopping; ``crashed``: it did not shut down properly, and continues from there when
        started; ``stopped``.
        """
        if self.state():
            return "running"
        if not self.prefix.exists():
            return "absent"
        if is_service_alive(self.run):
            return "changing"
        if not (self.prefix / SEAL).is_file():
            return "broken"
        return "crashed" if (self.run / IN_USE).exists() else "stopped"

    @property
    def lifecycle(self) -> Lifecycle:
        """Itself: the pipeline creates, starts and removes it."""
        return self

    def missing_image(self) -> str:
        """Itself, if it does not exist."""
        absent = self.status() == "absent"
        return "the sandbox does not exist yet: the first provision creates it" if absent else ""

    def describe(self) -> str:
        """Its state and the location of its files, in one line."""
        return f"{self.status()}  {self.home}"

    def address(self) -> str:
        """Its process and its addresses; empty if it is not running."""
        state = self.state()
        return f"process {state['pid']}: {state['https']} and {state['http']}" if state else ""

    # -- lifecycle --------------------------------------------------------------------------------

    def _require_possible(self) -> None:
        """On this machine, and with its Python: as for a build, for commands that only start it."""
        require_machine()
        require_extra("sandbox")
        known = self.config.supply(self.cache.lock).python or ()
        if self.python not in known:
            raise ConfigError(
                f"{self.name} has Python {' and '.join(known)}, not {self.python}",
                hint=f"Type: --python {known[0]}",
            )

    def _make(self) -> None:
        """Fetch, build the image and copy it, each only if necessary."""
        if self._bridge is not None:
            self._bridge.require()
        if self.slot is not None:
            self.slot.require()
        make_run(self.run)
        if self.status() != "absent":
            debian.ensure_unpacked_wine(self.cache)  # whose own cache would not be offline
            return
        if self.cache.missing(self.tools):
            self.events.step("fetching")
        with self.events.bars() as bars:
            self.cache.fetch_all(self.tools, bars)
        made = image.make_image(self.cache, self.python, self.events.step)
        self.events.step("copying the image")
        image.copy_image(made, self.prefix)

    def start(self, *, ephemeral: bool) -> State:
        """Start the service unless it is running; if ``ephemeral``, it ends with this process.

        One that crashed continues with the same files. Raises :class:`ConfigError` for a Python
        without headers in the lock, ``DeadHostError`` if it does not start:
        :class:`DamagedSandboxError` if its files are the cause, which are left as they are.
        """
        self._require_possible()
        with exclusive_lock(self.home):
            return self._started(tied=ephemeral)

    def _started(self, *, tied: bool) -> State:
        if running := self.state():
            self._require_current()
            self._install_extras()
            return running
        self._make()
        self._require_current()
        return self._start(tied=tied)

    def prepare(self, *, repair: bool = False) -> None:  # noqa: ARG002 - starting it checks
        """Start it; damaged files, or those of another image, are replaced.

        Raises what :meth:`start` does.
        """
        self._require_possible()
        self._looks = False
        with exclusive_lock(self.home):
            try:
                self._started(tied=True)
            except DamagedSandboxError as error:
                self.events.step(error.message)
                self.events.step(f"its files were moved to {self._move_aside()}")
                self._make()
                self._start(tied=True)

    def _require_current(self) -> None:
        if not self._looks:
            today = image.image_key(self.cache, self.python)
            health.check_image(Prefix(self.prefix), today, running=self.state() is not None)

    def _move_aside(self) -> Path:
        """Move it aside, replacing what was moved aside before."""
        Prefix(self.prefix).halt()
        shutil.rmtree(self.aside, ignore_errors=True)
        self.prefix.rename(self.aside)
        (self.run / IN_USE).unlink(missing_ok=True)
        return self.aside

    def _install_extras(self) -> None:
        """Install what the package needs besides what every sandbox has, and note who uses it."""
        from pipelines.hosts.sandbox.inventory import note_user  # not for a dry run

        note_user(self.home)
        if self._wants_libcxx:
            from pipelines.hosts.sandbox import libcxx

            made = libcxx.ensure_libcxx(self.cache, self.python, self.events.step)
            libcxx.install_libcxx(made, Prefix(self.prefix))

    def _start(self, *, tied: bool) -> State:
        crashed = self.status() == "crashed"
        from pipelines.hosts.sandbox import powershell  # not for a dry run

        if (folder := powershell.find_powershell(self.cache)) is not None:
            powershell.install_powershell(Prefix(self.prefix), folder)
        if self._bridge is not None:
            if self.slot is not None:
                self.slot.remove(self.prefix)
            self._bridge.install(self.cache)
        if self.slot is not None:
            self.slot.install(self.prefix, self.events)
        self._install_extras()
        again = " after a crash; its builds are kept" if crashed else ""
        self.events.step(f"starting Windows and WinRM{again}")
        wine = Prefix(self.prefix).wine.packed()
        http, https = self.config.http_port, self.config.https_port
        log = (self.run / "daemon.log").open("w+b")
        process = start_service(self.home, wine, log, http, https, tied=tied)
        try:
            for name in ("transports.winrs_http", "channel"):  # 0.3 s, while the start takes longer
                importlib.import_module(f"pipelines.session.{name}")
            importlib.import_module("pipelines.session.bootstrap").packed_sources()
            with log_duration(_log, logging.INFO, "%s: start, process %d", self.name, process.pid):
                state = await_service(self.name, self.run, process, log)
        except BaseException:
            process.terminate()
            process.wait(_STOP_TIMEOUT)
            raise
        finally:
            log.close()
        if tied:
            self._tied = process
        return state

    def stop(self) -> bool:
        """Stop the service and every Windows process; whether one was running."""
        with exclusive_lock(self.home):
            return self._stop()

    def _stop(self) -> bool:
        state = self.state()
        if state is None:
            crashed = self.status() == "crashed"
            if crashed:  # left behind by its service
                Prefix(self.prefix).halt()
            return crashed
        _log.info("%s: stop, process %d", self.name, state["pid"])
        with contextlib.suppress(ProcessLookupError):
            os.kill(state["pid"], signal.SIGTERM)
        deadline = time.monotonic() + _STOP_TIMEOUT
        while is_service_alive(self.run) and time.monotonic() < deadline:
            time.sleep(0.02)
        return True

    def teardown(self) -> bool:
        """Stop it and remove its files; images and downloads stay in the cache."""
        with exclusive_lock(self.home):
            self._stop()
            if existed := self.home.exists():
                Prefix(self.prefix).halt() if self.prefix.is_dir() else None
                shutil.rmtree(self.home)
        return existed

    def cache_entries(self) -> Iterable[CacheEntry]:
        """Damaged files that were moved aside."""
        if self.aside.is_dir():
            yield CacheEntry("sandboxes moved aside", self.aside, useful=False)

    # -- the host protocol -----------------------------------------------------------------------

    def endpoint(self, state: State) -> Endpoint:
        """Address and credentials; the certificate created for this sandbox is verified.

        Raises :class:`HostError` if it is stopping.
        """
        try:
            _, user, password = (self.run / "credentials").read_text().strip().split(":", 2)
        except (OSError, ValueError):
            raise HostError(
                f"the sandbox '{self.name}' has just stopped", hint="Type the same command again."
            ) from None
        return Endpoint(
            url=state[self.config.listener],
            username=user,
            password=Secret(self.remember(password)),
            ca=self.run / "cert.pem" if self.config.listener == "https" else None,
            message_encryption="always" if self.config.listener == "http" else "auto",
        )

    @property
    def inputs(self) -> str:
        """Its image, and libc++ if the package uses that."""
        if not self._wants_libcxx:
            return image.image_key(self.cache, self.python)
        from pipelines.hosts.sandbox import libcxx

        return libcxx.libcxx_cache_key(self.cache, self.python)

    def emulator(self) -> str:
        """The installed version of Wine; :class:`SetupError` if it is missing."""
        return wine_version(self.cache)

    def connect(self) -> Session:
        """Start the sandbox if necessary and open a session."""
        from pipelines.session.channel import over_winrs

        endpoint = self._reach(self.start(ephemeral=True))
        return over_winrs(endpoint, self.executable, self.name, again=self._reconnect)

    def _reach(self, state: State) -> Endpoint:
        """Its endpoint; a bridge is tested once per start, before anything uses it."""
        self._reached = state
        if self.slot is not None:
            self.slot.check(self.prefix)
        if self._bridge is not None:
            self._bridge.test(self.executable, state["pid"])
        return self.endpoint(state)

    def bridge(self) -> Bridge | None:
        """What is known about its bridge, if configured."""
        return self._bridge.summary() if self._bridge is not None else None

    def inspect_only(self) -> bool:
        """Connect regardless of its image, and without its bridge if there is no driver."""
        self._looks = True
        spared = self._bridge is not None and self._bridge.problems()
        self._bridge = None if spared else self._bridge
        return spared

    def ended(self) -> str:
        """Whether the service that was reached is gone or was replaced by another one."""
        if self._reached is None or self.state() == self._reached:
            return ""
        return f"the sandbox '{self.name}' has stopped"

    def _reconnect(self) -> Endpoint:
        """Its endpoint after a lost connection; restarted on the same files if it has ended."""
        with self._reviving:
            return self._reach(self.state() or self._restart_service())

    def _restart_service(self) -> State:
        if self._restarts == RESTARTS:
            raise DeadHostError(
                f"the sandbox '{self.name}' has stopped {RESTARTS + 1} times during this command",
                hint="Finished objects are kept, and the same command continues with them. It is "
                "usually out of memory: try --jobs 1.",
            )
        self.close()
        with exclusive_lock(self.home):
            if running := self.state():  # started by another command
                return running
            if self.status() == "absent":
                raise DeadHostError(
                    f"the sandbox '{self.name}' has been removed", hint="Type: invoke provision"
                )
            self._restarts += 1
            return self._start(tied=True)

    def restart(self, session: Session) -> Session:
        """Stop Windows and start it again."""
        session.close()
        self.close()
        self.stop()
        return self.connect()

    def close(self) -> None:
        """Stop the service if :meth:`connect` started it."""
        if self._tied is None:
            return
        if self._tied.stdin:
            self._tied.stdin.close()
        try:
            self._tied.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._tied.kill()
        self._tied = None
