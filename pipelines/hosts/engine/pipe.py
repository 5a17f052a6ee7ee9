"""An engine behind a named pipe of Windows; only imported there.

The SDK's own pipe socket raises ``pywintypes.error``, which is not an ``OSError`` and is not caught
anywhere, reads without OVERLAPPED from an overlapped handle while another thread may write, and
treats a half-close as a full close.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator
from typing import Any

import pywintypes  # type: ignore[import-untyped, unused-ignore]
from docker.transport import NpipeHTTPAdapter
from docker.transport.npipeconn import NpipeHTTPConnection, NpipeHTTPConnectionPool
from docker.transport.npipesocket import NpipeSocket

#: ERROR_BROKEN_PIPE, ERROR_PIPE_NOT_CONNECTED, ERROR_OPERATION_ABORTED (it was closed).
_ENDED = (109, 233, 995)


@contextlib.contextmanager
def _os_errors() -> Iterator[None]:
    """As ``OSError``: Windows' message, and that the pipe was closed here."""
    try:
        yield
    except pywintypes.error as error:
        raise OSError(0, error.strerror, None, error.winerror) from error
    except RuntimeError as error:
        raise BrokenPipeError(errno.EPIPE, str(error)) from error


class Pipe(NpipeSocket):
    """The socket of a pipe."""

    def connect(self, address: str, retry_count: int = 0) -> None:
        """Open it; ``OSError``, ``FileNotFoundError`` if it does not exist."""
        with _os_errors():
            super().connect(address, retry_count)

    def recv(self, bufsize: int, flags: int = 0) -> Any:  # noqa: ARG002 - as a socket's
        """Read at most so much; empty at the end."""
        data = bytearray(bufsize)
        return bytes(data[: self.recv_into(data)])

    def recv_into(self, buf: Any, nbytes: int = 0) -> int:
        """Read into ``buf``; 0 at the end."""
        with _os_errors():
            try:
                return int(super().recv_into(buf, nbytes))
            except pywintypes.error as error:
                if error.winerror not in _ENDED:
                    raise
        return 0

    def send(self, string: Any, flags: int = 0) -> int:
        """Write all of it."""
        with _os_errors():
            return int(super().send(string, flags))

    sendall = send

    def shutdown(self, how: int) -> None:
        """An empty message ends the engine's input (go-winio); any other ends the connection."""
        if how == socket.SHUT_WR:
            self.send(b"")
        else:
            self.close()

    def close(self) -> None:
        """Close it; readers get the end of the file."""
        with contextlib.suppress(OSError), _os_errors():
            super().close()


class _Connection(NpipeHTTPConnection):
    def connect(self) -> None:
        pipe = Pipe()
        pipe.settimeout(self.timeout)
        pipe.connect(self.npipe_path)
        self.sock = pipe


class _Pool(NpipeHTTPConnectionPool):
    def __init__(self, path: str, seconds: int, maxsize: int) -> None:
        super().__init__(path, seconds, maxsize=maxsize)
        self._seconds = seconds

    def _new_conn(self) -> Any:
        return _Connection(self.npipe_path, self._seconds)


class Pipes(NpipeHTTPAdapter):
    """``npipe:////./pipe/NAME``."""

    def get_connection(self, url: str | bytes, proxies: Any = None) -> Any:  # noqa: ARG002
        """A pool of connections."""
        with self.pools.lock:
            pool = self.pools.get(url)
            if pool is None:
                pool = _Pool(self.npipe_path, self.timeout, maxsize=self.max_pool_size)
                self.pools[url] = pool
            return pool
