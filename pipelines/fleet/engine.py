"""What carries works to hosts, as the dispatcher sees it: Dask's workers, or a simulated clock."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pipelines.fleet.model import Ended, Work


class Engine(Protocol):
    """Starts works where it is told to and tells how they ended; it decides nothing."""

    def now(self) -> float:
        """Seconds since the epoch, or of the simulation."""

    def alive(self) -> frozenset[str]:
        """The hosts that have a driver at this moment."""

    def start(self, work: Work, host: str, attempt: int) -> None:
        """Have the driver of ``host`` begin, or take up again what it began."""

    def cancel(self, key: str) -> None:
        """End the work, wherever it is; its end is told as any other."""

    def wait(self, timeout: float) -> Iterable[Ended]:
        """What has ended since the last call; at most ``timeout`` seconds until the first."""

    def close(self) -> None:
        """Leave: what runs on hosts goes on there."""
