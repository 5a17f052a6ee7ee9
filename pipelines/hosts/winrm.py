"""A Windows machine of the user's that has WinRM on; a Python is put there if it has none."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pydantic import SecretStr

from pipelines.config import WinRMHost
from pipelines.errors import ConfigError, HostError
from pipelines.hosts.base import Capabilities, Events, Session, Silent
from pipelines.hosts.sessions import over_winrs
from pipelines.hosts.transports import winrs
from pipelines.hosts.windows import firstpython
from pipelines.hosts.windows.reboot import reboot_and_wait
from pipelines.lock import Cache, load_lock


class WindowsHost:
    """Implements :class:`pipelines.hosts.base.Host` over the user's own WinRM service."""

    evidence = "W"

    def __init__(
        self,
        name: str,
        config: WinRMHost,
        *,
        remember: Callable[[str], str] = str,
        cache: Cache | None = None,
        events: Events | None = None,
    ) -> None:
        """``remember`` is given the password, so that it can be kept out of what is printed.

        ``cache`` has the Python for a bare host.
        """
        self.name = name
        self.config = config
        self.remember = remember
        self.events = events or Silent()
        self.executable = config.python
        self.capabilities = Capabilities(
            windows=True, msvc=True, gpu=config.gpu, publishable=True, services=True
        )
        self._cache = cache

    @property
    def cache(self) -> Cache:
        """Where the pinned Python comes from; most hosts never need it."""
        if self._cache is None:
            self._cache = Cache(load_lock())
        return self._cache

    def endpoint(self) -> winrs.Endpoint:
        """Where and as whom to sign in; :class:`ConfigError` when the password is not set."""
        password = os.environ.get(self.config.password_env)
        if not password:
            raise ConfigError(
                f"host '{self.name}': the environment variable {self.config.password_env} "
                "with its password is not set",
                advice=f"Type: read -rs {self.config.password_env}; "
                f"export {self.config.password_env}",
            )
        return winrs.Endpoint(
            url=self.config.endpoint,
            username=self.config.username,
            password=SecretStr(self.remember(password)),
            ca=Path(self.config.ca) if self.config.ca else None,
            message_encryption="auto" if self.config.endpoint.startswith("https") else "always",
        )

    def connect(self) -> Session:
        """Sign in and open a session, after putting a Python there if that is to be done.

        Nothing is remembered of it: whether the host has this Python is asked of the host, each
        time. Raises what :func:`pipelines.hosts.windows.firstpython.install_python` does.
        """
        endpoint = self.endpoint()
        if not self.config.bootstraps:
            return over_winrs(endpoint, self.config.python, self.name)
        target = self.config.python.rpartition("\\")[0]
        try:
            session = over_winrs(endpoint, self.config.python, self.name)
        except HostError as error:
            if not _never_started(error):
                raise
        else:
            try:
                outdated = firstpython.is_outdated(session, self.cache, target=target)
            except BaseException:
                session.close()
                raise
            if not outdated:
                return session
            session.close()  # its Python is in the way
        self.events.step(f"Python for {target}")
        with self.events.bars() as bars:
            progress = partial(bars, "send Python")
            firstpython.install_python(endpoint, self.cache, target=target, progress=progress)
        return over_winrs(endpoint, self.config.python, self.name)

    def restart(self, session: Session) -> Session:
        """Restart Windows and wait for it; see :func:`.windows.reboot.reboot_and_wait`."""
        return reboot_and_wait(self.connect, session, progress=self.events.step)

    def close(self) -> None:
        """Nothing was started."""


def _never_started(error: HostError) -> bool:
    """Whether the host was reached and had no such program: cmd, or WinRS itself, said so."""
    return isinstance(error.__cause__, EOFError) or error.message.endswith("(code 2)")
