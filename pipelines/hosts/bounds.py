"""What a host may use of its machine, where that is less than the machine tells."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.remote.facts import Facts, Memory


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What a host may use of its machine; ``None``: all of it."""

    cores: int | None = None
    memory: int | None = None
    """Bytes."""

    def apply(self, facts: Facts) -> Facts:
        """What a host says of itself, within its bounds: it sees the whole machine."""
        bounded = facts.copy()
        if self.cores is not None:
            bounded["cpus"] = _least(facts.get("cpus"), self.cores)
        if (most := self.memory) is not None:
            told = facts.get("memory") or {}
            bounded["memory"] = Memory(
                total=_least(told.get("total"), most),
                available=_least(told.get("available"), most),
                commit_limit=_least(told.get("commit_limit"), most),
                commit_available=_least(told.get("commit_available"), most),
            )
        return bounded


def _least(told: object, most: int) -> int:
    """A number that a host told, if it did, within a bound."""
    return min(told, most) if isinstance(told, int) else most
