"""The way to a container engine: its address, its keys, and why there is none."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import docker
from docker.context import Context, ContextAPI
from docker.context.config import get_current_context_name
from docker.tls import TLSConfig
from requests.exceptions import Timeout

from pipelines import errors
from pipelines.errors import ConfigError, HostError, PipelineError, SetupError
from pipelines.hosts.engine.refusals import understood
from pipelines.hosts.engine.wire import Client, Ssh, SshError
from pipelines.hosttext import safe

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def target(name: str) -> str:
    """The address behind a name: a URL is its own, nothing means ``DOCKER_HOST`` or the context."""
    if "://" in name:
        return name
    if not name and (chosen := os.environ.get("DOCKER_HOST")):
        return chosen
    return str(_context(name).Host)


def connect(name: str, tls: Path | None, timeout: float) -> docker.DockerClient:
    """The SDK's client for an engine by its name; raises what the SDK does, and ``ConfigError``."""
    url = target(name)
    keys: dict[str, Any] = {"base_url": url, "timeout": int(timeout)}
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
                advice="Give 'engine_tls', a directory with ca.pem, cert.pem and key.pem, "
                "or use ssh://USER@SERVER.",
            )
    return Client(**keys)


def _context(name: str) -> Context:
    """Docker's context of that name; without one, the context in use."""
    name = name or os.environ.get("DOCKER_CONTEXT") or get_current_context_name()
    try:
        context = ContextAPI.get_context(name)
        known = ", ".join(one.Name for one in ContextAPI.contexts()) if context is None else ""
    except Exception as error:  # the SDK raises plain ones for a damaged file
        raise ConfigError(
            f"Docker's context '{name}' cannot be read: {safe(str(error), 200)}",
            advice=f"Type: docker context inspect {name}",
        ) from error
    if context is None:
        raise ConfigError(
            f"Docker has no context '{name}'; it has {safe(known, 400)}",
            advice=f"Type: docker context create {name} --docker host=ssh://USER@SERVER, or "
            "give 'engine' a URL.",
        )
    return context


def _own_tls(name: str) -> TLSConfig | None:
    """The keys that Docker itself would use: those of the context, or of the environment."""
    if "://" in name:
        return None
    if name or not os.environ.get("DOCKER_HOST"):
        return cast("TLSConfig | None", _context(name).TLSConfig)
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
                advice="It needs ca.pem, cert.pem and key.pem, as Docker's page on protecting "
                "the daemon's socket makes them.",
            )
    return TLSConfig(client_cert=(str(certificate), str(key)), ca_cert=str(ca), verify=True)


def shown(name: str) -> str:
    """An engine's name for people."""
    return name or "the default place (DOCKER_HOST, the context in use, /var/run/docker.sock)"


def _causes(error: BaseException) -> Iterator[BaseException]:
    at: BaseException | None = error
    while at is not None:
        yield at
        for inner in at.args:  # requests packs urllib3's errors into its own
            if isinstance(inner, BaseException):
                yield from _causes(inner)
        at = at.__cause__ or at.__context__


def unreachable(name: str, error: BaseException) -> PipelineError:
    """Why there is no engine: what is wrong stands at the end of the chain of errors."""
    where = shown(name)
    for cause in _causes(error):
        if (known := _known(cause, where)) is not None:
            return known
    said = str(error)
    if "only supported on Windows" in said:
        return ConfigError(
            f"engine {where}: that is a pipe of a Windows machine",
            advice="From here: ssh://USER@SERVER, or tcp://SERVER:2376 with 'engine_tls'.",
        )
    return HostError(
        f"the Docker engine at {where} does not answer: {safe(said, 300)}",
        advice="Is that its address? Compare: docker context ls",
    )


def _known(cause: BaseException, where: str) -> PipelineError | None:
    """What one link of the chain means, if it means something."""
    if isinstance(cause, PipelineError):
        return cause
    if isinstance(cause, SshError):
        return _over_ssh(str(cause), where)
    if isinstance(cause, TimeoutError | Timeout):
        return HostError(
            f"the Docker engine at {where} accepts connections and says nothing",
            advice="Type there: docker info. If that hangs, too: sudo systemctl restart docker "
            "(Windows: Restart-Service docker).",
        )
    if isinstance(cause, FileNotFoundError) and cause.filename == "ssh":
        return SetupError(
            "an engine over ssh needs the program ssh", advice="Install: openssh-client."
        )
    if isinstance(cause, FileNotFoundError):
        return SetupError(
            f"there is no Docker engine at {where}",
            advice="Type: sudo apt-get install docker.io (or give the host an 'engine').",
        )
    if isinstance(cause, PermissionError):
        return SetupError(
            f"you may not use the Docker engine at {where}",
            advice='Type: sudo usermod -aG docker "$USER", then sign in again.',
        )
    if isinstance(cause, ConnectionRefusedError):
        return HostError(
            f"the Docker engine at {where} is not running",
            advice="Type there: sudo systemctl start docker (Windows: Start-Service docker).",
        )
    if isinstance(cause, socket.gaierror):
        return HostError(
            f"the Docker engine at {where}: there is no machine of that name",
            advice="Is the name spelt right, and known to DNS or /etc/hosts?",
        )
    if "SSL" in type(cause).__name__:
        return HostError(
            f"the Docker engine at {where} was not recognised: {safe(str(cause), 200)}",
            advice="Port 2376 wants TLS: 'engine_tls' is the directory with ca.pem, cert.pem "
            "and key.pem. Port 2375 has none.",
        )
    return None


def _over_ssh(said: str, where: str) -> PipelineError:
    if known := understood(said):
        row, says = known
        kind: type[PipelineError] = getattr(errors, row.kind)
        return kind(f"the Docker engine at {where}: {says}: {said}", advice=row.cure)
    return HostError(
        f"the Docker engine at {where}: {said}",
        advice="Does this work? ssh USER@SERVER docker version",
    )
