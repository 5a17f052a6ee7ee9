"""The way to a container engine: its address, its keys, and why there is none."""

from __future__ import annotations

import os
import socket
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import docker
import requests
import urllib3
from docker.tls import TLSConfig
from requests.exceptions import Timeout

from pipelines.core.errors import ConfigError, HostError, PipelineError, SetupError, named
from pipelines.core.hosttext import safe
from pipelines.hosts.engine.contexts import DEFAULT, context, in_use
from pipelines.hosts.engine.refusals import understood
from pipelines.hosts.engine.wire import Client, Ssh, SshError

LOOPBACK = ("127.0.0.1", "::1", "localhost")
Known = tuple[type[PipelineError], str, str]


def target(name: str) -> str:
    """The address behind a name: a URL is its own, nothing means ``DOCKER_HOST`` or the context."""
    if "://" in name:
        return name
    if not name and (chosen := os.environ.get("DOCKER_HOST")):
        return chosen
    return context(name or in_use()).host


def connect(name: str, tls: Path | None, timeout: float) -> docker.DockerClient:
    """The SDK's client for an engine by its name; raises what the SDK does, and ``ConfigError``."""
    url = target(name)
    keys: dict[str, Any] = {"base_url": url, "timeout": int(timeout)}
    if url.startswith("npipe:"):
        if sys.platform != "win32":
            raise ConfigError(
                f"engine {url}: that is a pipe of a Windows machine",
                hint="From here: ssh://USER@SERVER, or tcp://SERVER:2376 with 'engine_tls'.",
            )
        from pipelines.hosts.engine.pipe import Pipes  # it imports what is there alone

        keys["way"] = Pipes(url, int(timeout))
    if url.startswith("ssh://"):
        if sys.platform == "win32":  # whose programs take no socket for their input
            keys["use_ssh_client"] = True
        else:
            keys |= {"base_url": "unix:///ssh", "way": Ssh(url, timeout)}
    elif url.startswith("tcp://"):
        keys["tls"] = _tls(tls) or _own_tls(name)
        if not keys["tls"] and urlsplit(url).hostname not in LOOPBACK:
            raise ConfigError(
                f"engine {url}: whoever reaches an engine over plain tcp owns its machine",
                hint="Give 'engine_tls', a directory with ca.pem, cert.pem and key.pem, "
                "or use ssh://USER@SERVER.",
            )
    return Client(**keys)


def _own_tls(name: str) -> TLSConfig | None:
    """The keys that Docker itself would use: those of the context, or of the environment."""
    if "://" in name:
        return None
    if name or not os.environ.get("DOCKER_HOST"):
        return context(name or in_use()).tls
    place = os.environ.get("DOCKER_CERT_PATH") or Path.home() / ".docker"
    return _tls(Path(place)) if os.environ.get("DOCKER_TLS_VERIFY") else None


def _tls(folder: Path | None) -> TLSConfig | None:
    if folder is None:
        return None
    ca, certificate, key = (folder / name for name in ("ca.pem", "cert.pem", "key.pem"))
    for file in (ca, certificate, key):
        if not file.is_file():
            raise ConfigError(
                f"engine_tls: there is no file {file}",
                hint="It needs ca.pem, cert.pem and key.pem, as Docker's page on protecting "
                "the daemon's socket makes them.",
            )
    return TLSConfig(client_cert=(str(certificate), str(key)), ca_cert=str(ca), verify=True)


def shown(name: str) -> str:
    """An engine's name for people: the address, or by what it was chosen."""
    if name:
        return name
    if chosen := os.environ.get("DOCKER_HOST"):
        return f"{safe(chosen, 200)} (DOCKER_HOST)"
    if (used := in_use()) != "default":
        return f"{safe(target(''), 200)} (Docker's context '{safe(used, 100)}')"
    return target("")


def _causes(error: BaseException) -> Iterator[BaseException]:
    at: BaseException | None = error
    while at is not None:
        yield at
        for inner in at.args:  # requests packs urllib3's errors into its own
            if isinstance(inner, BaseException):
                yield from _causes(inner)
        at = at.__cause__ or at.__context__


#: What a link of the chain of errors means: its type, our error, what is said and what helps.
_CAUSES: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], Known], ...] = (
    (
        (TimeoutError, Timeout),
        (
            HostError,
            "the Docker engine at {where} says nothing",
            "Type there: docker info. If that hangs, too: sudo systemctl restart docker (Windows: "
            "Restart-Service docker).",
        ),
    ),
    (
        FileNotFoundError,
        (
            SetupError,
            "there is no Docker engine at {where}",
            "",  # by what named it
        ),
    ),
    (
        PermissionError,
        (
            SetupError,
            "you may not use the Docker engine at {where}",
            'Type: sudo usermod -aG docker "$USER" (Windows: join the group docker-users), then '
            "sign in again.",
        ),
    ),
    (
        ConnectionRefusedError,
        (
            HostError,
            "the Docker engine at {where} is not running",
            "Type there: sudo systemctl start docker (Windows: Start-Service docker).",
        ),
    ),
    (
        socket.gaierror,
        (
            HostError,
            "the Docker engine at {where}: there is no machine of that name",
            "Is the name spelt right, and known to DNS or /etc/hosts?",
        ),
    ),
    (
        (ssl.SSLError, urllib3.exceptions.SSLError, requests.exceptions.SSLError),
        (
            HostError,
            "the Docker engine at {where} was not recognised, or does not know us: {cause}",
            "Port 2376 wants TLS: 'engine_tls' is the directory with ca.pem, cert.pem and key.pem. "
            "Port 2375 has none.",
        ),
    ),
)


def unreachable(name: str, error: BaseException) -> PipelineError:
    """Why there is no engine: what is wrong stands at the end of the chain of errors."""
    where = shown(name)
    for cause in reversed([*_causes(error)]):
        if (known := _known(cause, name, where)) is not None:
            return known
    said = safe(str(error), 300)
    return _understood(said, where) or HostError(
        f"the Docker engine at {where} does not answer: {said}",
        hint="Is that its address? Compare: docker context ls",
    )


def _understood(said: str, where: str) -> PipelineError | None:
    """The error that the table of refusals has for it."""
    if (known := understood(said)) is None:
        return None
    row, says = known
    return named(row.kind)(f"the Docker engine at {where}: {says}: {said}", hint=row.hint)


def _installed(name: str) -> str:
    """What to type where there is no socket: an address that somebody chose may be wrong."""
    windows = sys.platform == "win32"
    if not name and not os.environ.get("DOCKER_HOST") and in_use() == "default":
        install = "Start Docker Desktop" if windows else "Type: sudo apt-get install docker.io"
        return f"{install} (or give the host an 'engine')."
    chosen = "'engine' of the host" if name else "DOCKER_HOST, or the context in use,"
    return f"Is {chosen} spelt right? docker context ls shows what there is" + (
        "." if windows else f"; without any it is {DEFAULT}, which docker.io brings."
    )


def _known(cause: BaseException, name: str, where: str) -> PipelineError | None:
    """What one link of the chain means, if it means something."""
    if isinstance(cause, PipelineError):
        return cause
    if isinstance(cause, SshError):
        return _over_ssh(str(cause), where)
    if isinstance(cause, FileNotFoundError) and cause.filename == "ssh":
        return SetupError(
            "an engine over ssh needs the program ssh", hint="Install: openssh-client."
        )
    for types, (kind, says, hint) in _CAUSES:
        if isinstance(cause, types):
            said = says.replace("{where}", where).replace("{cause}", safe(str(cause), 200))
            return kind(said, hint=hint or _installed(name))
    return None


def _over_ssh(said: str, where: str) -> PipelineError:
    return _understood(said, where) or HostError(
        f"the Docker engine at {where}: {said}",
        hint="Does this work? ssh USER@SERVER docker version",
    )
