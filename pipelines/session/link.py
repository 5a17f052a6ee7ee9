"""One connection to a host: execnet channels with a worker at the far end of each.

The far side of the protocol is :mod:`pipelines.remote.rpc`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import cast

from execnet import Channel, gateway_base

from pipelines.remote.rpc import DONE, ERROR, name_of
from pipelines.session.base import ByteStream, Item, Result, raise_remote
from pipelines.session.bootstrap import open_gateway

#: Most items of a stream in flight.
WINDOW = 8
#: Seconds that the host's Python may take to end by itself.
FAREWELL = 0.4
#: Seconds that the host's Python may take to start and report it.
PATIENCE = 60.0


class ConnectionLostError(Exception):
    """The connection broke; whether the host carried out the request is unknown."""


class Worker:
    """A channel and, on the host, a thread that handles its requests one after the other."""

    def __init__(self, link: Link, channel: Channel) -> None:
        self.link = link
        self.channel = channel
        self.finished = False

    def send(self, item: object) -> None:
        """Send one message to the host, or raise :class:`ConnectionLostError`."""
        try:
            self.channel.send(item)
        except OSError as error:
            raise self.link.lost(error) from error

    def receive(self) -> tuple[str, object]:
        """The next reply; an error reply is raised."""
        while True:
            try:
                # Bounded, or Ctrl-C would wait for the reply on Windows.
                word, value = self.channel.receive(timeout=1.0)
            except gateway_base.TimeoutError:
                continue
            except (EOFError, OSError, gateway_base.RemoteError) as error:
                raise self.link.lost(error) from error
            if word in (DONE, ERROR):
                self.finished = True
            if word == ERROR:
                raise_remote(self.link.name, value)
            return word, value

    def abandon(self) -> None:
        """Close the channel: a function at the far end stops when it next sends or reads."""
        if self.link.io.failure is None:
            with contextlib.suppress(OSError):
                self.channel.close()


class Link:
    """A gateway, the reason if it is broken, and idle workers."""

    def __init__(self, stream: ByteStream, name: str, *, patience: float = PATIENCE) -> None:
        self.name = name
        self.gateway, self.dispatcher, self.io = open_gateway(stream, name=name, patience=patience)
        self.idle: list[Worker] = []

    @contextlib.contextmanager
    def request(
        self, function: Callable[..., object], arguments: Mapping[str, object], window: int = WINDOW
    ) -> Iterator[Worker]:
        """Send a request to a worker; it is reused once its last reply was read."""
        try:
            worker = self.idle.pop()
            worker.finished = False
        except IndexError:
            worker = Worker(self, self._open())
        try:
            worker.send((name_of(function), dict(arguments), window))
            yield worker
        finally:
            if worker.finished:
                self.idle.append(worker)
            else:
                worker.abandon()

    def _open(self) -> Channel:
        try:
            channel = self.gateway.newchannel()
            self.dispatcher.send(channel)
        except OSError as error:
            raise self.lost(error) from error
        return channel

    def exchange(
        self,
        function: Callable[..., Iterator[Item]],
        arguments: Mapping[str, object],
        window: int = WINDOW,
    ) -> Generator[Item, None, object]:
        """One request: yields the items of a stream, granting more credit; returns the result."""
        return cast("Generator[Item, None, object]", self._replies(function, arguments, window))

    def _replies(
        self, function: Callable[..., object], arguments: Mapping[str, object], window: int = WINDOW
    ) -> Generator[object, None, object]:
        with self.request(function, arguments, window) as worker:
            used = 0
            while True:
                word, value = worker.receive()
                if word == DONE:
                    return value
                yield value
                used += 1
                if used == window // 2:
                    worker.send(used)
                    used = 0

    def result(self, function: Callable[..., Result], arguments: Mapping[str, object]) -> Result:
        """One request that yields nothing: its result."""
        with contextlib.closing(self._replies(function, arguments)) as replies:
            try:
                next(replies)
            except StopIteration as end:
                return cast("Result", end.value)
        raise TypeError(f"{name_of(function)} yields items: use stream()")

    def lost(self, error: BaseException) -> ConnectionLostError:
        """Mark the connection as broken; the first reason is the one reported."""
        if self.io.failure is None:
            self.io.failure = EOFError(str(error) or "the host's Python ended")
        return ConnectionLostError(str(self.io.failure))

    def close(self) -> None:
        """Let the host's Python end by itself for a moment, then kill it."""
        if self.io.failure is None:
            # In its own thread: this can wait a long time for a host that vanished.
            goodbye = threading.Thread(target=self._leave, daemon=True)
            goodbye.start()
            goodbye.join(FAREWELL + 0.1)
        self.io.kill()

    def _leave(self) -> None:
        with contextlib.suppress(OSError):
            self.io.close_write()
            # The receiver thread of execnet ends when the host's Python does.
            self.gateway.join(timeout=FAREWELL)
