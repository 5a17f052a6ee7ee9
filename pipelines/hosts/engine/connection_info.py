"""How to connect to a host on an engine: WinRM's port, its certificate, the credentials."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pipelines.hosts.engine.container import ManagedContainer
from pipelines.hosts.engine.engine import Engine
from pipelines.session.transports.endpoint import Endpoint, Secret

#: WinRM's port in a container.
WINRM = "5986/tcp"


@dataclass(frozen=True)
class ConnectionInfo:
    """How to connect to a host that is ready."""

    url: str = ""
    """WinRM address; empty for one that is reached by exec."""
    pin: str = ""
    """sha256 of the certificate WinRM presents."""
    user: str = ""
    password: str = field(default="", repr=False)

    def endpoint(self, remember: Callable[[str], str]) -> Endpoint:
        """As an endpoint for sessions; ``remember`` receives the password."""
        password = Secret(remember(self.password))
        return Endpoint(url=self.url, username=self.user, password=password, pin=self.pin)


def bound(engine: Engine) -> str:
    """The address of published ports: loopback, or all addresses of a remote engine's machine."""
    return "0.0.0.0" if engine.remote else "127.0.0.1"  # noqa: S104 - pinned, NTLM


def url_of(managed: ManagedContainer, engine: Engine) -> str:
    """The URL of WinRM behind the published port; empty while there is none."""
    for binding in (managed.container.ports or {}).get(WINRM) or []:
        if (port := str(binding.get("HostPort", ""))).isdecimal():
            return f"https://{engine.remote or '127.0.0.1'}:{port}/wsman"
    return ""
