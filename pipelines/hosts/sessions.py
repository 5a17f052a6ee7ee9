"""From an endpoint to a session: what the adapters of WinRM hosts share."""

from __future__ import annotations

from pipelines.hosts.base import Session
from pipelines.hosts.bootstrap import bootstrap_command
from pipelines.hosts.channel import open_session
from pipelines.hosts.transports.winrs import Endpoint, WinRSStream


def over_winrs(endpoint: Endpoint, python: str, name: str) -> Session:
    """Start ``python`` (a path on the host) over WinRS and open a session with it.

    A lost connection is made anew with a fresh shell. Raises ``AuthError`` or ``HostError``.
    """
    # cmd /c mangles a quoted path next to other quotes: such a program is started without cmd.
    direct = " " in python

    def stream() -> WinRSStream:
        return WinRSStream(endpoint, bootstrap_command(python), skip_cmd_shell=direct)

    return open_session(stream(), name=name, reconnect=stream)
