"""What a host is to the stages: a name, capabilities, a Python at the end of a byte stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Protocol, Self

from pipelines.errors import RemoteError, StorageError
from pipelines.hostconfig import Existing

#: Called with (bytes done, bytes in all) while a transfer goes on.
Progress = Callable[[int, int], None]
#: The same for several at a time: (what, bytes done, bytes in all).
Bars = Callable[[str, int, int], None]


_FULL = {"ENOSPC", "EDQUOT"}


def raise_remote(host: str, told: dict[str, Any]) -> NoReturn:
    """Raise what a function raised on ``host``, from ``remote.rpc.describe``'s words."""
    if told.get("errno_name") in _FULL:
        place = f" at {told['path']}" if told.get("path") else ""
        raise StorageError(
            f"{host}: the host's disk is full{place}: {told['message']}",
            advice="Free space on the host, or give it another work directory.",
        )
    kind = str(told["kind"])
    raise RemoteError(f"{host}: {kind}: {told['message']}", kind=kind, trace=told.get("trace", ""))


class Events(Protocol):
    """Told what goes on while a host is made ready; asked for bars for what takes long."""

    def step(self, text: str) -> None:
        """A new step begins."""

    def bars(self) -> AbstractContextManager[Bars]:
        """Shows the progress of transfers as long as it is entered."""


class Silent:
    """Events that nobody looks at."""

    def step(self, text: str) -> None:
        """Say nothing."""

    def bars(self) -> AbstractContextManager[Bars]:
        """Show nothing."""
        return nullcontext(lambda _what, _done, _total: None)


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What a host can do; skips and refusals are decided by these, never by its class."""

    windows: bool
    msvc: bool
    gpu: bool
    publishable: bool
    """Whether wheels made there may go to an index; the sandbox's never may."""
    services: bool = False
    """Whether it is a whole Windows: WinRM service, Task Scheduler, Defender, page file, reboot."""
    toolkit: bool = False
    """Whether it has a CUDA toolkit of its own, which is used as it is."""


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
    """A live connection to a host, see :class:`pipelines.hosts.channel.ChannelSession`."""

    def call(self, function: str, /, **arguments: Any) -> Any:
        """Run a function of ``pipelines/remote`` ("files.stat") there; builtins in and out."""

    def stream(self, function: str, /, **arguments: Any) -> Iterator[Any]:
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


class Host(Protocol):
    """Where a wheel is built or tested."""

    name: str
    capabilities: Capabilities
    evidence: str
    """Highest evidence level of what runs there: W, F, B, G or R, see README.md."""

    @property
    def existing(self) -> Existing | None:
        """What is there to be used as it is; ``None`` where the pipeline installs its tools."""

    @property
    def executable(self) -> str:
        """The Python that runs there, which is also the one to build for."""

    def connect(self) -> Session:
        """Make the host reachable (start it if that is ours to do) and open a session."""

    def restart(self, session: Session) -> Session:
        """Restart the host that ``session`` is with, wait for it, and open a new session."""

    def close(self) -> None:
        """Stop what :meth:`connect` started; harmless when nothing was."""
