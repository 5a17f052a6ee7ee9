"""A session with a host: calls, streams and files over one connection that reconnects if lost.

After a loss only calls of functions marked with ``remote.rpc.idempotent`` are repeated.
Everything else raises ``HostError``, and the next use of the session reconnects.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from pipelines.core.errors import AuthError, HostError
from pipelines.core.logs import log_duration
from pipelines.remote.rpc import is_idempotent, name_of
from pipelines.session import transfers
from pipelines.session.base import ByteStream, DeadHostError, Given, Item, Progress, Result, Session
from pipelines.session.bootstrap import bootstrap_command
from pipelines.session.link import PATIENCE, ConnectionLostError, Link
from pipelines.session.transports.endpoint import Endpoint
from pipelines.session.transports.winrs import WinRSStream

__all__ = ["ChannelSession", "bootstrap_command", "open_session"]

_log = logging.getLogger(__name__)

#: Delays in seconds before each attempt to reconnect.
PAUSES = (0.2, 1.0, 3.0, 6.0, 12.0)

Reconnect = Callable[[], ByteStream]


def open_session(
    stream: ByteStream,
    *,
    name: str,
    reconnect: Reconnect | None = None,
    pauses: tuple[float, ...] = PAUSES,
    patience: float = PATIENCE,
) -> ChannelSession:
    """Open a session over ``stream``; ``reconnect`` makes a new stream when that one breaks.

    ``patience``: seconds that the host's Python may take to start.
    """
    with log_duration(_log, logging.INFO, "%s: connect", name):
        link = Link(stream, name, patience=patience)
    return ChannelSession(link, reconnect=reconnect, pauses=pauses, patience=patience)


class ChannelSession:
    """A live connection to a host, see :class:`pipelines.session.base.Session`.

    Threads may share a session: requests are multiplexed over the one connection.
    """

    def __init__(
        self,
        link: Link,
        *,
        reconnect: Reconnect | None,
        pauses: tuple[float, ...] = PAUSES,
        patience: float = PATIENCE,
    ) -> None:
        self.name = link.name
        self._current = link
        self._reconnect = reconnect
        self._pauses = pauses
        self._patience = patience
        self._lock = threading.Lock()
        self._closed = False
        self._transfers = transfers.Connection(self.name, self._link)

    def _link(self) -> Link:
        """The connection, reopened if the last one broke."""
        with self._lock:
            if self._closed:
                raise HostError(f"{self.name}: the session is closed")
            failure = self._current.io.failure
            if failure is None:
                return self._current
            self._current.io.kill()
            if self._reconnect is None:
                raise HostError(
                    f"{self.name}: the connection was lost: {failure}",
                    hint="Run the same command again to continue.",
                )
            problem: BaseException = failure
            _log.info("%s: the connection was lost: %s", self.name, failure)
            for pause in self._pauses:
                time.sleep(pause)
                try:
                    with log_duration(_log, logging.INFO, "%s: reconnect", self.name):
                        self._current = Link(self._reconnect(), self.name, patience=self._patience)
                except (AuthError, DeadHostError):
                    raise
                except (HostError, OSError) as error:
                    problem = error
                else:
                    return self._current
            raise HostError(
                f"{self.name}: the connection was lost ({failure}) and could not be restored in "
                f"{len(self._pauses)} attempts: {problem}",
                hint="Check that the host is up, then run the same command again to continue.",
            ) from problem

    def _lost(self, what: str, error: ConnectionLostError) -> HostError:
        return HostError(
            f"{self.name}: connection lost during {what}: {error}",
            hint="Run the same command again to continue.",
        )

    def call(
        self, function: Callable[Given, Result], /, *args: Given.args, **arguments: Given.kwargs
    ) -> Result:
        """Run a remote function; retried after a broken connection if it is idempotent."""
        _by_keyword(function, args)
        try:
            return self._result(function, arguments)
        except ConnectionLostError as error:
            lost = self._lost(name_of(function), error)
            lost.__cause__ = error
        if self._reconnect is not None and is_idempotent(function):
            with contextlib.suppress(ConnectionLostError):  # the first one is reported
                return self._result(function, arguments)
        raise lost

    def _result(self, function: Callable[..., Result], arguments: Mapping[str, object]) -> Result:
        link = self._link()
        with log_duration(_log, logging.DEBUG, "%s: %s", self.name, name_of(function)):
            return link.result(function, arguments)

    def stream(
        self,
        function: Callable[Given, Iterator[Item]],
        /,
        *args: Given.args,
        **arguments: Given.kwargs,
    ) -> Iterator[Item]:
        """Run a remote generator function: yields its items as they arrive, with little read-ahead.

        Leaving the loop early ends the function at its next item.
        """
        _by_keyword(function, args)
        return self._progress(name_of(function), self._link().exchange(function, arguments))

    def _progress(self, what: str, items: Generator[Item, None, object]) -> Iterator[Item]:
        try:
            with log_duration(_log, logging.DEBUG, "%s: %s, streamed", self.name, what):
                yield from items
        except ConnectionLostError as error:
            raise self._lost(what, error) from error

    def put(self, source: Path, target: str, *, progress: Progress | None = None) -> str:
        """Send a file; it lands under ``target`` by rename once the host's sha256 agrees.

        A lost connection is reopened; received data is kept, also for the next command.
        """
        size = source.stat().st_size if source.is_file() else 0
        with log_duration(
            _log, logging.INFO, "%s: sent %s, %d bytes", self.name, source.name, size
        ):
            return transfers.put(self._transfers, source, target, progress)

    def get(self, source: str, target: Path, *, progress: Progress | None = None) -> str:
        """Fetch a file; it lands under ``target`` by rename once both sha256 agree.

        A lost connection is reopened; received data is kept, also for the next command.
        """
        with log_duration(_log, logging.INFO, "%s: fetched %s", self.name, target.name):
            return transfers.get(self._transfers, source, target, progress)

    def close(self) -> None:
        """Close the session; the host's Python ends. Safe to repeat."""
        if not self._closed:
            self._closed = True
            self._current.close()
            _log.info("%s: the session is closed", self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _by_keyword(function: Callable[..., object], args: Sequence[object]) -> None:
    """Arguments are passed by name; a positional argument is a bug in the caller."""
    if args:
        raise TypeError(f"{name_of(function)}: arguments are passed by keyword")


def over_winrs(
    endpoint: Endpoint, python: str, name: str, *, again: Callable[[], Endpoint] | None = None
) -> Session:
    """Start ``python`` (a path on the host) over WinRS and open a session with it.

    A lost connection is replaced with a fresh shell, at the address ``again`` returns, by default
    the same one. Raises ``AuthError`` or ``HostError``; a ``DeadHostError`` from ``again`` ends the
    attempts.
    """
    # cmd /c mangles a quoted path next to other quotes, so such a program is started without cmd.
    direct = " " in python

    def stream(place: Endpoint) -> WinRSStream:
        return WinRSStream(place, bootstrap_command(python), skip_cmd_shell=direct)

    def reconnect() -> WinRSStream:
        return stream(endpoint if again is None else again())

    return open_session(
        stream(endpoint), name=name, reconnect=reconnect, patience=endpoint.patience
    )
