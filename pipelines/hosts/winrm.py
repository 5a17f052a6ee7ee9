"""A Windows machine of the user's that has WinRM on and a Python on it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from pydantic import SecretStr

from pipelines.config import WinRMHost
from pipelines.errors import ConfigError
from pipelines.hosts.base import Capabilities, Session
from pipelines.hosts.sessions import over_winrs
from pipelines.hosts.transports import winrs


class WindowsHost:
    """Implements :class:`pipelines.hosts.base.Host` over the user's own WinRM service."""

    evidence = "W"

    def __init__(
        self, name: str, config: WinRMHost, *, remember: Callable[[str], str] = str
    ) -> None:
        """``remember`` is given the password, so that it can be kept out of what is printed."""
        self.name = name
        self.config = config
        self.remember = remember
        self.executable = config.python
        self.capabilities = Capabilities(windows=True, msvc=True, gpu=config.gpu, publishable=True)

    def connect(self) -> Session:
        """Sign in and open a session; :class:`ConfigError` when the password is not set."""
        password = os.environ.get(self.config.password_env)
        if not password:
            raise ConfigError(
                f"host '{self.name}': the environment variable {self.config.password_env} "
                "with its password is not set",
                advice=f"Type: read -rs {self.config.password_env}; "
                f"export {self.config.password_env}",
            )
        endpoint = winrs.Endpoint(
            url=self.config.endpoint,
            username=self.config.username,
            password=SecretStr(self.remember(password)),
            ca=Path(self.config.ca) if self.config.ca else None,
            message_encryption="auto" if self.config.endpoint.startswith("https") else "always",
        )
        return over_winrs(endpoint, self.config.python, self.name)

    def close(self) -> None:
        """Nothing was started."""
