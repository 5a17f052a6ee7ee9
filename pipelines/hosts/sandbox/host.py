"""The sandbox as a host: made when it is missing, started when it is down, reached over WinRM.

``HOME/prefix`` is the Windows, ``HOME/run`` what a running one needs. Who changes either holds the
lock beside HOME, so that two commands at once make and start one sandbox between them.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pipelines.errors import ConfigError, HostError
from pipelines.evidence import Evidence
from pipelines.hosts.base import Capabilities, Host, Lifecycle, Opening
from pipelines.hosts.sandbox import image
from pipelines.hosts.sandbox.config import SandboxHost
from pipelines.hosts.sandbox.state import State, published
from pipelines.hosts.sandbox.wine import Prefix, find_wine
from pipelines.logs import timed
from pipelines.paths import PACKAGE, home
from pipelines.session.base import Session
from pipelines.session.channel import over_winrs
from pipelines.session.transports.endpoint import Endpoint

_log = logging.getLogger(__name__)

_START_TIMEOUT = 60.0
_STOP_TIMEOUT = 30.0


@dataclass(frozen=True)
class Secret:
    """A password that does not show in a repr."""

    _value: str

    def get_secret_value(self) -> str:
        """The password itself."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"


class Sandbox(Host):
    """One sandbox; implements :class:`pipelines.hosts.base.Host`."""

    capabilities = Capabilities(
        windows=True, msvc=False, gpu=False, publishable=False, emulated=True
    )
    evidence = Evidence.BINARIES

    def __init__(self, name: str, config: SandboxHost, given: Opening) -> None:
        """Raises :class:`ConfigError` for a Python of which the lock has no headers."""
        cache, python = given.cache, given.python
        entries = cache.lock.tools
        pythons = {tool.python: None for tool in entries.values() if tool.python}
        known = [other for other in pythons if image.headers_of(other) in entries]
        if python not in known:
            raise ConfigError(
                f"a sandbox has Python {' or '.join(known)}, not {python}",
                advice=f"Type: --python {known[0]}, or build on another host.",
            )
        self.name = name
        self.config = config
        self.python = python
        self.executable = rf"C:\Python{python.replace('.', '')}\python.exe"
        self.tools = image.tools(python)
        self.cache = cache
        self.events = given.events
        self.remember = given.remember
        base = Path(config.home) if config.home else Path(".sandbox") / name
        self.home = (home() / base).with_name(f"{base.name}-py{python}")
        self._tied: subprocess.Popen[bytes] | None = None

    @property
    def run(self) -> Path:
        """The directory of a running sandbox's state."""
        return self.home / "run"

    # -- state ---------------------------------------------------------------------------------

    def state(self) -> State | None:
        """What the running service published, or ``None`` when none runs."""
        return published(self.run)

    def status(self) -> str:
        """``absent``, ``broken`` (half-made, outdated or crashed), ``stopped`` or ``running``."""
        if self.state():
            return "running"
        if not self.home.exists():
            return "absent"
        whole = (self.home / "prefix" / image.SEAL).is_file()
        return "stopped" if whole and not (self.run / "in-use").exists() else "broken"

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
        if state is None:
            return ""
        return f"process {state['pid']}: {state['https']} and {state['http']}"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.home.parent.mkdir(parents=True, exist_ok=True)
        with (self.home.parent / f".{self.home.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    # -- life ----------------------------------------------------------------------------------

    def make(self) -> None:
        """Fetch, make the image and copy it, each only if that has not been done."""
        with self._locked():
            self._make()

    def _make(self) -> None:
        status = self.status()
        if status in ("running", "stopped"):
            return
        if status == "broken":
            self.events.step("the sandbox is half-made or has crashed: making it anew")
            Prefix(self.home / "prefix").halt()
            shutil.rmtree(self.home)
        if self.cache.missing(self.tools):
            self.events.step("fetching")
        with self.events.bars() as bars:
            self.cache.fetch_all(self.tools, bars)
        made = image.make_image(self.cache, self.python, self.events.step)
        self.events.step("copying the image")
        image.copy_image(made, self.home / "prefix")

    def start(self, *, tied: bool) -> State:
        """Start the service unless it runs; ``tied`` makes it end with this process."""
        with self._locked():
            if running := self.state():
                return running
            self._make()
            self.run.mkdir(mode=0o700, exist_ok=True)
            self.events.step("starting Windows and WinRM")
            arguments = [sys.executable, "-m", "pipelines.hosts.sandbox.daemon", str(self.home)]
            arguments += ["--http-port", str(self.config.http_port)]
            arguments += ["--https-port", str(self.config.https_port)]
            log = (self.run / "daemon.log").open("w+b")
            process = subprocess.Popen(
                [*arguments, *(["--tied"] if tied else [])],
                cwd=PACKAGE.parent,
                stdin=subprocess.PIPE if tied else subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches the controller, which says goodbye first
            )
            try:
                importlib.import_module("winrm.protocol")  # 0.25 s that the start takes anyway
                with timed(_log, logging.INFO, "%s: start, process %d", self.name, process.pid):
                    state = self._await(process, log)
            except BaseException:
                process.terminate()
                process.wait(_STOP_TIMEOUT)
                raise
            finally:
                log.close()
            if tied:
                self._tied = process
            return state

    def _await(self, process: subprocess.Popen[bytes], log: IO[bytes]) -> State:
        deadline = time.monotonic() + _START_TIMEOUT
        while time.monotonic() < deadline:
            if state := self.state():
                return state
            if process.poll() is not None:
                break
            time.sleep(0.01)
        log.seek(0)
        text = log.read().decode("utf-8", "replace").strip()
        try:
            report = json.loads(text.splitlines()[-1])
            message, advice = report["error"], report["advice"]
        except (ValueError, IndexError, KeyError, TypeError):
            message, advice = text[-1500:] or "no message", "invoke sandbox.teardown, then again"
        raise HostError(f"the sandbox '{self.name}' did not start: {message}", advice=advice)

    def stop(self) -> bool:
        """Stop the service and every Windows process; whether one was running."""
        state = self.state()
        if state is None:
            return False
        _log.info("%s: stop, process %d", self.name, state["pid"])
        os.kill(state["pid"], signal.SIGTERM)
        deadline = time.monotonic() + _STOP_TIMEOUT
        while Path(f"/proc/{state['pid']}").exists() and time.monotonic() < deadline:
            if self._tied:
                self._tied.poll()  # reap it, or it stays in /proc
            time.sleep(0.02)
        return True

    def teardown(self) -> None:
        """Stop it and remove its files; images and downloads stay in the cache."""
        self.stop()
        with self._locked():
            if self.home.exists():
                Prefix(self.home / "prefix").halt() if (self.home / "prefix").is_dir() else None
                shutil.rmtree(self.home)

    # -- the host protocol -----------------------------------------------------------------------

    def endpoint(self, state: State) -> Endpoint:
        """Where and as whom to sign in; the certificate made for this sandbox is verified."""
        _, user, password = (self.run / "credentials").read_text().strip().split(":", 2)
        return Endpoint(
            url=state[self.config.listener],
            username=user,
            password=Secret(self.remember(password)),
            ca=self.run / "cert.pem" if self.config.listener == "https" else None,
            message_encryption="always" if self.config.listener == "http" else "auto",
        )

    def emulator(self) -> str:
        """The version of Wine here; :class:`SetupError` when it is missing."""
        return find_wine().version

    def connect(self) -> Session:
        """Start the sandbox if need be and open a session."""
        state = self.state() or self.start(tied=True)
        return over_winrs(self.endpoint(state), self.executable, self.name)

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
