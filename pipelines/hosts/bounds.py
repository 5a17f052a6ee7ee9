"""Limits on what a host may use of its machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import StringConstraints

from pipelines.remote.facts import Facts, Memory

#: An amount of memory or disk in Docker's notation.
Amount = Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,5}[mMgGtT]$")]


def in_bytes(amount: str) -> int:
    """``8g`` in bytes."""
    return int(amount[:-1]) << {"m": 20, "g": 30, "t": 40}[amount[-1].lower()]


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What a host may use of its machine; ``None``: everything."""

    cores: int | None = None
    memory: int | None = None
    """Bytes."""

    def apply(self, facts: Facts) -> Facts:
        """A host's facts within its limits: it sees the complete machine."""
        bounded = facts.copy()
        if self.cores is not None:
            bounded["cpus"] = _cap_reported_value(facts.get("cpus"), self.cores)
        if (most := self.memory) is not None:
            memory = facts.get("memory") or {}
            bounded["memory"] = Memory(
                total=_cap_reported_value(memory.get("total"), most),
                available=_cap_reported_value(memory.get("available"), most),
                commit_limit=_cap_reported_value(memory.get("commit_limit"), most),
                commit_available=_cap_reported_value(memory.get("commit_available"), most),
            )
        return bounded


def _cap_reported_value(reported: object, most: int) -> int:
    """A number reported by a host, if any, within a limit."""
    return min(reported, most) if isinstance(reported, int) else most
