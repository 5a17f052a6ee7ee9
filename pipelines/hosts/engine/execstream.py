"""stdin and stdout of a program in a container, as a ``ByteStream``: a session without WinRM.

It needs no port, password or certificate: permission to use the engine is enough, also over ssh://
and TLS. For containers only; virtual machines can only be reached by WinRM.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any

from docker.errors import DockerException
from docker.models.containers import Container
from requests.exceptions import RequestException

from pipelines.core.hosttext import safe_text
from pipelines.hosts.engine.error_patterns import engine_errors

#: The header of each piece of output: its stream and its length.
_HEADER = struct.Struct(">BxxxI")
STDOUT, STDERR = 1, 2
#: Seconds of silence before a keep-alive probe, between probes, and their number.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}


def low_level(container: Container) -> Any:
    """The SDK's low-level API."""
    assert container.client is not None  # noqa: S101 - set for every container from an engine
    return container.client.api


def _keep_alive(way: Any) -> None:
    """Notice within two minutes that the engine's machine has vanished without closing."""
    if getattr(way, "family", None) not in (socket.AF_INET, socket.AF_INET6):
        return
    way.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if (option := getattr(socket, name, None)) is not None:  # not on every system
            way.setsockopt(socket.IPPROTO_TCP, option, value)


class Hijacked:
    """A bidirectional byte stream, from ``attach_socket`` or ``exec_start(socket=True)``.

    Data the engine sends together with its HTTP header may be lost in the SDK's buffer
    (https://github.com/docker/docker-py/issues/983): the program must not write first.
    """

    def __init__(self, raw: Any) -> None:
        self._raw = raw  # its garbage collection closes the connection
        self._ssh = getattr(raw, "proc", None)  # the ssh process behind its pipes
        self._socket: Any = getattr(raw, "_sock", raw)
        if self._ssh is None:
            self._socket.settimeout(None)
            _keep_alive(self._socket)
        self._left = 0
        self._stream = STDOUT

    def _recv(self, most: int) -> bytes:
        if self._ssh is not None:
            return os.read(self._ssh.stdout.fileno(), most)
        data: bytes = self._socket.recv(most)
        return data

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self._recv(count - len(data))
            if not piece:
                raise EOFError("the engine closed the connection")
            data += piece
        return bytes(data)

    def piece(self, most: int) -> tuple[int, bytes]:
        """The next piece of output, up to a limit: its stream and its bytes.

        Raises ``EOFError`` at the end and for an invalid stream; ``OSError`` from the socket.
        """
        while not self._left:
            self._stream, self._left = _HEADER.unpack(self._exactly(_HEADER.size))
            if self._stream not in (0, STDOUT, STDERR):
                raise EOFError("the engine sent an invalid output stream")
        data = self._recv(min(self._left, most))
        if not data:
            raise EOFError("the engine closed the connection")
        self._left -= len(data)
        return self._stream, data

    def send(self, data: bytes) -> None:
        """Write all of ``data``, or raise ``OSError``."""
        if self._ssh is not None:
            self._ssh.stdin.write(data)
            self._ssh.stdin.flush()
        else:
            self._socket.sendall(data)

    def close_write(self) -> None:
        """Signal the end of input, if the transport can: TLS cannot."""
        with contextlib.suppress(OSError, ValueError):
            if self._ssh is not None:
                self._ssh.stdin.close()
            elif not isinstance(self._socket, ssl.SSLSocket):
                self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the connection; wakes readers."""
        with contextlib.suppress(OSError, ValueError):
            if self._ssh is not None:
                self._ssh.kill()
                self._ssh.wait(2)
            elif isinstance(self._socket, socket.socket):  # a pipe of Windows is closed below
                # On the TCP level: close() alone wakes no reader, and TLS' goodbye could block.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        # First the response that the SDK keeps with it, which would flush a closed file (3.13).
        response: Any = getattr(self._raw, "_response", self._raw)
        for opened in (response, self._raw):
            with contextlib.suppress(OSError, ValueError):
                opened.close()


_ERRORS = 8192  # bytes of stderr to keep
_PIECE = 1 << 18
_PATIENCE = 0.5
_NOT_STARTED = (126, 127)


class ExecStream:
    """A :class:`pipelines.session.base.ByteStream`; the program is started at once."""

    def __init__(
        self,
        container: Container,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """``command`` is an argument list, without a shell. Raises what ``engine_errors`` does."""
        self._api = low_level(container)
        self.remoteaddress = f"exec in container {container.name}"
        self._program, self._heard = command[0], False
        self._buffer = bytearray()
        self._errors = bytearray()
        with engine_errors(self.remoteaddress):
            made = self._api.exec_create(
                container.id, list(command), stdin=True, environment=dict(environment or {}) or None
            )
            self._id = str(made["Id"])
            self._way = Hijacked(self._api.exec_start(self._id, socket=True))

    def read(self, numbytes: int) -> bytes:
        """Exactly ``numbytes`` bytes, or ``EOFError`` with the end of stderr."""
        while len(self._buffer) < numbytes:
            try:
                stream, data = self._way.piece(_PIECE)
            except (EOFError, OSError, ValueError) as error:
                raise EOFError(self._end_message(error)) from error
            if stream == STDERR:
                self._errors += data
                del self._errors[:-_ERRORS]
            else:
                self._buffer += data
                if not self._heard:  # the engine reports here that a program does not start
                    self._heard = True
                    if self._code() in _NOT_STARTED:
                        raise EOFError(self._end_message(EOFError()))
        piece = bytes(memoryview(self._buffer)[:numbytes])
        del self._buffer[:numbytes]
        return piece

    def _end_message(self, error: BaseException) -> str:
        code = self.wait()
        words = bytes(self._errors)
        if code in _NOT_STARTED:  # the engine gives the reason in place of its output
            words = f"{self._program} does not start. ".encode() + bytes(self._buffer[:_ERRORS])
        output = safe_text(words.decode("utf-8", "replace").strip(), 1000)
        end = str(error) if code is None else f"ended with exit code {code}"
        return f"{self.remoteaddress}: {end}" + (f": {output}" if output else "")

    def write(self, data: bytes) -> None:
        """Write all of ``data``, or raise ``OSError``."""
        try:
            self._way.send(data)
        except ValueError as error:  # a closed pipe
            raise BrokenPipeError(str(error)) from error

    def close_read(self) -> None:
        """Does nothing: :meth:`kill` ends the connection."""

    def close_write(self) -> None:
        """Close the program's input."""
        self._way.close_write()

    def wait(self) -> int | None:
        """The exit code; ``None`` while it runs, or if the engine does not report it."""
        deadline = time.monotonic() + _PATIENCE
        while (code := self._code()) is None and time.monotonic() < deadline:
            time.sleep(0.05)
        return code

    def _code(self) -> int | None:
        try:
            code = self._api.exec_inspect(self._id)["ExitCode"]
        except (DockerException, RequestException):
            return None
        return None if code is None else int(code)

    def kill(self) -> None:
        """Drop the connection; the program ends at the end of its input."""
        with contextlib.suppress(Exception):
            self._way.close()
