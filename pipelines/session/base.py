"""What a session with a host is: calls, streams and files over a pair of byte pipes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import NoReturn, ParamSpec, Protocol, Self, TypeVar

from pipelines.core.errors import HostError, RemoteError, StorageError
from pipelines.remote.rpc import Failure

Given = ParamSpec("Given")
Result = TypeVar("Result")
Item = TypeVar("Item")

#: Called with (bytes done, bytes in all) while a transfer goes on.
Progress = Callable[[int, int], None]


#: The same for several at a time: (what, bytes done, bytes in all).
Bars = Callable[[str, int, int], None]


_FULL = {"ENOSPC", "EDQUOT"}


def raise_remote(host: str, told: Failure) -> NoReturn:
    """Raise what a function raised on ``host``."""
    if told.get("errno_name") in _FULL:
        place = f" at {told['path']}" if told.get("path") else ""
        raise FullHostError(
            f"{host}: the host's disk is full{place}: {told['message']}",
            hint="Free space on the host, or give it another work directory.",
        )
    kind = str(told["kind"])
    raise RemoteError(f"{host}: {kind}: {told['message']}", kind=kind, trace=told.get("trace", ""))


class FullHostError(StorageError):
    """The disk that is full is the host's, not ours."""


class UnfitHostError(HostError):
    """A host that is not as it must be: nothing is done there until a person has looked."""


class DeadHostError(HostError):
    """A host that this machine runs has ended, or does not start: waiting would not help."""


class GoneHostError(DeadHostError):
    """It has ended together with all its files: the next one is made anew."""


class ByteStream(Protocol):
    """A pair of byte pipes to a Python that was started on a host; what execnet calls an IO."""

    remoteaddress: str

    def read(self, numbytes: int) -> bytes:
        """Exactly ``numbytes`` bytes, or ``EOFError`` with the reason in its message."""

    def write(self, data: bytes) -> None:
        """All of ``data``, or an ``OSError`` subclass."""

    def close_read(self) -> None:
        """Stop reading."""

    def close_write(self) -> None:
        """Tell the other side that no more is coming."""

    def wait(self) -> int | None:
        """The exit code of the remote process, ``None`` when it is not known."""

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
        """As :meth:`call`, for a generator function: its items as they come."""

    def put(self, source: Path, target: str, *, progress: Progress | None = None) -> str:
        """Send a file; sha256 checked at both ends, lands by rename. Returns the sha256."""

    def get(self, source: str, target: Path, *, progress: Progress | None = None) -> str:
        """Fetch a file; sha256 checked at both ends, lands by rename. Returns the sha256."""

    def close(self) -> None:
        """Leave; the host's Python ends."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
