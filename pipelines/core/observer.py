"""One of several tasks in this process: who observes it, and may stop it.

Several runs in one process, each in its own thread, must not share a terminal. Within
:func:`reporting_to` a task's output goes to its observer only. Threads that a task starts itself
are not included.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console


class StopTaskError(KeyboardInterrupt):
    """A task is to stop where it is; what runs on its host goes on there.

    Like Ctrl-C it is no error: a run that it ends is taken up again.
    """


class Observer(Protocol):
    """Receives what one task reports, and can stop it."""

    console: Console
    """Where everything goes that is printed."""

    def stage(self, name: str) -> None:
        """A stage begins."""

    def units(self, done: int, total: int) -> None:
        """So many compile units of so many are finished."""

    def check_stop(self) -> None:
        """Called now and then: raises :class:`StopTaskError` when the task is to stop."""


_observer: ContextVar[Observer | None] = ContextVar("observer", default=None)


def current_observer() -> Observer | None:
    """The observer of this task; ``None``: the terminal is its own."""
    return _observer.get()


@contextmanager
def reporting_to(one: Observer) -> Iterator[None]:
    """Within it this thread reports to ``one``."""
    before = _observer.set(one)
    try:
        yield
    finally:
        _observer.reset(before)


def report_stage(name: str) -> None:
    """A stage begins; raises :class:`StopTaskError` when the task is to stop instead."""
    check_stop()
    if (one := current_observer()) is not None:
        one.stage(name)


def report_units(done: int, total: int) -> None:
    """So many compile units of so many are finished."""
    if (one := current_observer()) is not None:
        one.units(done, total)


def check_stop() -> None:
    """Raise :class:`StopTaskError` when the task is to stop."""
    if (one := current_observer()) is not None:
        one.check_stop()
