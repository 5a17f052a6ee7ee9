"""Hosts that fail on demand, behind our WinRM service, as pytest fixtures.

``conftest.py`` offers the fixtures ``host``, ``new_host`` and ``clock`` to the modules here. The
client, the protocol and what runs there are the real ones; Windows is not: programs are this
machine's, and what a restart or a quota kills are their processes.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hooked import DropConnectionError, hooked
from winrm_programs import PASSWORD, USER, launch

from pipelines.hosts.sandbox.wsman import shells
from pipelines.hosts.sandbox.wsman.auth import write_credentials
from pipelines.hosts.sandbox.wsman.certificate import create_certificate
from pipelines.hosts.sandbox.wsman.commands import TAG
from pipelines.hosts.sandbox.wsman.faults import WsmanFaultError
from pipelines.hosts.sandbox.wsman.server import WsmanServer
from pipelines.session.base import Session
from pipelines.session.channel import bootstrap_command, open_session
from pipelines.session.transports.endpoint import Endpoint
from pipelines.session.transports.winrs import WinRSStream

_MARK = "SIMULATED_HOST"
_STREAM = re.compile(rb'(<rsp:Stream Name="stdout"[^>]*>)([A-Za-z0-9+/=]{100000,})(<)')

Effect = Callable[[bytes], bytes | None]


class Secret:
    """A password that may be another one the next time."""

    def __init__(self, value: str) -> None:
        self.value = value

    def get_secret_value(self) -> str:
        return self.value


def reset(sent: int = 0) -> Effect:
    """Cut the connection with RST after ``sent`` bytes of the answer."""

    def effect(_: bytes) -> bytes | None:
        raise DropConnectionError(sent=sent, reset=True)

    return effect


def hang_up(_: bytes) -> bytes | None:
    """Close the connection without an answer."""
    return None


def slow(seconds: float) -> Effect:
    """Answer late."""

    def effect(body: bytes) -> bytes | None:
        time.sleep(seconds)
        return body

    return effect


def flip(body: bytes) -> bytes | None:
    """Change one byte in the middle of a large piece of output."""

    def changed(found: re.Match[bytes]) -> bytes:
        data = bytearray(base64.b64decode(found[2]))
        data[len(data) // 2] ^= 0x01
        return found[1] + base64.b64encode(data) + found[3]

    return _STREAM.sub(changed, body, count=1)


def refuse(code: int, subcode: str = "InternalError") -> Effect:
    """Answer with a fault instead of doing what was asked."""

    def effect(_: bytes) -> bytes | None:
        raise WsmanFaultError(code, subcode, "as the test wants it")

    return effect


@dataclass
class Planned:
    """One fault: which requests it hits, after how many of them, how often."""

    action: str
    effect: Effect
    before: bool
    skip: int
    times: int


class Faults:
    """The hooks of a server; faults are planned and used up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._planned: list[Planned] = []
        self.hits = 0

    def plan(self, action: str, effect: Effect, *, skip: int = 0, times: int = 1) -> None:
        """Hit the next ``times`` requests of ``action`` ("Send"), after leaving out ``skip``.

        Faults that say no do it before anything is done; the others change the answer.
        """
        before = effect.__qualname__.startswith("refuse")
        with self._lock:
            self._planned.append(Planned(action, effect, before, skip, times))

    def _due(self, action: str, *, before: bool) -> Effect | None:
        with self._lock:
            for planned in self._planned:
                if planned.before != before or not action.endswith(planned.action):
                    continue
                if planned.skip:
                    planned.skip -= 1
                    return None
                planned.times -= 1
                if not planned.times:
                    self._planned.remove(planned)
                self.hits += 1
                return planned.effect
        return None

    def before_request(self, action: str) -> None:
        if effect := self._due(action, before=True):
            effect(b"")

    def before_response(self, action: str, body: bytes) -> bytes | None:
        effect = self._due(action, before=False)
        return effect(body) if effect else body


class Clock:
    """The clock that shells and their quotas live by; it can be put forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


class SimulatedHost:
    """A host that can be restarted, switched off, filled, and given another password or face."""

    def __init__(self, place: Path, *, secure: bool = False, **server: Any) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self.place = place
        self.secure = secure
        self.options = server
        self.faults = Faults()
        self.secret = Secret(PASSWORD)
        self.users = write_credentials(place / "users", USER, PASSWORD)
        self.boots = self.killed = 0
        self.delay = 0.0
        self._ports = (0, 0)
        self._server: WsmanServer | None = None
        if secure:
            self.new_identity()
        self.start()

    def new_identity(self, **validity: Any) -> None:
        """Another certificate, from the next start on; clients trust the first one."""
        place = self.place
        create_certificate(place / "cert.pem", place / "key.pem", **validity)
        if not (place / "trusted.pem").exists():
            (place / "trusted.pem").write_bytes((place / "cert.pem").read_bytes())

    def start(self) -> None:
        self.boots += 1
        options = dict(self.options)
        if self.secure:
            options |= {"certificate": self.place / "cert.pem", "key": self.place / "key.pem"}
        self._server = WsmanServer(
            self._launch,
            self.users,
            http_port=self._ports[0],
            https_port=self._ports[1],
            service=hooked(self.faults),
            **options,
        )
        urls = (self._server.http_url, self._server.https_url or ":0/")
        self._ports = tuple(int(u.rpartition(":")[2].partition("/")[0]) for u in urls)  # type: ignore[assignment]

    def stop(self) -> None:
        """Switch it off: whatever runs there is gone."""
        if self._server is not None:
            self._server.stop()
            self._server = None
        self.kill(f"{_MARK}={self.place}")

    def reboot(self, down: float = 0.2) -> None:
        self.stop()
        time.sleep(down)
        self.start()

    def kill_shells(self) -> None:
        """What WinRM does when a shell passes its memory quota."""
        self.kill(TAG)

    def kill_jobs(self) -> None:
        """End what outlives shells, and only that."""
        self.kill(TAG, having=False)

    def kill(self, mark: str, *, having: bool = True) -> None:
        """End this host's processes with, or without, ``mark`` in their environment."""
        own, wanted = f"{_MARK}={self.place}".encode(), mark.encode()
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                variables = (entry / "environ").read_bytes().split(b"\0")
                if own in variables and any(v.startswith(wanted) for v in variables) == having:
                    os.kill(int(entry.name), signal.SIGKILL)
                    self.killed += 1

    def shells(self) -> set[str]:
        """The ids of the shells that are open."""
        return set(self._server.shells._shells) if self._server else set()

    def wake(self) -> None:
        """Let the server look at its clock again: it sleeps until the next shell is due."""
        if self._server:
            with self._server.shells._changed:
                self._server.shells._changed.notify_all()

    def rotate_password(self, password: str) -> None:
        """The next sign-in wants another password; clients do not know it."""
        write_credentials(self.users, USER, password)

    def endpoint(self, **options: Any) -> Endpoint:
        index = 1 if self.secure else 0
        url = f"{'https' if self.secure else 'http'}://127.0.0.1:{self._ports[index]}/wsman"
        ca = self.place / "trusted.pem" if self.secure else None
        limits = {"operation_timeout": 2, "read_timeout": 6}
        return Endpoint(url, USER, self.secret, ca=ca, **limits | options)

    def stream(self, **options: Any) -> WinRSStream:
        return WinRSStream(self.endpoint(**options), bootstrap_command(sys.executable))

    def session(self, pauses: tuple[float, ...] = (0.05, 0.2, 0.5, 1.0), **options: Any) -> Session:
        """As the adapter of WinRM hosts opens one, but less patient."""
        return open_session(
            self.stream(**options),
            name="simulated",
            reconnect=lambda: self.stream(**options),
            pauses=pauses,
        )

    def _launch(self, command_line: str, /, **options: Any) -> subprocess.Popen[bytes]:
        line = f"sh -c {shlex.quote(f'sleep {self.delay}; exec {command_line}')}"
        path = f"{self.place}:{os.environ['PATH']}"
        env = {**options["env"], _MARK: str(self.place), "PATH": path}
        return launch(line, **options | {"env": env, "cwd": str(self.place)})


@pytest.fixture
def new_host(tmp_path: Path) -> Iterator[Callable[..., SimulatedHost]]:
    """Make hosts; they are switched off at the end."""
    made: list[SimulatedHost] = []

    def make(**options: Any) -> SimulatedHost:
        made.append(SimulatedHost(tmp_path / f"host-{len(made)}", **options))
        return made[-1]

    yield make
    for host in made:
        host.stop()


@pytest.fixture
def host(new_host: Callable[..., SimulatedHost]) -> SimulatedHost:
    """One host with Windows' own limits."""
    return new_host()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Put the clock of shells forward instead of waiting for eight hours."""
    made = Clock()
    monkeypatch.setattr(shells, "time", made)
    return made
