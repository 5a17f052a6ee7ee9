"""How requests reach an engine: the SDK's client, and ssh as a socket."""

from __future__ import annotations

import http.client
import shlex
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

import docker
from docker.transport.basehttpadapter import BaseHTTPAdapter
from requests import PreparedRequest
from requests.adapters import BaseAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.response import BaseHTTPResponse

from pipelines.core.hosttext import safe_text

#: No prompts on the terminal; a vanished machine is noticed after a minute.
_SSH_OPTIONS = ("BatchMode=yes", "ConnectTimeout=15", "ServerAliveInterval=15")


class Client(docker.DockerClient):
    """The SDK's client on :class:`Api`."""

    def __init__(self, **keys: Any) -> None:
        self.api = Api(**keys)


class Api(docker.APIClient):
    """The SDK's low-level API."""

    def __init__(self, *, way: BaseAdapter | None = None, **keys: Any) -> None:
        """``way`` replaces the adapter that the SDK would choose for the address."""
        self._way = way
        super().__init__(**keys)

    @property
    def trust_env(self) -> bool:
        """False: REQUESTS_CA_BUNDLE would replace the CA of ``engine_tls``.

        https://github.com/psf/requests/issues/3829. Also no proxies and no passwords of .netrc.
        """
        return False

    @trust_env.setter
    def trust_env(self, value: bool) -> None:
        """Ignored: the constructor of requests sets it."""

    def get_adapter(self, url: str | bytes) -> BaseAdapter:
        """The adapter for a request."""
        return self._way or super().get_adapter(str(url))


class SshError(OSError):
    """ssh ended; contains its output."""


class _Connection(HTTPConnection):
    """HTTP over an ssh behind a pair of sockets, so that timeouts and half-closing work."""

    def __init__(self, command: tuple[str, ...], timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._command = command

    def connect(self) -> None:
        here, there = socket.socketpair()
        self._errors = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - for the life of the connection
        with there:
            self._ssh: subprocess.Popen[bytes] = subprocess.Popen(
                self._command,
                stdin=there.fileno(),
                stdout=there.fileno(),
                stderr=self._errors,
                start_new_session=True,  # Ctrl-C is handled here
            )
        here.settimeout(self.timeout if isinstance(self.timeout, int | float) else None)
        self.sock = here

    def getresponse(self) -> BaseHTTPResponse:  # type: ignore[override]
        try:
            return super().getresponse()
        except (OSError, http.client.HTTPException) as error:
            try:
                self._ssh.wait(2)
            except subprocess.TimeoutExpired:
                raise error from None  # the engine does not answer
            self._errors.seek(0)
            output = safe_text(self._errors.read(4000).decode("utf-8", "replace").strip(), 1000)
            code = self._ssh.returncode
            raise SshError(f"ssh ended with {code}: {output or 'no output'}") from error


class _Pool(HTTPConnectionPool):
    def __init__(self, command: tuple[str, ...], timeout: float) -> None:
        super().__init__("localhost", timeout=timeout, maxsize=10)
        self._command, self._seconds = command, timeout

    def _new_conn(self) -> _Connection:
        return _Connection(self._command, self._seconds)


class Ssh(BaseHTTPAdapter):
    """``ssh://[USER@]HOST[:PORT][/SOCKET]`` by this machine's ssh, keys and known hosts."""

    def __init__(self, url: str, timeout: float) -> None:
        super().__init__()
        parts = urlsplit(url)
        words = ["ssh", "-T", *(word for option in _SSH_OPTIONS for word in ("-o", option))]
        words += ["-p", str(parts.port)] if parts.port else []
        words += ["-l", unquote(parts.username)] if parts.username else []
        there = ["docker"]
        if parts.path not in ("", "/"):
            there += ["--host", f"unix://{parts.path}"]
        there += ["system", "dial-stdio"]
        self._pool = _Pool((*words, "--", parts.hostname or "", shlex.join(there)), timeout)

    def get_connection(
        self,
        url: str | bytes,  # noqa: ARG002 - as every adapter's
        proxies: Mapping[str, str] | None = None,  # noqa: ARG002
    ) -> HTTPConnectionPool:
        """The only pool."""
        return self._pool

    def request_url(
        self,
        request: PreparedRequest,
        proxies: Mapping[str, str] | None,  # noqa: ARG002 - as every adapter's
    ) -> str:
        """Without a host: the socket has one end."""
        return str(request.path_url)

    def close(self) -> None:
        """End every ssh."""
        super().close()
        self._pool.close()
