"""The raw connection behind an attach or an exec: what SDK and engine call a hijacked one."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
from typing import Any

from docker.models.containers import Container

#: Before each piece of output: which stream it is of, and its length.
_HEADER = struct.Struct(">BxxxI")
STDOUT, STDERR = 1, 2
#: Seconds of silence before the other end is asked, between questions, and how many.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}


def low_level(container: Container) -> Any:
    """The SDK's interface of single requests."""
    assert container.client is not None  # noqa: S101 - of every container that an engine told of
    return container.client.api


def _keep_alive(way: Any) -> None:
    """Notice within two minutes that the engine's machine has vanished: nobody would tell."""
    if getattr(way, "family", None) not in (socket.AF_INET, socket.AF_INET6):
        return
    way.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if (option := getattr(socket, name, None)) is not None:  # not on every system
            way.setsockopt(socket.IPPROTO_TCP, option, value)


class Hijacked:
    """Bytes both ways; made of what ``attach_socket`` and ``exec_start(socket=True)`` return.

    What the engine sent together with its HTTP header may be lost to the SDK's buffer
    (https://github.com/docker/docker-py/issues/983): nothing may speak before it was spoken to.
    """

    def __init__(self, raw: Any) -> None:
        self._raw = raw  # whoever collects it closes the connection
        self._ssh = getattr(raw, "proc", None)  # an ssh whose pipes it is
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
        found = bytearray()
        while len(found) < count:
            piece = self._recv(count - len(found))
            if not piece:
                raise EOFError("the engine closed the connection")
            found += piece
        return bytes(found)

    def piece(self, most: int) -> tuple[int, bytes]:
        """The next output, at most so much of it: the stream it is of, and the bytes.

        Raises ``EOFError`` at the end, and for what is no such stream; ``OSError`` of the socket.
        """
        while not self._left:
            self._stream, self._left = _HEADER.unpack(self._exactly(_HEADER.size))
            if self._stream not in (0, STDOUT, STDERR):
                raise EOFError("the engine sent what is no stream of output")
        data = self._recv(min(self._left, most))
        if not data:
            raise EOFError("the engine closed the connection")
        self._left -= len(data)
        return self._stream, data

    def send(self, data: bytes) -> None:
        """All of ``data``, or ``OSError``."""
        if self._ssh is not None:
            self._ssh.stdin.write(data)
            self._ssh.stdin.flush()
        else:
            self._socket.sendall(data)

    def close_write(self) -> None:
        """Say that no more is coming, where the way knows such a thing: TLS does not."""
        with contextlib.suppress(OSError, ValueError):
            if self._ssh is not None:
                self._ssh.stdin.close()
            elif not isinstance(self._socket, ssl.SSLSocket):
                self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """End the connection; wakes whoever reads from it."""
        with contextlib.suppress(OSError, ValueError):
            if self._ssh is not None:
                self._ssh.kill()
                self._ssh.wait(2)
            elif isinstance(self._socket, socket.socket):  # a pipe of Windows is closed below
                # On the level of TCP: close() alone wakes nobody, and TLS' goodbye could block.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        # First the response that the SDK keeps with it, which would flush what is closed (3.13).
        response: Any = getattr(self._raw, "_response", self._raw)
        for opened in (response, self._raw):
            with contextlib.suppress(OSError, ValueError):
                opened.close()
