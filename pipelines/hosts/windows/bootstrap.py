"""A session over WinRM with a Windows that may have no Python yet, or not the pinned one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from pipelines.core.logs import timed
from pipelines.hosts.base import Events
from pipelines.hosts.windows import FIRST_PYTHON, firstpython
from pipelines.session.base import Session
from pipelines.session.channel import over_winrs
from pipelines.session.transports.endpoint import Endpoint
from pipelines.toolchain.lock import Cache

_log = logging.getLogger(__name__)


def connect_with_python(
    endpoint: Endpoint,
    cache: Cache,
    events: Events,
    *,
    name: str,
    python: str = FIRST_PYTHON,
    again: Callable[[], Endpoint] | None = None,
    fresh: bool = False,
) -> Session:
    """A session by the pinned Python, which is put there if it is missing or another one.

    ``fresh``: put it there in any case. Raises what
    :func:`pipelines.hosts.windows.firstpython.install_python` does.
    """
    target = python.rpartition("\\")[0]
    if fresh or not firstpython.is_there(endpoint, cache, target=target):
        events.step(f"Python for {target}")
        with events.bars() as bars, timed(_log, logging.INFO, "%s: install Python", name):
            progress = partial(bars, "send Python")
            firstpython.install_python(
                endpoint, cache, target=target, progress=progress, fresh=fresh
            )
    return over_winrs(endpoint, python, name, again=again)
