"""What hosts have in common that a container engine makes: keys of ``pipeline.yaml``.

The SDK, which takes 0.7 s to import, is not imported with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, StringConstraints

from pipelines.hosts.base import HostConfig, Thing

if TYPE_CHECKING:
    from pipelines.hosts.engine.engine import Engine

#: ``engine`` of a host: a URL, or the name of a context of Docker's.
EngineName = Annotated[
    str,
    StringConstraints(pattern=r"^((unix|ssh|tcp|npipe)://[^\s?#]+|[A-Za-z0-9][A-Za-z0-9_.+-]*)$"),
]
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
    def made(self) -> bool:
        """Unless it stays for the next command."""
        return not self.keep

    def reach(self, seconds: float | None = None) -> Engine:
        """Its engine, which may take so long for each answer; raises what :class:`Engine` does."""
        from pipelines.hosts.engine.engine import TIMEOUT, Engine

        tls = Path(self.engine_tls).expanduser() if self.engine_tls else None
        return Engine(self.engine, tls=tls, timeout=seconds or TIMEOUT)

    @property
    def place(self) -> str:
        """Its engine."""
        return f"engine {self.engine}" if self.engine else "Docker's own engine"

    def things(self, hosts: Mapping[str, HostConfig]) -> Iterable[Thing]:
        """Containers, volumes and images on its engine; raises what :class:`Engine` does."""
        from pipelines.hosts.engine.inventory import items
        from pipelines.hosts.images.inventory import images

        # Of every engine: two hosts may name one by a context and by its address.
        there = {name: host for name, host in hosts.items() if isinstance(host, EngineKeys)}
        engine = self.reach()
        keeps = {name: host.keep for name, host in there.items()}
        return chain(items(engine, keeps, {one.kind for one in there.values()}), images(engine))

    @property
    def cores(self) -> int | None:
        """``cpus`` in whole ones: compile units at a time."""
        return None if self.cpus is None else max(1, math.floor(self.cpus))


def in_bytes(amount: str) -> int:
    """``8g`` in bytes."""
    return int(amount[:-1]) << {"m": 20, "g": 30, "t": 40}[amount[-1].lower()]
