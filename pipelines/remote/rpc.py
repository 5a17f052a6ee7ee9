"""Serves the controller's calls: finds the function, runs it, sends back what came of it.

Every channel is a worker of its own that handles one request after another, so that a session
may follow a log on one and call functions on another. Requests are tuples ``(function, arguments,
window)``; replies are tuples that begin with one of the words below. Everything else that travels
towards the host (credits for streams, chunks of an upload) is not a tuple: what is left of it
when a request ended early is thrown away before the next one.
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

#: How long functions that still run may take to clean up after the controller has left.
FAREWELL = 2.0

Function = TypeVar("Function", bound=Callable[..., object])


class Channel(Protocol):
    """As much of execnet's channel as is used on a host."""

    def send(self, item: object) -> None:
        """One message, of builtins; ``OSError`` when nobody listens any more."""

    def receive(self) -> Any:
        """The next message; ``EOFError`` when none will come."""

    def __iter__(self) -> Iterator[object]:
        """The messages until the other side closes."""


class Failure(TypedDict):
    """An exception, in builtins."""

    kind: str
    """The name of its class."""
    message: str
    trace: str
    errno: int | None
    errno_name: str
    """Such as ``ENOSPC``; empty without a number."""
    winerror: int | None
    path: str | None


def idempotent(function: Function) -> Function:
    """Mark a function that may be run a second time when the connection broke during the first."""
    function.__dict__["idempotent"] = True
    return function


def fed(function: Function) -> Function:
    """Mark a function that takes an upload: its argument ``chunks`` iterates over the pieces."""
    function.__dict__["fed"] = True
    return function


class Feed:
    """The pieces of an upload; each is acknowledged once the next is asked for (backpressure).

    The sender hashes while it sends, so the sha256 comes last: ``digest``, once the pieces are
    through.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.digest = ""

    def __iter__(self) -> Iterator[bytes]:
        while True:
            try:
                chunk = self.channel.receive()
            except EOFError:
                raise ConnectionAbortedError("the sender went away in mid-upload") from None
            if isinstance(chunk, str):
                self.digest = chunk
                return
            yield chunk
            self.channel.send((ACK, len(chunk)))


def resolve(name: str) -> Callable[..., object]:
    """The public function ``name`` ("files.stat") of this package, and nothing else."""
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
    """The name under which a function of this package is asked for: "files.stat"."""
    package = __package__ or ""
    return f"{function.__module__.removeprefix(package + '.')}.{function.__name__}"


def is_idempotent(function: Callable[..., object]) -> bool:
    """Whether the function may be run again after a broken connection."""
    return bool(function.__dict__.get("idempotent", False))


@idempotent
def ping() -> float:
    """Show that the host answers: its clock."""
    return time.time()


def describe(error: BaseException) -> Failure:
    """What the controller needs to know of an exception, in builtins."""
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
    """Send what a generator yields, never more than ``window`` items ahead of the reader."""
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
    """Run one request; its outcome, whatever it is, goes back over the channel."""
    try:
        function = resolve(name)
        if getattr(function, "fed", False):
            arguments = {"chunks": Feed(channel), **arguments}
        result: Any = function(**arguments)
        if inspect.isgenerator(result):
            result = _send_items(channel, result, window)
        channel.send((DONE, result))
    except BaseException as error:  # noqa: BLE001, RUF100 - every outcome belongs to the controller
        with contextlib.suppress(OSError):  # nobody is there to be told
            channel.send((ERROR, describe(error)))


def work(channel: Channel) -> None:
    """Handle the requests of one channel, one after the other."""
    for request in channel:
        if isinstance(request, tuple):
            answer(channel, *request)


def serve(channel: Channel) -> None:
    """Start a worker for every channel that the controller opens; returns when it has left."""
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
