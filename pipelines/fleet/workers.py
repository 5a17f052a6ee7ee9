"""What does tasks at hosts: a thread for each, which says how it ended and whose fault that is."""

from __future__ import annotations

import contextlib
import logging
import queue
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TextIO

from pydantic import ValidationError
from rich.console import Console

from pipelines.core.errors import (
    AuthError,
    HostError,
    PipelineError,
    ProvisionError,
    RemoteError,
    SetupError,
    StorageError,
    TimeUpError,
    TransferError,
    UnexpectedError,
)
from pipelines.core.files import disk_errors
from pipelines.core.hosttext import safe_line, safe_text
from pipelines.core.observer import StopTaskError, reporting_to
from pipelines.core.tables import Trimming
from pipelines.fleet.model import (
    Details,
    Ended,
    Event,
    Outcome,
    Progress,
    Reached,
    Task,
    Withdrawn,
)
from pipelines.record.run import error_of
from pipelines.session.base import DeadHostError, FullHostError, UnfitHostError

_log = logging.getLogger(__name__)
#: Bytes without which this machine's own disk counts as full.
_FREE = 32 << 20
#: Seconds that tasks are given to leave what they do.
_LEAVE = 20.0
#: Seconds without a sign of an attempt after which its host counts as gone: longer than any one
#: step; the longest is an installation of Visual Studio.
_SILENCE = 4 * 3600.0
#: What is the host's fault, or that of the way to it: another host may do better.
_HOSTS = (HostError, TransferError, RemoteError, ProvisionError, SetupError, FullHostError)


@dataclass
class Result:
    """What a task left, as far as it came; filled while it runs."""

    run: str = ""
    """The run's directory."""
    details: Details = field(default_factory=dict)


class Executor(Protocol):
    """How tasks are done at one host."""

    def do(self, task: Task, result: Result) -> None:
        """Do it; raises what went wrong, :class:`StopTaskError` where it was to stop."""

    def withdraw(self, task: Task) -> None:
        """End what the task has left running there; raises what went wrong."""

    def reach(self) -> None:
        """Connect to the host and look at it; raises what speaks against it."""

    def unblock(self) -> None:
        """Break the connections, so that whoever waits on one sees that it is to leave."""

    def reachable(self) -> bool:
        """Whether the host can be reached, by a look at this moment."""


class _Attempt:
    """The observer of one attempt: its log, what it does now, and whether it is to stop."""

    def __init__(self, task: Task, number: int) -> None:
        self.task, self.number = task, number
        self.progress = Progress(key=task.key, kind=task.kind, began=time.time())
        self.console = Console(quiet=True)
        self.last_sign = time.monotonic()
        self.leave = threading.Event()
        self.cancelled = False
        self.host_gone = ""
        """Why its host is gone, if that is why it is to leave."""

    def log_to(self, log: TextIO) -> None:
        """Have what is said go into ``log``."""
        self.console = Console(
            file=log, width=120, highlight=False, soft_wrap=True, color_system=None
        )
        self.console.push_render_hook(Trimming())

    def stage(self, name: str) -> None:
        """A stage begins: nothing is known of its units."""
        self.last_sign = time.monotonic()
        update = {"stage": name, "done": None, "total": None}
        self.progress = self.progress.model_copy(update=update)

    def units(self, done: int, total: int) -> None:
        """So many compile units of so many."""
        self.progress = self.progress.model_copy(update={"done": done, "total": total})

    def check_stop(self) -> None:
        """Leave when asked to."""
        self.last_sign = time.monotonic()
        if self.leave.is_set():
            raise StopTaskError


_End = tuple[Outcome, PipelineError | None, bool]


class HostWorker:
    """Does the tasks of one host."""

    def __init__(self, name: str, executor: Executor, folder: Path) -> None:
        """``folder`` is the fleet's: each task has its log there."""
        self.name, self.executor, self.folder = name, executor, folder
        self.broken: StorageError | None = None
        """That this machine's own disk is full: no host is to blame."""
        self._lock = threading.Lock()
        self._going: dict[str, _Attempt] = {}
        self._strays: dict[str, _Attempt] = {}
        """Given up; their threads do not end."""
        self._leaving = False
        self._barred: AuthError | None = None
        """That the host refused the sign-in: not tried again, accounts are locked for that."""

    def progress(self) -> tuple[Progress, ...]:
        """What goes on here at this moment."""
        with self._lock:
            return tuple(one.progress for one in self._going.values())

    def begin(self, task: Task, number: int) -> Callable[[], Ended]:
        """An attempt, which may be cancelled from now on; the result does it and never raises."""
        attempt = _Attempt(task, number)
        with self._lock:
            self._going[task.key] = attempt
            if self._leaving:
                attempt.leave.set()
        return lambda: self._run(attempt)

    def _run(self, attempt: _Attempt) -> Ended:
        result, task = Result(), attempt.task
        outcome, error, gone = self._logged(attempt, lambda: self._attempt(attempt, result))
        with self._lock:
            for known in (self._going, self._strays):
                if known.get(task.key) is attempt:
                    del known[task.key]
        ended = Ended(
            key=task.key,
            host=self.name,
            attempt=attempt.number,
            outcome=outcome,
            error=None if error is None else error_of(error),
            gone=gone,
        )
        try:
            more = {"run": result.run, "details": result.details}
            return Ended.model_validate(dict(ended) | more)
        except ValidationError as problem:  # a thread that dies would be waited for without end
            error = self._unexpected(problem)
            return ended.model_copy(update={"outcome": "failed", "error": error_of(error)})

    def _logged(self, attempt: _Attempt, act: Callable[[], _End]) -> _End:
        """How ``act`` ended, with the task's log."""
        try:
            with disk_errors(self.folder):
                path = log_of(self.folder, attempt.task.key)
                log = path.open("a", encoding="utf-8", errors="replace")
            attempt.log_to(log)
            with log, reporting_to(attempt):
                outcome, error, gone = act()
                if error is not None:
                    attempt.console.print(_format_error(error), markup=False)
        except PipelineError as problem:  # no log can be written
            return self._judge(problem), problem, False
        except BaseException as problem:
            return "failed", self._unexpected(problem), False
        return outcome, error, gone

    def _attempt(self, attempt: _Attempt, result: Result) -> _End:
        try:
            attempt.check_stop()
            self._require_sign_in()
            self._require_no_stray(attempt.task)
            self.executor.do(attempt.task, result)
        except KeyboardInterrupt:
            return self._left(attempt)
        except PipelineError as error:
            if attempt.leave.is_set() and isinstance(error, HostError | TransferError):
                return self._left(attempt)  # its connection was broken for it to leave
            outcome = self._judge(error)
            return outcome, error, outcome == "lost" and self._is_gone(error)
        except Exception as error:
            return "failed", self._unexpected(error), False
        return "done", None, False

    def _left(self, attempt: _Attempt) -> _End:
        """It was to leave: its host is gone, it was cancelled, or the controller ends."""
        if attempt.host_gone:
            return "lost", HostError(f"{self.name}: {attempt.host_gone}"), True
        if not attempt.cancelled:
            return "left", None, False
        attempt.leave.clear()
        return self._withdraw(attempt.task)

    def withdraw(self, task: Task) -> Withdrawn:
        """End what an attempt has left running on the host; never raises."""
        _, error, gone = self._logged(_Attempt(task, 0), lambda: self._withdraw(task))
        why = "" if error is None else safe_line(error.message, 500) or error.title
        return Withdrawn(task.key, self.name, why, gone)

    def _withdraw(self, task: Task) -> _End:
        try:
            self._require_sign_in()
            self.executor.withdraw(task)
        except PipelineError as error:
            return "lost", error, self._is_gone(error)
        except BaseException as error:  # also one that is to leave: it may still run there
            return "lost", self._unexpected(error), False
        return "left", None, False

    def reach(self) -> Reached:
        """Connect to the host and look at it; never raises."""
        why = ""
        try:
            self._require_sign_in()
            self.executor.reach()
        except PipelineError as error:
            self._bar(error)
            why = safe_line(error.message, 500) or error.title
        except BaseException as error:
            why = self._unexpected(error).message
        return Reached(self.name, why)

    def _unexpected(self, error: BaseException) -> UnexpectedError:
        _log.info("%s", self.name, exc_info=error)
        return UnexpectedError(
            f"this should not happen: {type(error).__name__}: {safe_line(error)}"
        )

    def _judge(self, error: PipelineError) -> Outcome:
        if isinstance(error, TimeUpError):
            return "left"
        if isinstance(error, _HOSTS):
            return "lost"
        if not isinstance(error, StorageError):
            return "failed"
        if _free_disk_bytes(self.folder) > _FREE:  # then it is not our disk that is full
            return "lost"
        self.broken = self.broken or error
        return "left"

    def _is_gone(self, error: PipelineError) -> bool:
        """Whether nothing can be done there; where that is not said, it is tried."""
        self._bar(error)
        if isinstance(error, UnfitHostError | SetupError | StorageError | AuthError):
            return True
        if not isinstance(error, HostError) or isinstance(error, DeadHostError):
            return False  # it is there, or the next task starts it
        return not self.executor.reachable()

    def _bar(self, error: PipelineError) -> None:
        if isinstance(error, AuthError):
            self._barred = error

    def _require_sign_in(self) -> None:
        """Raise what the host said to the sign-in, instead of trying it again."""
        if self._barred is not None:
            raise self._barred

    def _require_no_stray(self, task: Task) -> None:
        if task.key in self._strays:
            raise RemoteError(f"{self.name}: an earlier attempt has not ended")

    def cancel(self, key: str) -> None:
        """End that task if it goes on here; returns at once."""
        with self._lock:
            attempt = self._going.get(key)
            if attempt is None or attempt.cancelled:
                return  # its job is being ended, and would be left if it were cancelled again
            attempt.cancelled = True
        attempt.leave.set()

    def leave(self, host_gone: str = "") -> None:
        """Leave every task where it is; returns at once.

        ``host_gone``: why the host is gone; else also what begins from now on is left.
        """
        with self._lock:
            self._leaving = self._leaving or not host_gone
            going = [*self._going.values()]
        for attempt in going:
            attempt.host_gone = host_gone
            attempt.leave.set()
        if going or host_gone:  # then also a look or a withdrawal may wait for it
            threading.Thread(target=self.executor.unblock, daemon=True).start()

    def silent(self) -> bool:
        """Whether an attempt hangs: it was not asked to leave and gives no sign."""
        last = time.monotonic() - _SILENCE
        with self._lock:
            going = [*self._going.values()]
        return any(one.last_sign < last and not one.leave.is_set() for one in going)

    def give_up(self) -> list[Ended]:
        """Have what was to leave a host that is gone be lost there, though its threads go on."""
        with self._lock:
            strays = [one for one in self._going.values() if one.host_gone]
            for one in strays:
                self._strays[one.task.key] = self._going.pop(one.task.key)
        return [
            Ended(
                key=one.task.key,
                host=self.name,
                attempt=one.number,
                outcome="lost",
                error=error_of(HostError(f"{self.name}: {one.host_gone}")),
                gone=True,
            )
            for one in strays
        ]


class HostWorkers:
    """Implements :class:`pipelines.fleet.scheduler.Workers`: those of all hosts of a fleet."""

    def __init__(self, workers: Mapping[str, HostWorker]) -> None:
        self._workers = workers
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._going: set[tuple[str, str, int]] = set()

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def _thread(self, act: Callable[[], Event]) -> None:
        # Not of a pool: one that hangs must not keep the process from ending.
        threading.Thread(target=lambda: self._events.put(act()), daemon=True).start()

    def reach(self, host: str) -> None:
        """Connect to the host and look at it."""
        self._thread(self._workers[host].reach)

    def start(self, task: Task, host: str, attempt: int) -> None:
        """Begin the task there, or resume what was begun."""
        self._going.add((task.key, host, attempt))
        self._thread(self._workers[host].begin(task, attempt))

    def cancel(self, key: str) -> None:
        """End the task that was started."""
        for worker in self._workers.values():
            worker.cancel(key)

    def withdraw(self, task: Task, host: str) -> None:
        """End what a lost attempt may have left running there."""
        self._thread(lambda: self._workers[host].withdraw(task))

    def disconnect(self, host: str, why: str) -> None:
        """Have what was started there end as lost."""
        worker = self._workers[host]
        worker.leave(why)

        def give_up() -> None:
            time.sleep(_LEAVE)
            for ended in worker.give_up():
                self._events.put(ended)

        if worker.progress():
            threading.Thread(target=give_up, daemon=True).start()

    def wait(self, timeout: float) -> Iterable[Event]:
        """What has happened since the last call; at most ``timeout`` seconds until the first."""
        for name, worker in self._workers.items():
            if worker.silent():
                self.disconnect(name, f"a task there did not report for {_SILENCE / 3600:g} hours")
        found: list[Event] = []
        with contextlib.suppress(queue.Empty):
            found.append(self._events.get(timeout=timeout))
            while True:
                found.append(self._events.get_nowait())
        return [one for one in found if not isinstance(one, Ended) or self._first(one)]

    def _first(self, ended: Ended) -> bool:
        """Whether it is the end of what goes on; else that was given up before."""
        attempt = (ended.key, ended.host, ended.attempt)
        there = attempt in self._going
        self._going.discard(attempt)
        return there

    def close(self) -> None:
        """Have every task left where it is: what runs on hosts goes on there."""
        for worker in self._workers.values():
            worker.leave()
        deadline = time.monotonic() + _LEAVE
        while self._going and time.monotonic() < deadline:
            self.wait(0.2)
        if self._going:
            _log.warning("%s attempts do not end", len(self._going))


def _free_disk_bytes(folder: Path) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0


def log_of(folder: Path, key: str) -> Path:
    """Where a task's log is."""
    return folder / f"{key.replace('/', '-')}.log"


def _format_error(error: BaseException) -> str:
    found = error_of(error)
    hint = f"\n-> {found.hint}" if found.hint else ""
    words = f"{found.title} error: {found.message}{hint}"
    return safe_text(words, 2 * len(words))
