"""How a machine boots, as far as it can be seen from outside: what it says on COM1, and WinRM."""

from __future__ import annotations

import calendar
import re
import time

from docker.errors import DockerException
from requests.exceptions import RequestException

from pipelines.core.errors import HostError
from pipelines.core.hosttext import line
from pipelines.hosts.base import Events
from pipelines.hosts.engine.box import Box
from pipelines.hosts.engine.containerfiles import read_file
from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.engine.entrance import Entrance, url_of
from pipelines.hosts.vm.machine import KNOWN
from pipelines.session.transports.identify import answers

_SAID = re.compile(rb"WCW-(READY|FAILED) *([^\r\n]*)")
_PIN = re.compile(rb"[0-9a-f]{64}")
_LOG_LINES = 2000
_LOOK = 0.5  # seconds between two looks at a log
_TELL = 10.0  # seconds between two words on how a boot goes
_ADOPTED = 1.0  # seconds that finding a lasting one may take


class Boot:
    """Watches one boot: called again and again, it says how the machine is entered, or not yet."""

    def __init__(self, engine: Engine, events: Events) -> None:
        self._engine = engine
        self._events = events
        self._began = self._told = time.monotonic()
        self._looked = 0.0

    def __call__(self, box: Box) -> Entrance | None:
        """How it is entered, once its guest has said its certificate on COM1 and WinRM has it.

        Raises :class:`HostError` for what the guest says instead.
        """
        now = time.monotonic()
        if now - self._looked < _LOOK and now - self._began > _ADOPTED:
            return None
        self._looked = now
        started = str(box.container.attrs["State"]["StartedAt"])[:19]
        if started.startswith("0001"):
            return None
        since = calendar.timegm(time.strptime(started, "%Y-%m-%dT%H:%M:%S"))
        try:
            log: bytes = box.container.logs(since=since, tail=_LOG_LINES)
        except (DockerException, RequestException):
            return None  # it is asked next why
        word, rest = ([(b"", b""), *_SAID.findall(log)])[-1]  # Windows may have been restarted
        if word == b"FAILED":
            raise HostError(
                f"machine '{box.name}': {line(rest.decode('utf-8', 'replace'))}",
                hint=f"What it has said: docker logs {box.name}",
            )
        pin = _PIN.match(rest)
        if pin is None:
            self._tell("booting", log)
            return None
        url = url_of(box, self._engine)
        if not url or not answers(url, pin[0].decode()):
            self._tell("the guest is ready, its WinRM does not answer yet", b"")
            return None
        known = (read_file(box.container, KNOWN) or b"").decode("utf-8", "replace")
        user, _, password = known.strip().partition(":")
        return Entrance(url, pin[0].decode(), user, password)

    def _tell(self, what: str, log: bytes) -> None:
        now = time.monotonic()
        if now - self._told < _TELL:
            return
        self._told = now
        last = line((log.decode("utf-8", "replace").strip().splitlines() or [""])[-1], 80)
        self._events.step(f"{what}, {now - self._began:.0f} s{': ' if last else ''}{last}")
