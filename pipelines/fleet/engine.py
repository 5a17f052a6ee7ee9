"""What carries works to hosts, as the dispatcher sees it: Dask's workers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pipelines.fleet.model import Ended, Work


class Engine(Protocol):
    """Starts works where it is told to and tells how they ended; it decides nothing."""

    def now(self) -> float:
        """Seconds since the epoch."""

    def alive(self) -> frozenset[str]:
        """The hosts that have a driver at this moment."""

    def ask(self, host: str) -> None:
        """Have a driver for the host: start it, or look again whether it is back.

        Returns at once; :meth:`alive` has it once it is there, :meth:`why` what keeps it away.
        Asking for one that is there, or on its way, changes nothing.
        """

    def why(self, host: str) -> str:
        """Why it is not alive; empty while it is on its way, or nobody asked for it."""

    def give(self, host: str) -> None:
        """Give back a host that is made on demand: nothing waits for it. Returns at once."""

    def start(self, work: Work, host: str, attempt: int) -> None:
        """Have the driver of ``host`` begin, or take up again what it began."""

    def cancel(self, key: str) -> None:
        """End the work that was started, wherever it is; its end is told as any other."""

    def withdraw(self, work: Work, host: str, attempt: int) -> None:
        """End what a lost attempt may have left running at ``host``: it goes on elsewhere.

        Told as an end of that attempt: ``lost`` where nobody could look, anything else when
        nothing of it runs there any more.
        """

    def wait(self, timeout: float) -> Iterable[Ended]:
        """What has ended since the last call; at most ``timeout`` seconds until the first."""

    def close(self) -> None:
        """Leave: what runs on hosts goes on there."""
