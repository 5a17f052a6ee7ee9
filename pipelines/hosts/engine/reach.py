"""The way to a container engine: its address, its keys, and why there is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import docker
from docker.context import ContextAPI
from docker.tls import TLSConfig

from pipelines.errors import ConfigError, HostError, PipelineError, SetupError
from pipelines.hosttext import safe

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def target(name: str) -> str:
    """The address behind a name: a URL is its own."""
    if "://" in name or not name:
        return name
    context = ContextAPI.get_context(name)
    return str(context.Host) if context is not None else ""


def connect(name: str, tls: Path | None, timeout: float) -> docker.DockerClient:
    """The SDK's client for an engine by its name; raises what the SDK does, and ``ConfigError``."""
    if not name:
        return docker.from_env(timeout=int(timeout))
    keys: dict[str, Any] = {}
    url = name
    if "://" not in name:
        try:
            context = ContextAPI.get_context(name)
        except Exception as error:  # the SDK raises plain ones for a damaged file
            raise ConfigError(
                f"Docker's context '{name}' cannot be read: {safe(str(error), 200)}",
                advice=f"Type: docker context inspect {name}",
            ) from error
        if context is None:
            known = ", ".join(one.Name for one in ContextAPI.contexts())
            raise ConfigError(
                f"Docker has no context '{name}'; it has {known}",
                advice=f"Type: docker context create {name} --docker host=ssh://USER@SERVER, or "
                "give 'engine' a URL.",
            )
        url = str(context.Host)
        keys["tls"] = context.TLSConfig
    if url.startswith("ssh://"):
        keys["use_ssh_client"] = True  # its keys, its known hosts, its configuration
    if url.startswith("tcp://"):
        keys["tls"] = _tls(tls) or keys.get("tls")
        if not keys["tls"] and urlsplit(url).hostname not in LOOPBACK:
            raise ConfigError(
                f"engine {url}: whoever reaches an engine over plain tcp owns its machine",
                advice="Give 'engine_tls', a directory with ca.pem, cert.pem and key.pem, "
                "or use ssh://USER@SERVER.",
            )
    return docker.DockerClient(base_url=url, timeout=int(timeout), **keys)


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
    for cause in _causes(error):
        if (known := _known(cause, shown(name))) is not None:
            return known
    said = str(error)
    if "only supported on Windows" in said or name.startswith("npipe:"):
        return ConfigError(
            f"engine {name}: that is a pipe of a Windows machine",
            advice="From here: ssh://USER@SERVER, or tcp://SERVER:2376 with 'engine_tls'.",
        )
    return HostError(
        f"the Docker engine at {shown(name)} does not answer: {safe(said, 300)}",
        advice="Is that its address? Compare: docker context ls",
    )


def _known(cause: BaseException, where: str) -> PipelineError | None:
    """What one link of the chain means, if it means something."""
    if isinstance(cause, PipelineError):
        return cause
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
    if "SSL" in type(cause).__name__:
        return HostError(
            f"the Docker engine at {where} was not recognised: {safe(str(cause), 200)}",
            advice="Port 2376 wants TLS: 'engine_tls' is the directory with ca.pem, cert.pem "
            "and key.pem. Port 2375 has none.",
        )
    return None
