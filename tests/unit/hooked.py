"""A WS-Management server that a test has fail: lost connections, reboots, quotas."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from typing import Any, Protocol

from pipelines.hosts.sandbox.wsman.service import Caller, WsmanService
from pipelines.hosts.sandbox.wsman.shells import ShellTable
from pipelines.hosts.sandbox.wsman.soap import Request


class DropConnectionError(ConnectionError):
    """Raised by a hook: cut the connection after ``sent`` bytes, with RST if ``reset``."""

    def __init__(self, *, sent: int = 0, reset: bool = False) -> None:
        super().__init__("connection dropped by a hook")
        self.sent = sent
        self.reset = reset


class Hooks(Protocol):
    """Called in the thread of the connection, so sleeping delays just that client.

    Both may raise :class:`DropConnectionError`; ``before_request`` may also raise a
    ``WsmanFaultError``, which is then the answer (busy, quota, shell gone).
    """

    def before_request(self, action: str) -> None:
        """An envelope was understood, nothing is done yet."""

    def before_response(self, action: str, body: bytes) -> bytes | None:
        """``body`` is the answer before sealing. Return what to send instead; None hangs up."""


class _Service(WsmanService):
    def __init__(self, table: ShellTable, hooks: Hooks) -> None:
        super().__init__(table)
        self.hooks = hooks

    def _dispatch(self, request: Request, caller: Caller) -> tuple[bytes, ...]:
        self.hooks.before_request(request.action)
        return super()._dispatch(request, caller)

    def handle(self, raw: bytes, caller: Caller) -> tuple[int, bytes]:
        try:
            status, body = super().handle(raw, caller)
            action = raw.partition(b"Action")[2].partition(b">")[2].partition(b"<")[0].decode()
            if (changed := self.hooks.before_response(action, body)) is None:
                raise DropConnectionError  # noqa: TRY301
        except DropConnectionError as drop:
            _cut(caller.socket, drop)
            raise
        return status, changed


def _cut(client: int, drop: DropConnectionError) -> None:
    with contextlib.closing(socket.socket(fileno=os.dup(client))) as connection:
        promise = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n<s:Envelope"
        connection.sendall(promise.ljust(drop.sent)[: drop.sent])
        if drop.reset:
            # Lingering for no time makes close() send RST instead of FIN.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def hooked(hooks: Any) -> Any:
    """The ``service`` of a server with these hooks."""
    return lambda table: _Service(table, hooks)
