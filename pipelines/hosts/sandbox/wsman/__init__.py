"""A WS-Management server for command shells: what WinRM is on Windows, for sandbox and tests.

with WsmanServer(launcher, write_credentials(path, user, password)) as server:
    ... any WinRM client against server.http_url, with NTLM and message encryption
"""

from __future__ import annotations

from .auth import write_credentials
from .certificate import create_certificate
from .commands import TAG, Launcher
from .faults import WsmanFaultError
from .server import WsmanServer
from .shells import Limits

__all__ = [
    "TAG",
    "Launcher",
    "Limits",
    "WsmanFaultError",
    "WsmanServer",
    "create_certificate",
    "write_credentials",
]
