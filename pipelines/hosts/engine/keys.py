"""The keys that all hosts have which a container engine makes."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from pipelines.hosts.base import HostConfig
from pipelines.hosts.engine.names import EngineName

#: An amount of memory or disk as Docker writes it.
Amount = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,5}[mMgGtT]$")]


class EngineKeys(HostConfig):
    """What hosts have in common that a container engine makes."""

    engine: EngineName | Literal[""] = ""
    """Where: a context of Docker's, or ``unix://``, ``ssh://USER@SERVER``, ``tcp://SERVER:2376``,
    ``npipe://``; default the context in use, or ``DOCKER_HOST``."""
    engine_tls: str | None = None
    """Directory with ca.pem, cert.pem and key.pem, for ``tcp://``."""
    memory: Amount = "8g"
    """How much it may use, such as 8g."""
    cpus: Annotated[float, Field(gt=0, le=1024)] | None = None
    """Processors that it may use; default all."""
    keep: bool = False
    """Whether it stays for the next command; else each command line has a fresh one."""
    start_minutes: Annotated[float, Field(gt=0, le=24 * 60)] = 2.0
    """How long it may take to be ready."""

    @property
    def cores(self) -> int | None:
        """``cpus`` in whole ones: compile units at a time."""
        return None if self.cpus is None else max(1, math.floor(self.cpus))


def in_bytes(amount: str) -> int:
    """``8g`` in bytes."""
    return int(amount[:-1]) << {"m": 20, "g": 30, "t": 40}[amount[-1].lower()]
