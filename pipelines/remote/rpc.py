"""Serves the controller's calls: finds the function, runs it, sends back the result.

Every channel is a separate worker that handles one request after another, so that a session can
follow a log on one and call functions on another. Requests are tuples ``(function, arguments,
window)``; replies are tuples that start with one of the words below. Everything else sent to the
host (credits for streams, chunks of an upload) is not a tuple: leftovers of a request that ended
early are discarded before the next one.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import inspect
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterator
from typing import Any, NoReturn, Protocol, TypedDict, TypeVar

from . import awake

ITEM, ACK, DONE, ERROR = "item", "ack", "done", "error"

#: How long running functions may take to clean up after the controller has disconnected.
FAREWELL = 2.0

Function = TypeVar("Function", bound=Callable[..., object])


class Channel(Protocol):
    """The parts of execnet's channel used on a host."""

    def send(self, item: object) -> None:
        """Send one message of builtins; ``OSError`` if the other side is gone."""

    def receive(self) -> Any:
        """The next message; ``EOFError`` if there are no more."""

    def __iter__(self) -> Iterator[object]:
        """Iterate over the messages until the other side closes."""


class Failure(TypedDict):
    """An exception, as builtins."""

    kind: str
    """The name of its class."""
    message: str
    trace: str
    errno: int | None
    errno_name: str
    """Such as ``ENOSPC``; empty if there is no number."""
    winerror: int | None
    path: str | None


def idempotent(function: Function) -> Function:
    """Mark a function that may be run again if the connection broke during the first run."""
    function.__dict__["idempotent"] = True
    return function


def fed(function: Function) -> Function:
    """Mark a function that takes an upload: its argument ``chunks`` iterates over the pieces."""
    function.__dict__["fed"] = True
    return function


class Feed:
    """The pieces of an upload; each is acknowledged when the next is requested (backpressure).

    The sender hashes while sending, so the sha256 comes last: ``digest``, once all pieces have
    been read.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.digest = ""

    def __iter__(self) -> Iterator[bytes]:
        while True:
            try:
                chunk = self.channel.receive()
            except EOFError:
                raise ConnectionAbortedError("the sender disconnected during the upload") from None
            if isinstance(chunk, str):
                self.digest = chunk
                return
            yield chunk
            self.channel.send((ACK, len(chunk)))


def resolve(name: str) -> Callable[..., object]:
    """The public function ``name`` ("files.stat") of this package; nothing else is accessible."""
    module_name, _, function_name = name.rpartition(".")
    parts = [*module_name.split("."), function_name]
    if not all(part.isidentifier() and not part.startswith("_") for part in parts):
        raise LookupError(f"{name!r} is not the name of a remote function (module.function)")
    module = importlib.import_module(f"{__package__}.{module_name}")
    function: Callable[..., object] | None = getattr(module, function_name, None)
    if not inspect.isfunction(function) or function.__module__ != module.__name__:
        raise LookupError(f"module {module_name!r} defines no function {function_name!r}")
    return function


def name_of(function: Callable[..., object]) -> str:
    """The name of a function of this package in requests: "files.stat"."""
    package = __package__ or ""
    return f"{function.__module__.removeprefix(package + '.')}.{function.__name__}"


def is_idempotent(function: Callable[..., object]) -> bool:
    """Whether the function may be run again after a broken connection."""
    return bool(function.__dict__.get("idempotent", False))


@idempotent
def ping() -> float:
    """Show that the host responds: its clock."""
    return time.time()


def describe(error: BaseException) -> Failure:
    """The controller's description of an exception, as builtins."""
    number = getattr(error, "errno", None)
    filename = getattr(error, "filename", None)
    return {
        "kind": type(error).__name__,
        "message": str(error) or type(error).__name__,
        "trace": "".join(traceback.format_exception(type(error), error, error.__traceback__)),
        "errno": number if isinstance(number, int) else None,
        "errno_name": errno.errorcode.get(number, "") if isinstance(number, int) else "",
        "winerror": getattr(error, "winerror", None),
        "path": None if filename is None else str(filename),
    }


def _send_items(
    channel: Channel, items: Generator[object, NoReturn, object], window: int
) -> object:
    """Send the items of a generator, at most ``window`` items ahead of the reader."""
    credit = window
    with contextlib.closing(items):
        while True:
            try:
                item = next(items)
            except StopIteration as end:
                return end.value
            while credit <= 0:
                credit += channel.receive()
            channel.send((ITEM, item))
            credit -= 1


def answer(channel: Channel, name: str, arguments: dict[str, object], window: int) -> None:
    """Run one request; its outcome is sent back over the channel."""
    try:
        function = resolve(name)
        if getattr(function, "fed", False):
            arguments = {"chunks": Feed(channel), **arguments}
        result: Any = function(**arguments)
        if inspect.isgenerator(result):
            result = _send_items(channel, result, window)
        channel.send((DONE, result))
    except BaseException as error:  # noqa: BLE001, RUF100 - every outcome belongs to the controller
        with contextlib.suppress(OSError):  # the controller is gone
            channel.send((ERROR, describe(error)))


def work(channel: Channel) -> None:
    """Handle the requests of one channel, one after the other."""
    for request in channel:
        if isinstance(request, tuple):
            answer(channel, *request)


def serve(channel: Channel) -> None:
    """Start a worker for every channel the controller opens; returns when it disconnects."""
    awake.begin()  # this thread lives as long as installers, transfers and tests need it
    workers: list[threading.Thread] = []
    for opened in channel:
        workers = [worker for worker in workers if worker.is_alive()]
        workers.append(threading.Thread(target=work, args=(opened,), daemon=True))
        workers[-1].start()
        del opened
    deadline = awake.seconds() + FAREWELL
    for worker in workers:
        worker.join(max(0.0, deadline - awake.seconds()))
