"""How a machine boots, as observed from outside: its COM1 output and WinRM."""

from __future__ import annotations

import calendar
import re
import time

from docker.errors import DockerException
from requests.exceptions import RequestException

from pipelines.core.errors import HostError
from pipelines.core.hosttext import line
from pipelines.hosts.base import Events
from pipelines.hosts.engine.connection_info import ConnectionInfo, url_of
from pipelines.hosts.engine.container import ManagedContainer
from pipelines.hosts.engine.containerfiles import read_file
from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.vm.machine import KNOWN
from pipelines.session.transports.identify import answers

_SAID = re.compile(rb"WCW-(READY|FAILED) *([^\r\n]*)")
_PIN = re.compile(rb"[0-9a-f]{64}")
_LOG_LINES = 2000
_LOOK = 0.5  # seconds between two checks of a log
_TELL = 10.0  # seconds between two progress reports
_ADOPTED = 1.0  # seconds that finding a persistent one may take


class Boot:
    """Watches one boot: called repeatedly, returns how to connect, or not yet."""

    def __init__(self, engine: Engine, events: Events) -> None:
        self._engine = engine
        self._events = events
        self._began = self._told = time.monotonic()
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
                f"machine '{managed.name}': {line(rest.decode('utf-8', 'replace'))}",
                hint=f"Its output: docker logs {managed.name}",
            )
        pin = _PIN.match(rest)
        if pin is None:
            self._report("booting", log)
            return None
        url = url_of(managed, self._engine)
        if not url or not answers(url, pin[0].decode()):
            self._report("the guest is ready, its WinRM does not answer yet", b"")
            return None
        known = (read_file(managed.container, KNOWN) or b"").decode("utf-8", "replace")
        user, _, password = known.strip().partition(":")
        return ConnectionInfo(url, pin[0].decode(), user, password)

    def _report(self, what: str, log: bytes) -> None:
        now = time.monotonic()
        if now - self._told < _TELL:
            return
        self._told = now
        last = line((log.decode("utf-8", "replace").strip().splitlines() or [""])[-1], 80)
        self._events.step(f"{what}, {now - self._began:.0f} s{': ' if last else ''}{last}")
