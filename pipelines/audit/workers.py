"""Many pieces of work, each in a process that may die or hang without harm to the others.

``concurrent.futures`` cannot end what runs, and one process that dies breaks its whole pool:
https://docs.python.org/3/library/concurrent.futures.html#concurrent.futures.process.BrokenProcessPool
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

_START = 120.0  # seconds in which a process is there, on the busiest machine
_WAIT = 3600.0  # at once: a selector takes no more than 24 days
Item = TypeVar("Item")
Result = TypeVar("Result")


class DiedError(Exception):
    """The process ended without an answer."""


class TookLongerError(Exception):
    """It was ended, for it had taken as long as it may."""


@dataclass
class _Worker(Generic[Result]):
    """A process that does one piece of work at a time."""

    process: multiprocessing.process.BaseProcess
    pipe: Connection[Any, Any]
    number: int = 0
    until: float = 0.0
    ready: bool = False

    def answer(self) -> Result | Exception:
        """What came of it; an exception where it came to nothing."""
        if not self.pipe.poll():
            return TookLongerError()
        try:
            found: Result | Exception = self.pipe.recv()
        except (EOFError, OSError):
            return DiedError()
        except Exception as error:  # of an error that cannot be made again of what was sent
            return error
        return found

    def end(self) -> None:
        """At once: there is nothing that it must put in order."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


def each_apart(
    work: Callable[[Item], Result], items: Sequence[Item], workers: int, seconds: float
) -> Generator[tuple[int, Result | Exception]]:
    """The number of each item and what ``work`` makes of it, as they are done.

    Instead of a result there is the exception that it raised, or one of the two above. ``work`` is
    a function of a module. ``seconds`` hold for each item, from when its process has started.
    """
    context = multiprocessing.get_context("spawn")  # the program has threads of its own
    waiting = deque(enumerate(items))
    idle: list[_Worker[Result]] = []
    busy: dict[Connection[Any, Any], _Worker[Result]] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < workers:
                worker = idle.pop() if idle else _started(context, work)
                worker.number, item = waiting.popleft()
                worker.until = time.monotonic() + (seconds if worker.ready else _START)
                busy[worker.pipe] = worker
                _send(worker, item)
            soonest = min(worker.until for worker in busy.values()) - time.monotonic()
            ready = {*wait([*busy], min(max(soonest, 0), _WAIT))}
            now = time.monotonic()
            for pipe in [pipe for pipe, one in busy.items() if pipe in ready or one.until <= now]:
                worker = busy.pop(pipe)
                found = worker.answer()
                if not worker.ready and found is None:
                    worker.ready, worker.until = True, now + seconds
                    busy[pipe] = worker
                    continue
                if isinstance(found, DiedError | TookLongerError):
                    worker.end()
                else:
                    idle.append(worker)
                yield worker.number, found
    finally:
        for worker in (*idle, *busy.values()):
            worker.end()


def _started(context: Any, work: Callable[[Any], Result]) -> _Worker[Result]:
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, work), daemon=True)
    process.start()
    theirs.close()  # or its end would not be seen
    return _Worker(process, ours)


def _send(worker: _Worker[Any], item: object) -> None:
    try:
        worker.pipe.send(item)
    except BrokenPipeError:  # it has died while it was idle: that is read where its answer would be
        return


def _serve(pipe: Connection[Any, Any], work: Callable[[Any], Any]) -> None:
    """In the process, until its end is taken away."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one that started it ends it
    os.dup2(2, 1)  # standard output is for what a program reads, and none of it is said here
    pipe.send(None)  # all that the work needs has been imported
    while True:
        try:
            item = pipe.recv()
        except EOFError:
            return
        try:
            found = work(item)
        except Exception as error:
            found = error
        pipe.send(found)
