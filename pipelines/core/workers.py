"""Runs tasks in processes that may die or hang without affecting the others.

``concurrent.futures`` cannot stop a running task, and one dead process breaks its whole pool:
https://docs.python.org/3/library/concurrent.futures.html#concurrent.futures.process.BrokenProcessPool
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

_START = 120.0  # seconds in which a process is there, on the busiest machine
_WAIT = 3600.0  # at once: a selector takes no more than 24 days
Item = TypeVar("Item")
Result = TypeVar("Result")


class DiedError(Exception):
    """The process ended without a result."""


class TimedOutError(Exception):
    """The process was killed after its time limit."""


@dataclass
class _Worker(Generic[Result]):
    """A process that runs one task at a time."""

    process: multiprocessing.process.BaseProcess
    pipe: Connection[Any, Any]
    number: int = 0
    until: float = 0.0
    ready: bool = False

    def answer(self) -> Result | Exception:
        """Its result, or the exception instead of one."""
        if not self.pipe.poll():
            return TimedOutError()
        try:
            result: Result | Exception = self.pipe.recv()
        except (EOFError, OSError):
            return DiedError()
        except Exception as error:  # an exception that cannot be unpickled
            return error
        return result

    def end(self) -> None:
        """Kill it: it has nothing to clean up."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


def run_isolated(
    work: Callable[[Item], Result], items: Sequence[Item], workers: int, seconds: float
) -> Generator[tuple[int, Result | Exception]]:
    """The number of each item and the result of ``work(item)``, in the order of completion.

    An exception, raised by ``work`` or one of the two above, takes the place of a result. ``work``
    is a module-level function. ``seconds`` is the limit for each item, process start excluded.
    """
    context = multiprocessing.get_context("spawn")  # the program has threads of its own
    waiting = deque(enumerate(items))
    idle: list[_Worker[Result]] = []
    busy: dict[Connection[Any, Any], _Worker[Result]] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < workers:
                worker = idle.pop() if idle else _start_worker(context, work)
                worker.number, item = waiting.popleft()
                worker.until = time.monotonic() + (seconds if worker.ready else _START)
                busy[worker.pipe] = worker
                with suppress(BrokenPipeError):  # it died while idle: its result will show that
                    worker.pipe.send(item)
            soonest = min(worker.until for worker in busy.values()) - time.monotonic()
            ready = {*wait([*busy], min(max(soonest, 0), _WAIT))}
            now = time.monotonic()
            for pipe in [
                pipe for pipe, worker in busy.items() if pipe in ready or worker.until <= now
            ]:
                worker = busy.pop(pipe)
                result = worker.answer()
                if not worker.ready and result is None:
                    worker.ready, worker.until = True, now + seconds
                    busy[pipe] = worker
                    continue
                if isinstance(result, DiedError | TimedOutError):
                    worker.end()
                else:
                    idle.append(worker)
                yield worker.number, result
    finally:
        for worker in (*idle, *busy.values()):
            worker.end()


def _start_worker(context: Any, work: Callable[[Any], Result]) -> _Worker[Result]:
    ours, theirs = context.Pipe()
    process = context.Process(target=_worker_main_loop, args=(theirs, work), daemon=True)
    process.start()
    theirs.close()  # or the end of the process would go unnoticed
    return _Worker(process, ours)


def _worker_main_loop(pipe: Connection[Any, Any], work: Callable[[Any], Any]) -> None:
    """Main loop of the process, until its pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends it
    os.dup2(2, 1)  # standard output is reserved for --json
    pipe.send(None)  # ready: everything is imported
    while True:
        try:
            item = pipe.recv()
        except EOFError:
            return
        try:
            result = work(item)
        except Exception as error:
            result = error
        pipe.send(result)
