"""A user's Windows machine with WinRM enabled; Python is installed there if missing."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from pipelines.core.errors import ConfigError, SetupError
from pipelines.core.evidence import Evidence
from pipelines.core.extras import install_extra
from pipelines.hosts.base import Capabilities, Host, OpenOptions
from pipelines.hosts.gpus import host_gpu_way, is_wanted
from pipelines.hosts.windows.firstpython import connect_with_python
from pipelines.hosts.windows.reboot import reboot_and_wait
from pipelines.hosts.winrm.config import WinRMHost
from pipelines.hosts.winrm.credentials import credential_source
from pipelines.session.base import Session
from pipelines.session.channel import over_winrs
from pipelines.session.transports.endpoint import Endpoint


class WindowsHost(Host):
    """Implements :class:`pipelines.hosts.base.Host` over the user's own WinRM service."""

    evidence = Evidence.WRITTEN

    def __init__(self, name: str, config: WinRMHost, options: OpenOptions) -> None:
        """Nothing is sent to it yet."""
        self.name = name
        self.config = config
        self.options = options
        self.executable = config.python
        self.capabilities = Capabilities(
            windows=True, msvc=True, gpu=is_wanted(config.gpu), publishable=True, services=True
        )
        self.gpu_way = host_gpu_way(config.gpu)
        self.tools = ("cpython-3.11",) if config.bootstraps else ()
        self._fresh = False
        self._credential = credential_source(name, config, options.register_secret)

    def endpoint(self) -> Endpoint:
        """Address and credentials.

        Raises :class:`ConfigError` if the password or a file is missing, ``SetupError`` if a
        package for this authentication method is.
        """
        config = self.config
        _require_transport_package(config.transport)
        if self._credential is not None:
            self._credential.get_secret_value()  # registered before any attempt
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
                f"host '{self.name}': {key}: {path.absolute()} does not exist",
                hint="Paths in pipeline.yaml are relative to the current directory.",
            )
        return path

    def prepare(self, *, repair: bool = False) -> None:
        """For a repair the next :meth:`connect` replaces the host's Python unconditionally."""
        self._fresh = repair

    def connect(self) -> Session:
        """Sign in and open a session, after installing Python there if configured.

        Nothing is cached: the host is asked each time whether it has this Python. Raises what
        :func:`pipelines.hosts.windows.firstpython.install_python_over_winrm` does.
        """
        endpoint = self.endpoint()
        if not self.config.bootstraps:
            return over_winrs(endpoint, self.config.python, self.name)
        fresh, self._fresh = self._fresh, False
        return connect_with_python(
            endpoint,
            self.options.cache,
            self.options.events,
            name=self.name,
            python=self.config.python,
            fresh=fresh,
        )

    def restart(self, session: Session) -> Session:
        """Restart Windows and wait for it; see :func:`.reboot.reboot_and_wait`."""
        return reboot_and_wait(self.connect, session, progress=self.options.events.step)

    def close(self) -> None:
        """Does nothing: nothing was started."""


#: Authentication methods that need a package of their own, and its possible modules.
_OPTIONAL = {"kerberos": ("kerberos", "winkerberos"), "credssp": ("requests_credssp",)}


def _require_transport_package(transport: str) -> None:
    modules = _OPTIONAL.get(transport, ())
    if modules and not any(importlib.util.find_spec(name) for name in modules):
        first = "sudo apt-get install gcc python3-dev libkrb5-dev krb5-user; "
        raise SetupError(
            f"transport {transport} needs a package that is not installed: {' or '.join(modules)}",
            hint=f"Type: {first if transport == 'kerberos' else ''}{install_extra(transport)}",
        )
