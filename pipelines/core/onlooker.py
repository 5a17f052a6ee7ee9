"""One of several tasks in this process: who hears of it, and may have it stop.

Several runs in one process, each in its own thread, must not share a terminal. Within
:func:`reporting_to` what a task says reaches its onlooker alone; nothing else of the program has to
know that there are others. Threads that a task starts itself are not within.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console


class LeaveError(KeyboardInterrupt):
    """A task is to stop where it is; what runs on its host goes on there.

    Like Ctrl-C it is no error: a run that it ends is taken up again.
    """


class Onlooker(Protocol):
    """Who hears of one task."""

    console: Console
    """Where everything goes that is printed."""

    def stage(self, name: str) -> None:
        """A stage begins."""

    def units(self, done: int, total: int) -> None:
        """So many compile units of so many are finished."""

    def heed(self) -> None:
        """Asked now and then: raises :class:`LeaveError` when the task is to stop."""


_onlooker: ContextVar[Onlooker | None] = ContextVar("onlooker", default=None)


def onlooker() -> Onlooker | None:
    """Whoever hears of this task; ``None``: the terminal is its own."""
    return _onlooker.get()


@contextmanager
def reporting_to(one: Onlooker) -> Iterator[None]:
    """Within it ``one`` hears of what this thread does."""
    before = _onlooker.set(one)
    try:
        yield
    finally:
        _onlooker.reset(before)


def tell_stage(name: str) -> None:
    """A stage begins; raises :class:`LeaveError` when the task is to stop instead."""
    heed()
    if (one := onlooker()) is not None:
        one.stage(name)


def tell_units(done: int, total: int) -> None:
    """So many compile units of so many are finished."""
    if (one := onlooker()) is not None:
        one.units(done, total)


def heed() -> None:
    """Raise :class:`LeaveError` when the task is to stop."""
    if (one := onlooker()) is not None:
        one.heed()
