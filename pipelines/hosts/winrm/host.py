"""A Windows machine of the user's that has WinRM on; a Python is put there if it has none."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable
from pathlib import Path

from pipelines.core.errors import ConfigError, SetupError
from pipelines.core.evidence import Evidence
from pipelines.hosts.base import Capabilities, Events, Host, Silent
from pipelines.hosts.gpus import is_wanted, own
from pipelines.hosts.windows.entering import with_python
from pipelines.hosts.windows.reboot import reboot_and_wait
from pipelines.hosts.winrm.config import WinRMHost
from pipelines.hosts.winrm.credentials import credential, install_extra
from pipelines.session.base import Session
from pipelines.session.channel import over_winrs
from pipelines.session.transports.endpoint import Endpoint
from pipelines.toolchain.lock import Cache, load_lock

_log = logging.getLogger(__name__)


class WindowsHost(Host):
    """Implements :class:`pipelines.hosts.base.Host` over the user's own WinRM service."""

    evidence = Evidence.WRITTEN

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
        self.events = events or Silent()
        self.executable = config.python
        self.capabilities = Capabilities(
            windows=True, msvc=True, gpu=is_wanted(config.gpu), publishable=True, services=True
        )
        self.gpu_way = own(config.gpu)
        self.tools = ("cpython-3.11",) if config.bootstraps else ()
        self._cache = cache
        self._fresh = False
        self._credential = credential(name, config, remember)

    @property
    def cache(self) -> Cache:
        """Where the pinned Python comes from; most hosts never need it."""
        if self._cache is None:
            self._cache = Cache(load_lock())
        return self._cache

    def endpoint(self) -> Endpoint:
        """Where and as whom to sign in.

        Raises :class:`ConfigError` when the password or a file is missing, ``SetupError`` when a
        package for this way to sign in is.
        """
        config = self.config
        _require(config.transport)
        if self._credential is not None:
            self._credential.get_secret_value()  # it is told before anything is tried
        return Endpoint(
            url=config.endpoint,
            username=config.username,
            password=self._credential,
            transport=config.transport,
            ca=self._file("ca", config.ca),
            pin=config.pin,
            message_encryption=config.message_encryption,
            certificate=self._file("certificate", config.certificate),
            certificate_key=self._file("certificate_key", config.certificate_key),
            kerberos_delegation=config.kerberos_delegation,
            kerberos_hostname_override=config.kerberos_hostname_override,
            refused=self._credential.forget if self._credential else lambda: None,
        )

    def _file(self, key: str, name: str | None) -> Path | None:
        if name is None:
            return None
        path = Path(name)
        if not path.is_file():
            raise ConfigError(
                f"host '{self.name}': {key}: there is no file {path.absolute()}",
                hint="Paths in pipeline.yaml are seen from the directory you type in.",
            )
        return path

    def prepare(self, *, repair: bool = False) -> None:
        """For a repair the next :meth:`connect` replaces the host's Python, whatever it says."""
        self._fresh = repair

    def connect(self) -> Session:
        """Sign in and open a session, after putting a Python there if that is to be done.

        Nothing is remembered of it: whether the host has this Python is asked of the host, each
        time. Raises what :func:`pipelines.hosts.windows.firstpython.install_python` does.
        """
        endpoint = self.endpoint()
        if not self.config.bootstraps:
            return over_winrs(endpoint, self.config.python, self.name)
        fresh, self._fresh = self._fresh, False
        return with_python(
            endpoint,
            lambda: self.cache,
            self.events,
            name=self.name,
            python=self.config.python,
            fresh=fresh,
        )

    def restart(self, session: Session) -> Session:
        """Restart Windows and wait for it; see :func:`.reboot.reboot_and_wait`."""
        return reboot_and_wait(self.connect, session, progress=self.events.step)

    def close(self) -> None:
        """Nothing was started."""


#: Ways to sign in that need a package of their own, and the modules that it may be.
_OPTIONAL = {"kerberos": ("kerberos", "winkerberos"), "credssp": ("requests_credssp",)}


def _require(transport: str) -> None:
    modules = _OPTIONAL.get(transport, ())
    if modules and not any(importlib.util.find_spec(name) for name in modules):
        first = "sudo apt-get install gcc python3-dev libkrb5-dev krb5-user; "
        raise SetupError(
            f"transport {transport} needs a package that is not installed: {' or '.join(modules)}",
            hint=f"Type: {first if transport == 'kerberos' else ''}{install_extra(transport)}",
        )
