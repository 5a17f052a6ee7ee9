"""The keys of ``pipeline.yaml`` common to all hosts on a container engine.

Importing it does not import the SDK, which takes 0.7 s.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, StringConstraints

from pipelines.core.finding import Finding
from pipelines.hosts.base import HostConfig, OwnedItem
from pipelines.hosts.bounds import Amount, in_bytes
from pipelines.remote import limits

if TYPE_CHECKING:
    from pipelines.hosts.engine.engine import Engine

#: ``engine`` of a host: a URL, or the name of a Docker context.
EngineName = Annotated[
    str,
    StringConstraints(pattern=r"^((unix|ssh|tcp|npipe)://[^\s?#]+|[A-Za-z0-9][A-Za-z0-9_.+-]*)$"),
]


class EngineKeys(HostConfig):
    """The keys common to all hosts on a container engine."""

    engine: EngineName | Literal[""] = ""
    """The engine: a Docker context, or ``unix://``, ``ssh://USER@SERVER``, ``tcp://SERVER:2376``,
    ``npipe://``; default the current context, or ``DOCKER_HOST``."""
    engine_tls: str | None = None
    """Directory with ca.pem, cert.pem and key.pem, for ``tcp://``."""
    memory: Amount = "8g"
    """Memory limit, such as 8g."""
    cpus: Annotated[float, Field(gt=0, le=1024)] | None = None
    """Processor limit; default all."""
    keep: bool = False
    """Whether it is kept for the next command; otherwise each command line starts a fresh one."""
    start_minutes: Annotated[float, Field(gt=0, le=24 * 60)] = 2.0
    """How long it may take to become ready."""

    def reach(self, seconds: float | None = None) -> Engine:
        """Its engine, with a timeout for each response; raises what :class:`Engine` does."""
        from pipelines.hosts.engine.engine import TIMEOUT, Engine

        tls = Path(self.engine_tls).expanduser() if self.engine_tls else None
        return Engine(self.engine, tls=tls, timeout=seconds or TIMEOUT)

    def missing(self) -> Iterable[Finding]:
        """The engine, if it is to be on this machine; others are not asked."""
        from pipelines.hosts.engine.reach import engine_address

        where = engine_address(self.engine)
        if where.startswith("unix://") and not Path(where.removeprefix("unix://")).exists():
            yield Finding(
                id="host-engine",
                level="error",
                actual=f"no Docker engine at {where}",
                hint="start one there, or name another with 'engine' of this host in pipeline.yaml",
            )

    @property
    def size(self) -> tuple[int, int]:
        """Those of pipeline.yaml; without a limit, as many processors as here."""
        return math.ceil(self.cpus or limits.cores()), in_bytes(self.memory)

    @property
    def place(self) -> str:
        """Its engine."""
        return f"engine {self.engine}" if self.engine else "the default Docker engine"

    def owned_items(self, hosts: Mapping[str, HostConfig]) -> Iterable[OwnedItem]:
        """Containers, volumes and images on its engine; raises what :class:`Engine` does."""
        from pipelines.hosts.images.inventory import list_image_items, list_owned_items

        # Of every engine: two hosts may name one engine by a context and by its address.
        there = {name: host for name, host in hosts.items() if isinstance(host, EngineKeys)}
        engine = self.reach()
        keeps = {name: host.keep for name, host in there.items()}
        return chain(
            list_owned_items(engine, keeps, {config.kind for config in there.values()}),
            list_image_items(engine),
        )

    @property
    def cores(self) -> int | None:
        """``cpus`` rounded to parallel compile jobs."""
        return None if self.cpus is None else max(1, math.floor(self.cpus))
