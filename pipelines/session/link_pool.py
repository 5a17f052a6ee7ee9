"""Additional connections of a session, for transfers that one connection does not carry fast."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable

from pipelines.errors import PipelineError
from pipelines.logs import timed
from pipelines.remote import rpc
from pipelines.session.base import ByteStream
from pipelines.session.link import ConnectionLostError, Link

_log = logging.getLogger(__name__)

#: Below this, opening a shell and a Python takes longer than it saves.
WORTH = 32 << 20
#: How many more; each is a shell of the user's quota (30 by default) and a Python there.
MOST = 3
#: Seconds of a round trip from which on each additional link pays.
DISTANT = 0.015
PINGS = 3


class MoreLinks:
    """Links that are opened when a transfer first has use for them, and kept."""

    def __init__(self, name: str, reconnect: Callable[[], ByteStream] | None) -> None:
        self.name = name
        self._reconnect = reconnect
        self._links: dict[int, Link] = {}
        self._refused = False
        self._closed = False
        self._lock = threading.Lock()

    def useful(self, link: Link, size: int) -> int:
        """How many additional links pay for ``size`` bytes, by the latency of ``link``."""
        if self._reconnect is None or self._refused or size < WORTH:
            return 0
        best = min(self._ping(link) for _ in range(PINGS))
        return MOST if best >= DISTANT else 0

    def _ping(self, link: Link) -> float:
        began = time.monotonic()
        link.result(rpc.ping, {})
        return time.monotonic() - began

    def get(self, number: int) -> Link | None:
        """The additional link of this number, made if there is none or it broke.

        ``None`` when the host refuses: it is not asked again in this session.
        """
        with self._lock:
            link = self._links.pop(number, None)
        if link is not None and link.io.failure is not None:
            link.io.kill()
            link = None
        if link is None:
            link = self._open()
        if link is None:
            return None
        with self._lock:
            if not self._closed:
                self._links[number] = link
                return link
        link.close()
        return None

    def _open(self) -> Link | None:
        if self._reconnect is None or self._refused or self._closed:
            return None
        try:
            with timed(_log, logging.DEBUG, "%s: one more connection", self.name):
                return Link(self._reconnect(), self.name)
        except (PipelineError, OSError, ConnectionLostError):
            self._refused = True  # a quota, most likely; the transfer goes on without
            return None

    def close(self) -> None:
        """Close them all; one that is being opened is closed once it is open."""
        with self._lock:
            self._closed = True
            links = list(self._links.values())
            self._links.clear()
        closing = [threading.Thread(target=link.close, daemon=True) for link in links]
        for thread in closing:
            thread.start()
        for thread in closing:
            with contextlib.suppress(RuntimeError):
                thread.join(4.0)
