"""Connecting to a container engine: its address, its keys, and why it cannot be reached."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import ssl
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import docker
import requests
import urllib3
from docker.tls import TLSConfig
from requests.exceptions import Timeout

from pipelines.core.errors import ConfigError, HostError, PipelineError, SetupError, error_class
from pipelines.core.hosttext import safe_text
from pipelines.core.refusals import refusal_error
from pipelines.hosts.engine.error_patterns import match_pattern
from pipelines.hosts.engine.transport import Client, Ssh, SshError

DEFAULT = "unix:///var/run/docker.sock"


@dataclass(frozen=True)
class Context:
    """A name that ``docker context create`` gives to an engine.

    The SDK reads them too, but finds none without a config.json, looks into the current directory
    then, and does not verify an engine's certificate unless the file says so.
    """

    host: str
    tls: TLSConfig | None = None


def current_context_name() -> str:
    """The name of the current context; ``default`` if none is selected."""
    if chosen := os.environ.get("DOCKER_CONTEXT"):
        return chosen
    file = _home() / "config.json"
    settings = _read_docker_context(file, "default") if file.is_file() else {}
    return str(settings.get("currentContext") or "default")


def load_docker_context(name: str) -> Context:
    """The context of that name; :class:`ConfigError` if it does not exist or cannot be read."""
    if name == "default":
        return Context("npipe:////./pipe/docker_engine" if os.name == "nt" else DEFAULT)
    identity = hashlib.sha256(name.encode()).hexdigest()
    file = _home() / "contexts/meta" / identity / "meta.json"
    if not file.is_file():
        raise ConfigError(
            f"Docker has no context '{name}'; it has "
            + safe_text(", ".join(_docker_context_names()), 400),
            hint=f"Type: docker context create {name} --docker host=ssh://USER@SERVER, or "
            "give 'engine' a URL.",
        )
    endpoint = _read_docker_context(file, name).get("Endpoints", {}).get("docker")
    if not isinstance(endpoint, dict) or not isinstance(endpoint.get("Host"), str):
        raise _unreadable_context_error(name, f"{file} does not name an engine host")
    keys = _home() / "contexts/tls" / identity / "docker"
    ca, mine = keys / "ca.pem", (str(keys / "cert.pem"), str(keys / "key.pem"))
    tls = None
    if keys.is_dir():
        tls = TLSConfig(
            ca_cert=str(ca) if ca.is_file() else None,
            client_cert=mine if all(Path(file).is_file() for file in mine) else None,
            verify=endpoint.get("SkipTLSVerify") is not True,
        )
    return Context(endpoint["Host"], tls)


def _docker_context_names() -> list[str]:
    files = sorted((_home() / "contexts/meta").glob("*/meta.json"))
    return sorted(
        {
            "default",
            *(str(_read_docker_context(file, file.parent.name).get("Name")) for file in files),
        }
    )


def _home() -> Path:
    return Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")


def _read_docker_context(file: Path, name: str) -> dict[str, Any]:
    try:
        data = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise _unreadable_context_error(name, f"{file}: {error}") from error
    if not isinstance(data, dict) or not isinstance(data.get("Endpoints", {}), dict):
        raise _unreadable_context_error(name, f"{file} is not a context description")
    return data


def _unreadable_context_error(name: str, why: str) -> ConfigError:
    return ConfigError(
        f"Docker context '{name}' cannot be read: {safe_text(why, 300)}",
        hint=f"Type: docker context inspect {name}",
    )


_FILE = Path(__file__).with_name("unreachable.yaml")
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def engine_address(name: str) -> str:
    """The address for a name: a URL itself; empty means ``DOCKER_HOST`` or the context."""
    if "://" in name:
        return name
    if not name and (chosen := os.environ.get("DOCKER_HOST")):
        return chosen
    return load_docker_context(name or current_context_name()).host


def connect_to_engine(name: str, tls: Path | None, timeout: float) -> docker.DockerClient:
    """The SDK's client for an engine; raises what the SDK does, and ``ConfigError``."""
    url = engine_address(name)
    keys: dict[str, Any] = {"base_url": url, "timeout": int(timeout)}
    if url.startswith("npipe:"):
        if sys.platform != "win32":
            raise ConfigError(
                f"engine {url}: a named pipe works only on the Windows machine itself",
                hint="From here use ssh://USER@SERVER, or tcp://SERVER:2376 with 'engine_tls'.",
            )
        from pipelines.hosts.engine.pipe import Pipes  # it needs Windows-only packages

        keys["way"] = Pipes(url, int(timeout))
    if url.startswith("ssh://"):
        if sys.platform == "win32":  # programs there cannot use a socket as input
            keys["use_ssh_client"] = True
        else:
            keys |= {"base_url": "unix:///ssh", "way": Ssh(url, timeout)}
    elif url.startswith("tcp://"):
        keys["tls"] = _tls(tls) or _own_tls(name)
        if not keys["tls"] and urlsplit(url).hostname not in LOOPBACK:
            raise ConfigError(
                f"engine {url}: plain tcp gives anyone who connects full control of its machine",
                hint="Set 'engine_tls' to a directory with ca.pem, cert.pem and key.pem, "
                "or use ssh://USER@SERVER.",
            )
    return Client(**keys)


def _own_tls(name: str) -> TLSConfig | None:
    """The keys that Docker itself would use: those of the context, or of the environment."""
    if "://" in name:
        return None
    if name or not os.environ.get("DOCKER_HOST"):
        return load_docker_context(name or current_context_name()).tls
    place = os.environ.get("DOCKER_CERT_PATH") or Path.home() / ".docker"
    return _tls(Path(place)) if os.environ.get("DOCKER_TLS_VERIFY") else None


def _tls(folder: Path | None) -> TLSConfig | None:
    if folder is None:
        return None
    ca, certificate, key = (folder / name for name in ("ca.pem", "cert.pem", "key.pem"))
    for file in (ca, certificate, key):
        if not file.is_file():
            raise ConfigError(
                f"engine_tls: {file} does not exist",
                hint="It needs ca.pem, cert.pem and key.pem, as described in Docker's page on "
                "protecting the daemon socket.",
            )
    return TLSConfig(client_cert=(str(certificate), str(key)), ca_cert=str(ca), verify=True)


def describe_engine(name: str) -> str:
    """An engine's name for people: its address, or how it was selected."""
    if name:
        return name
    if chosen := os.environ.get("DOCKER_HOST"):
        return f"{safe_text(chosen, 200)} (DOCKER_HOST)"
    if (used := current_context_name()) != "default":
        return f"{safe_text(engine_address(''), 200)} (Docker's context '{safe_text(used, 100)}')"
    return engine_address("")


def _iter_error_causes(error: BaseException) -> Iterator[BaseException]:
    at: BaseException | None = error
    while at is not None:
        yield at
        for inner in at.args:  # requests wraps urllib3's errors
            if isinstance(inner, BaseException):
                yield from _iter_error_causes(inner)
        at = at.__cause__ or at.__context__


#: Errors of the chain -> what each means.
_CAUSES: tuple[tuple[str, tuple[type[BaseException], ...]], ...] = (
    ("silent", (TimeoutError, Timeout)),
    ("absent", (FileNotFoundError,)),
    ("denied", (PermissionError,)),
    ("refused", (ConnectionRefusedError,)),
    ("unknown-name", (socket.gaierror,)),
    ("tls", (ssl.SSLError, urllib3.exceptions.SSLError, requests.exceptions.SSLError)),
)


def unreachable_engine_error(name: str, error: BaseException) -> PipelineError:
    """Why no engine was reached: the reason is at the end of the chain of errors."""
    where = describe_engine(name)
    for cause in reversed([*_iter_error_causes(error)]):
        if (known := _translate_cause(cause, name, where)) is not None:
            return known
    text = safe_text(str(error), 300)
    return _understood(text, where) or HostError(
        f"the Docker engine at {where} does not answer: {text}",
        hint="Check its address: docker context ls",
    )


def _understood(text: str, where: str) -> PipelineError | None:
    """The error of the matching pattern."""
    if (known := match_pattern(text)) is None:
        return None
    row, says = known
    return error_class(row.kind)(f"the Docker engine at {where}: {says}: {text}", hint=row.hint)


def _missing_socket_hint(name: str) -> str:
    """The hint if there is no socket: a configured address may be wrong."""
    windows = sys.platform == "win32"
    if not name and not os.environ.get("DOCKER_HOST") and current_context_name() == "default":
        install = "Start Docker Desktop" if windows else "Type: sudo apt-get install docker.io"
        return f"{install} (or set 'engine' of the host)."
    chosen = "'engine' of the host" if name else "DOCKER_HOST or the current context"
    return f"Check the spelling of {chosen}; docker context ls lists the contexts" + (
        "." if windows else f". The default is {DEFAULT}, from the package docker.io."
    )


def _translate_cause(cause: BaseException, name: str, where: str) -> PipelineError | None:
    """The error for one link of the chain, if it is known."""
    if isinstance(cause, PipelineError):
        return cause
    if isinstance(cause, SshError):
        return _over_ssh(str(cause), where)
    if isinstance(cause, FileNotFoundError) and cause.filename == "ssh":
        return SetupError(
            "an engine over ssh needs the program ssh", hint="Install: openssh-client."
        )
    for key, types in _CAUSES:
        if isinstance(cause, types):
            error = refusal_error(_FILE, key, where=where, cause=safe_text(str(cause), 200))
            error.hint = error.hint or _missing_socket_hint(name)
            return error
    return None


def _over_ssh(text: str, where: str) -> PipelineError:
    return _understood(text, where) or HostError(
        f"the Docker engine at {where}: {text}",
        hint="Check that this works: ssh USER@SERVER docker version",
    )
