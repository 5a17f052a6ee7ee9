"""A session over WinRM with a Windows that may have no Python yet, or not the pinned one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from pipelines.errors import HostError
from pipelines.hosts.base import Events
from pipelines.hosts.windows import FIRST_PYTHON, firstpython
from pipelines.logs import timed
from pipelines.session.base import Session
from pipelines.session.channel import over_winrs
from pipelines.session.transports.endpoint import Endpoint
from pipelines.session.transports.winrs_errors import NoProgramError
from pipelines.toolchain.lock import Cache

_log = logging.getLogger(__name__)


def with_python(
    endpoint: Endpoint,
    cache: Callable[[], Cache],
    events: Events,
    *,
    name: str,
    python: str = FIRST_PYTHON,
    again: Callable[[], Endpoint] | None = None,
) -> Session:
    """A session by the pinned Python, which is put there if it is missing or another one.

    Raises what :func:`pipelines.hosts.windows.firstpython.install_python` does.
    """
    target = python.rpartition("\\")[0]
    try:
        session = over_winrs(endpoint, python, name, again=again)
    except HostError as error:
        if not _never_started(error):
            raise
    else:
        try:
            outdated = firstpython.is_outdated(session, cache(), target=target)
        except BaseException:
            session.close()
            raise
        if not outdated:
            return session
        session.close()  # its Python is in the way
    events.step(f"Python for {target}")
    with events.bars() as bars:
        progress = partial(bars, "send Python")
        with timed(_log, logging.INFO, "%s: install Python", name):
            firstpython.install_python(endpoint, cache(), target=target, progress=progress)
    return over_winrs(endpoint, python, name, again=again)


def _never_started(error: HostError) -> bool:
    """Whether the host was reached and had no such program: cmd, or WinRS itself, said so."""
    return isinstance(error, NoProgramError) or isinstance(error.__cause__, EOFError)
