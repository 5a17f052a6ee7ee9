"""How a host on an engine is entered: the port of its WinRM, its certificate, who signs in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pipelines.hosts.engine.box import Box
from pipelines.hosts.engine.engine import Engine
from pipelines.session.transports.endpoint import Endpoint, Secret

#: Where WinRM listens in a container.
WINRM = "5986/tcp"


@dataclass(frozen=True)
class Entrance:
    """How a host is entered that is ready."""

    url: str = ""
    """Of its WinRM; empty for one that is entered by exec."""
    pin: str = ""
    """sha256 of the certificate that WinRM shows."""
    user: str = ""
    password: str = field(default="", repr=False)

    def endpoint(self, remember: Callable[[str], str]) -> Endpoint:
        """As sessions take it; ``remember`` is given the password."""
        password = Secret(remember(self.password))
        return Endpoint(url=self.url, username=self.user, password=password, pin=self.pin)


def bound(engine: Engine) -> str:
    """Where ports are published: on loopback, or for an engine elsewhere on its machine."""
    return "0.0.0.0" if engine.remote else "127.0.0.1"  # noqa: S104 - pinned, NTLM


def url_of(box: Box, engine: Engine) -> str:
    """Of the WinRM behind the published port; empty while there is none."""
    for one in (box.container.ports or {}).get(WINRM) or []:
        if (port := str(one.get("HostPort", ""))).isdecimal():
            return f"https://{engine.remote or '127.0.0.1'}:{port}/wsman"
    return ""
