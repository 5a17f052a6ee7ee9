"""What a plan needs to know of a host, from any source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.core.units import GIB
from pipelines.hosts.base import HostConfig
from pipelines.remote import facts, limits


@dataclass(frozen=True)
class HostFacts:
    """Sizes in bytes; no cores: unknown. ``commit``: what Windows may still reserve."""

    cores: int
    memory: int
    commit: int | None = None
    native: tuple[str, ...] | None = None
    """Compute capabilities of its GPUs; ``None`` when it was not asked."""
    msvc: str | None = None
    """Version of its toolset; ``None`` when it is not known."""
    origin: str = "this machine"
    """Where this comes from, for people."""

    @property
    def usable(self) -> int:
        """The memory for compilers: the smaller of memory and commit limit."""
        return self.memory if self.commit is None else min(self.memory, self.commit)

    @classmethod
    def local(cls) -> HostFacts:
        """The machine this runs on."""
        return cls(cores=limits.cores(), memory=facts.memory().get("total", 8 * GIB))

    @classmethod
    def unasked(cls, name: str, host: HostConfig) -> HostFacts:
        """What pipeline.yaml and this machine know of a host; no cores: nothing."""
        cores, memory = host.size
        return cls(cores=cores, memory=memory, origin=name)

    @classmethod
    def from_session(
        cls,
        said: Mapping[str, Any],
        *,
        name: str,
        native: tuple[str, ...] | None = None,
        msvc: str | None = None,
    ) -> HostFacts:
        """From the answer of ``facts.facts``; what is not a number is ignored."""
        memory = said.get("memory") or {}
        total, commit = memory.get("total"), memory.get("commit_available")
        cores = said.get("cpus")
        return cls(
            cores=cores if isinstance(cores, int) and cores > 0 else 1,
            memory=total if isinstance(total, int) and total > 0 else 8 * GIB,
            commit=commit if isinstance(commit, int) and commit > 0 else None,
            native=native,
            msvc=msvc,
            origin=name,
        )
