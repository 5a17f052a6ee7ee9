"""The sandbox as a host: made when it is missing, started when it is down, reached over WinRM.

With ``gpu: bridge`` HOME is another one, and its Windows has a bridge to this machine's driver.
``HOME/prefix`` is the Windows, ``HOME/run`` what a running one needs. Who changes either holds the
lock beside HOME, so that two commands at once make and start one sandbox between them.
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
from pipelines.core.logs import timed
from pipelines.hosts.base import IN_SANDBOX, Capabilities, Host, Kept, Lifecycle, Opening
from pipelines.hosts.gpus import by_bridge
from pipelines.hosts.sandbox import health, image, libcxx, powershell
from pipelines.hosts.sandbox.config import SandboxHost
from pipelines.hosts.sandbox.making import alone
from pipelines.hosts.sandbox.starting import await_service, start_service
from pipelines.hosts.sandbox.state import IN_USE, NotWholeError, State, alive, make_run, published
from pipelines.hosts.sandbox.wine import SEAL, Prefix, version
from pipelines.record.toolsets import WITH_LIBRARY
from pipelines.session.base import DeadHostError, Session
from pipelines.session.transports.endpoint import Endpoint, Secret

if TYPE_CHECKING:
    from pipelines.hosts.sandbox.bridge.attached import Attached

_log = logging.getLogger(__name__)

#: How often a command starts a sandbox again that has ended under it, before it gives up.
RESTARTS = 3
_STOP_TIMEOUT = 30.0


class Sandbox(Host):
    """One sandbox; implements :class:`pipelines.hosts.base.Host`."""

    capabilities = Capabilities(
        windows=True, msvc=False, gpu=False, publishable=False, emulated=True
    )
    evidence = Evidence.BINARIES
    instead = IN_SANDBOX

    def __init__(self, name: str, config: SandboxHost, given: Opening) -> None:
        """Nothing is made or started yet; :meth:`start` does that."""
        cache, python = given.cache, given.python
        self.name = name
        self.config = config
        self.python = python
        self.executable = rf"C:\Python{python.replace('.', '')}\python.exe"
        self.tools = image.tools(python)
        self.cache = cache
        self.events = given.events
        self.remember = given.remember
        base = config.base(name)
        self.slot = config.slot
        kinds = f"{'-msvc' if self.slot else ''}{'-gpu' if config.gpu else ''}"
        self.home = base.with_name(f"{base.name}-py{python}{kinds}")
        self.gpu_way = way = by_bridge(config.gpu)
        self.instead = {} if self.slot is not None else IN_SANDBOX
        self.capabilities = replace(self.capabilities, gpu=way.bridged, msvc=self.slot is not None)
        self._bridge: Attached | None = None
        if way.bridged:
            from pipelines.hosts.sandbox.bridge.attached import Attached

            self._bridge = Attached(self.home, way.visible, given.events.step)
            self.tools += self._bridge.tools
        self._wants_libcxx = given.api in WITH_LIBRARY and config.slot is None
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
        """Where a Windows is moved that does not come up."""
        return self.home / "prefix.aside"

    # -- state ---------------------------------------------------------------------------------

    def state(self) -> State | None:
        """What the running service published, or ``None`` when none runs."""
        return published(self.run)

    def status(self) -> str:
        """One of these.

        ``absent``; ``broken``: its files are not whole; ``running``; ``changing``: starting or
        ending; ``crashed``: it did not end in good order, and goes on from there when it is
        started; ``stopped``.
        """
        if self.state():
            return "running"
        if not self.prefix.exists():
            return "absent"
        if alive(self.run):
            return "changing"
        if not (self.prefix / SEAL).is_file():
            return "broken"
        return "crashed" if (self.run / IN_USE).exists() else "stopped"

    @property
    def lifecycle(self) -> Lifecycle:
        """Itself: it is made, started and removed from here."""
        return self

    def describe(self) -> str:
        """Its state in a line, and where its files are."""
        return f"{self.status()}  {self.home}"

    def address(self) -> str:
        """Its process and where it listens; empty when it does not run."""
        state = self.state()
        return f"process {state['pid']}: {state['https']} and {state['http']}" if state else ""

    # -- life ----------------------------------------------------------------------------------

    def _require_python(self) -> None:
        """As a build is refused, for the commands that only start it."""
        known = self.config.supply(self.cache.lock).python or ()
        if self.python not in known:
            raise ConfigError(
                f"{self.name} has Python {' and '.join(known)}, not {self.python}",
                hint=f"Type: --python {known[0]}",
            )

    def make(self) -> None:
        """Fetch, make the image and copy it, each only if that has not been done.

        Raises :class:`ConfigError` for a Python of which the lock has no headers.
        """
        self._require_python()
        with alone(self.home):
            self._make()

    def _make(self) -> None:
        if self._bridge is not None:
            self._bridge.require()
        if self.slot is not None:
            self.slot.require()
        make_run(self.run)
        if self.status() != "absent":
            return
        if self.cache.missing(self.tools):
            self.events.step("fetching")
        with self.events.bars() as bars:
            self.cache.fetch_all(self.tools, bars)
        made = image.make_image(self.cache, self.python, self.events.step)
        self.events.step("copying the image")
        image.copy_image(made, self.prefix)

    def start(self, *, tied: bool) -> State:
        """Start the service unless it runs; ``tied`` makes it end with this process.

        One that crashed goes on with the same files. Raises what :meth:`make` does, and
        ``DeadHostError`` when it does not start: :class:`NotWholeError` when its files are to
        blame, which are left as they are.
        """
        self._require_python()
        with alone(self.home):
            if running := self.state():
                self._require_current()
                self._furnish()
                return running
            self._make()
            self._require_current()
            return self._start(tied=tied)

    def prepare(self, *, repair: bool = False) -> None:  # noqa: ARG002 - starting it looks
        """Start it; files that do not come up, or of another image, give way to new ones.

        Raises what :meth:`start` does.
        """
        self._require_python()
        self._looks = False
        with alone(self.home):
            if self.state():
                self._require_current()
                self._furnish()
                return
            self._make()
            try:
                self._require_current()
                self._start(tied=True)
            except NotWholeError as error:
                self.events.step(error.message)
                self.events.step(f"its files are now in {self._move_aside()}")
                self._make()
                self._start(tied=True)

    def _require_current(self) -> None:
        if not self._looks:
            today = image.image_key(self.cache, self.python)
            health.check_image(Prefix(self.prefix), today, running=self.state() is not None)

    def _move_aside(self) -> Path:
        """Take the place of what was moved aside before: there is one at most."""
        Prefix(self.prefix).halt()
        shutil.rmtree(self.aside, ignore_errors=True)
        self.prefix.rename(self.aside)
        (self.run / IN_USE).unlink(missing_ok=True)
        return self.aside

    def _furnish(self) -> None:
        """Put there what the package needs besides what every sandbox has."""
        if self._wants_libcxx:
            made = libcxx.built(self.cache, self.python, self.events.step)
            libcxx.install(made, Prefix(self.prefix))

    def _start(self, *, tied: bool) -> State:
        crashed = self.status() == "crashed"
        if (folder := powershell.found(self.cache)) is not None:
            powershell.install(Prefix(self.prefix), folder)
        if self._bridge is not None:
            if self.slot is not None:
                self.slot.remove(self.prefix)
            self._bridge.install(self.cache)
        if self.slot is not None:
            self.slot.install(self.cache, self.prefix, self.events)
        self._furnish()
        again = ", which has crashed: its builds are kept" if crashed else ""
        self.events.step(f"starting Windows and WinRM{again}")
        log = (self.run / "daemon.log").open("w+b")
        process = start_service(
            self.home, log, self.config.http_port, self.config.https_port, tied=tied
        )
        try:
            importlib.import_module("winrm.protocol")  # 0.25 s that the start takes anyway
            with timed(_log, logging.INFO, "%s: start, process %d", self.name, process.pid):
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
        with alone(self.home):
            return self._stop()

    def _stop(self) -> bool:
        state = self.state()
        if state is None:
            crashed = self.status() == "crashed"
            if crashed:  # what its service has left behind
                Prefix(self.prefix).halt()
            return crashed
        _log.info("%s: stop, process %d", self.name, state["pid"])
        with contextlib.suppress(ProcessLookupError):
            os.kill(state["pid"], signal.SIGTERM)
        deadline = time.monotonic() + _STOP_TIMEOUT
        while alive(self.run) and time.monotonic() < deadline:
            time.sleep(0.02)
        return True

    def teardown(self) -> None:
        """Stop it and remove its files; images and downloads stay in the cache."""
        with alone(self.home):
            self._stop()
            if self.home.exists():
                Prefix(self.prefix).halt() if self.prefix.is_dir() else None
                shutil.rmtree(self.home)

    def kept(self) -> Iterable[Kept]:
        """Files that were moved aside when they did not come up."""
        if self.aside.is_dir():
            yield Kept("sandboxes moved aside", self.aside, useful=False)

    # -- the host protocol -----------------------------------------------------------------------

    def endpoint(self, state: State) -> Endpoint:
        """Where and as whom to sign in; the certificate made for this sandbox is verified.

        Raises :class:`HostError` when it is just ending.
        """
        try:
            _, user, password = (self.run / "credentials").read_text().strip().split(":", 2)
        except (OSError, ValueError):
            raise HostError(
                f"the sandbox '{self.name}' has just ended", hint="Type the same command again."
            ) from None
        return Endpoint(
            url=state[self.config.listener],
            username=user,
            password=Secret(self.remember(password)),
            ca=self.run / "cert.pem" if self.config.listener == "https" else None,
            message_encryption="always" if self.config.listener == "http" else "auto",
        )

    @property
    def made_of(self) -> str:
        """Its image, and libc++ where the package takes that."""
        key = libcxx.key if self._wants_libcxx else image.image_key
        return key(self.cache, self.python)

    def emulator(self) -> str:
        """The version of Wine here; :class:`SetupError` when it is missing."""
        return version(self.cache)

    def connect(self) -> Session:
        """Start the sandbox if need be and open a session."""
        from pipelines.session.channel import over_winrs

        endpoint = self._reach(self.start(tied=True))
        return over_winrs(endpoint, self.executable, self.name, again=self._again)

    def _reach(self, state: State) -> Endpoint:
        """Where it is; a bridge is tested once a start, before anything rests on it."""
        self._reached = state
        if self.slot is not None:
            self.slot.check(self.cache, self.prefix)
        if self._bridge is not None:
            self._bridge.test(self.executable, state["pid"])
        return self.endpoint(state)

    def bridge(self) -> Bridge | None:
        """What is known of its bridge, if it is to have one."""
        return self._bridge.told() if self._bridge is not None else None

    def only_look(self) -> bool:
        """Reach one of any image, without a driver without its bridge; a later one is tested."""
        self._looks = True
        spared = self._bridge is not None and self._bridge.lacks()
        self._bridge = None if spared else self._bridge
        return spared

    def ended(self) -> str:
        """That the service which was reached is gone, or is another one by now."""
        if self._reached is None or self.state() == self._reached:
            return ""
        return f"the sandbox '{self.name}' has ended"

    def _again(self) -> Endpoint:
        """Where it is after a lost connection; started again on the same files if it has ended."""
        with self._reviving:
            return self._reach(self.state() or self._revive())

    def _revive(self) -> State:
        if self._restarts == RESTARTS:
            raise DeadHostError(
                f"the sandbox '{self.name}' has ended {RESTARTS + 1} times under this command",
                hint="Finished units are kept, and the same command goes on from them. Memory is "
                "the usual reason: try --jobs 1.",
            )
        self.close()
        with alone(self.home):
            if running := self.state():  # by another command
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
