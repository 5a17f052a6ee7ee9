"""Docker contexts: names that ``docker context create`` gives to engines.

The SDK reads them too, but finds none without a config.json, looks into the current directory
then, and does not verify an engine's certificate unless the file says so.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker.tls import TLSConfig

from pipelines.core.errors import ConfigError
from pipelines.core.hosttext import safe

DEFAULT = "unix:///var/run/docker.sock"


@dataclass(frozen=True)
class Context:
    """A named engine."""

    host: str
    tls: TLSConfig | None = None


def in_use() -> str:
    """The name of the current context; ``default`` if none is selected."""
    if chosen := os.environ.get("DOCKER_CONTEXT"):
        return chosen
    file = _home() / "config.json"
    settings = _read(file, "default") if file.is_file() else {}
    return str(settings.get("currentContext") or "default")


def context(name: str) -> Context:
    """The context of that name; :class:`ConfigError` if it does not exist or cannot be read."""
    if name == "default":
        return Context("npipe:////./pipe/docker_engine" if os.name == "nt" else DEFAULT)
    identity = hashlib.sha256(name.encode()).hexdigest()
    file = _home() / "contexts/meta" / identity / "meta.json"
    if not file.is_file():
        raise ConfigError(
            f"Docker has no context '{name}'; it has {safe(', '.join(_names()), 400)}",
            hint=f"Type: docker context create {name} --docker host=ssh://USER@SERVER, or "
            "give 'engine' a URL.",
        )
    endpoint = _read(file, name).get("Endpoints", {}).get("docker")
    if not isinstance(endpoint, dict) or not isinstance(endpoint.get("Host"), str):
        raise _unreadable(name, f"{file} does not name an engine host")
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


def _names() -> list[str]:
    files = sorted((_home() / "contexts/meta").glob("*/meta.json"))
    return sorted({"default", *(str(_read(file, file.parent.name).get("Name")) for file in files)})


def _home() -> Path:
    return Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")


def _read(file: Path, name: str) -> dict[str, Any]:
    try:
        data = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise _unreadable(name, f"{file}: {error}") from error
    if not isinstance(data, dict) or not isinstance(data.get("Endpoints", {}), dict):
        raise _unreadable(name, f"{file} is not a context description")
    return data


def _unreadable(name: str, why: str) -> ConfigError:
    return ConfigError(
        f"Docker context '{name}' cannot be read: {safe(why, 300)}",
        hint=f"Type: docker context inspect {name}",
    )
