"""The hook for fault injection: simulates network failures, reboots or quotas for a client."""

from __future__ import annotations

from typing import Protocol


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

    def before_request(self, action: str, shell_id: str | None) -> None:
        """An envelope was understood, nothing is done yet."""
        ...

    def before_response(self, action: str, body: bytes) -> bytes | None:
        """``body`` is the answer before sealing. Return what to send instead; None hangs up."""
        ...
