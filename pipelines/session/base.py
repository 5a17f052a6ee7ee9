"""A session with a host: calls, streams and files over a pair of byte pipes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn, ParamSpec, Protocol, Self, TypeVar

from pipelines.core.errors import HostError, RemoteError, StorageError
from pipelines.remote.rpc import Failure

Given = ParamSpec("Given")
Result = TypeVar("Result")
Item = TypeVar("Item")

#: Called with (bytes done, total bytes) during a transfer.
Progress = Callable[[int, int], None]


#: The same for several at a time: (what, bytes done, total bytes).
Bars = Callable[[str, int, int], None]


_FULL = {"ENOSPC", "EDQUOT"}


def raise_remote(host: str, failure: Failure) -> NoReturn:
    """Raise the error that a function raised on ``host``."""
    if failure.get("errno_name") in _FULL:
        place = f" at {failure['path']}" if failure.get("path") else ""
        raise FullHostError(
            f"{host}: the host's disk is full{place}: {failure['message']}",
            hint="Free space on the host, or give it another work directory.",
        )
    kind = str(failure["kind"])
    raise RemoteError(
        f"{host}: {kind}: {failure['message']}", kind=kind, trace=failure.get("trace", "")
    )


class FullHostError(StorageError):
    """The host's disk is full, not this machine's."""


class UnfitHostError(HostError):
    """The host is not in the required state; nothing is done until a person has checked it."""


class DeadHostError(HostError):
    """A host on this machine has ended, or does not start: waiting would not help."""


class GoneHostError(DeadHostError):
    """It has ended and its files are gone: the next one is created from scratch."""


class ByteStream(Protocol):
    """A pair of byte pipes to a Python started on a host; execnet calls this an IO."""

    remoteaddress: str

    def read(self, numbytes: int) -> bytes:
        """Exactly ``numbytes`` bytes, or ``EOFError`` with the reason in its message."""

    def write(self, data: bytes) -> None:
        """Write all of ``data``, or raise an ``OSError`` subclass."""

    def close_read(self) -> None:
        """Stop reading."""

    def close_write(self) -> None:
        """Signal the end of input to the other side."""

    def wait(self) -> int | None:
        """The exit code of the remote process; ``None`` if unknown."""

    def kill(self) -> None:
        """End the remote process and forget the connection; never raises."""


class Session(Protocol):
    """A live connection to a host, see :class:`pipelines.session.channel.ChannelSession`."""

    def call(
        self, function: Callable[Given, Result], /, *args: Given.args, **arguments: Given.kwargs
    ) -> Result:
        """Run a function of ``pipelines/remote`` there, by keywords; builtins in and out."""

    def stream(
        self,
        function: Callable[Given, Iterator[Item]],
        /,
        *args: Given.args,
        **arguments: Given.kwargs,
    ) -> Iterator[Item]:
        """As :meth:`call`, for a generator function: yields its items as they arrive."""

    def put(self, source: Path, target: str, *, progress: Progress | None = None) -> str:
        """Send a file; sha256 checked at both ends, lands by rename. Returns the sha256."""

    def get(self, source: str, target: Path, *, progress: Progress | None = None) -> str:
        """Fetch a file; sha256 checked at both ends, lands by rename. Returns the sha256."""

    def close(self) -> None:
        """Close the session; the host's Python ends."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...
