"""The driver of a host: has works done there, each in a thread, and says how they ended."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self, TextIO

from rich.console import Console

from pipelines.beside import LeaveError, told_to
from pipelines.errors import (
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
from pipelines.files import disk_errors
from pipelines.fleet.model import Doing, Ended, Outcome, Work
from pipelines.hosttext import line, safe
from pipelines.run import error_of
from pipelines.session.base import DeadHostError, FullHostError, UnfitHostError
from pipelines.tables import Trimming

_log = logging.getLogger(__name__)
#: Bytes without which this machine's own disk counts as full.
_ROOM = 32 << 20
#: What is the host's fault, or that of the way to it: another host may do better.
_HOSTS = (HostError, TransferError, RemoteError, ProvisionError, SetupError, FullHostError)


@dataclass
class Done:
    """What a work left, as far as it came; filled while it goes on."""

    run: str = ""
    """The run's directory."""
    told: dict[str, str | int | float] = field(default_factory=dict)


class Errand(Protocol):
    """How works are done at one host."""

    def do(self, work: Work, done: Done) -> None:
        """Do it; raises what went wrong, :class:`LeaveError` where it was to leave."""

    def withdraw(self, work: Work) -> None:
        """End what the work has left running there; raises what went wrong."""

    def reach(self) -> None:
        """Connect to the host and look at it; raises what speaks against it."""

    def unblock(self) -> None:
        """Break the connections, so that whoever waits on one sees that it is to leave."""

    def reachable(self) -> bool:
        """Whether the host can be reached, by a look at this moment."""

    def release(self) -> None:
        """Give the host back, unless it works."""


class _Watched:
    """The onlooker of one work: its log, what it does now, and whether it is to leave."""

    def __init__(self, work: Work, began: float) -> None:
        self.doing = Doing(key=work.key, kind=work.kind, began=began)
        self.console = Console(quiet=True)
        self.leave = threading.Event()
        self.cancelled = False

    def into(self, log: TextIO) -> Self:
        """Have what is said go into ``log``; itself."""
        self.console = Console(
            file=log, width=120, highlight=False, soft_wrap=True, color_system=None
        )
        self.console.push_render_hook(Trimming())
        return self

    def stage(self, name: str) -> None:
        """A stage begins: nothing is known of its units."""
        self.doing = self.doing.model_copy(update={"stage": name, "done": None, "total": None})

    def units(self, done: int, total: int) -> None:
        """So many compile units of so many."""
        self.doing = self.doing.model_copy(update={"done": done, "total": total})

    def heed(self) -> None:
        """Leave when told so."""
        if self.leave.is_set():
            raise LeaveError


_End = tuple[Outcome, BaseException | None, bool]
_Act = Callable[[Work, _Watched], _End]


class Driver:
    """Does the works of one host; implements what a worker of Dask has done by it."""

    def __init__(
        self,
        name: str,
        errand: Errand,
        folder: Path,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``folder`` is the fleet's: each work has its log there."""
        self.name = name
        self.errand = errand
        self.folder = folder
        self._clock = clock
        self._lock = threading.Lock()
        self._now: dict[str, _Watched] = {}
        self._left = False
        self.broken: StorageError | None = None
        """That this machine's own disk takes no more: no host is to blame."""
        self._barred: AuthError | None = None
        """That the host refused the sign-in: not tried again, accounts are locked for that."""

    def doing(self) -> tuple[Doing, ...]:
        """What goes on here at this moment."""
        with self._lock:
            return tuple(one.doing for one in self._now.values())

    def do(self, work: Work, attempt: int) -> Ended:
        """Do the work to its end, whatever that is; raises nothing."""
        done = Done()
        ended = self._told(work, attempt, lambda work, watched: self._attempt(work, watched, done))
        return ended.model_copy(update={"run": done.run, "told": done.told})

    def _told(self, work: Work, attempt: int, act: _Act) -> Ended:
        """How ``act`` ended, with the work's log and its onlooker."""
        began = self._clock()
        outcome: Outcome = "lost"
        error: BaseException | None = None
        gone = False
        watched = _Watched(work, began)
        with self._lock:
            self._now[work.key] = watched
            if self._left:
                watched.leave.set()
        try:
            with disk_errors(self.folder):
                log = log_of(self.folder, work.key).open("a", encoding="utf-8", errors="replace")
            with log, told_to(watched.into(log)):
                outcome, error, gone = act(work, watched)
                if error is not None:
                    watched.console.print(_words(error), markup=False)
        except PipelineError as problem:  # no log can be written
            outcome, error = self._judge(problem), problem
        except BaseException as problem:
            outcome, error = "failed", problem
        finally:
            with self._lock:
                self._now.pop(work.key, None)
        return Ended(
            key=work.key,
            host=self.name,
            attempt=attempt,
            outcome=outcome,
            began=began,
            ended=max(began, self._clock()),
            error=None if error is None else error_of(error),
            gone=gone,
        )

    def _attempt(self, work: Work, watched: _Watched, done: Done) -> _End:
        try:
            watched.heed()
            self._heed_bar()
            self.errand.do(work, done)
        except KeyboardInterrupt:
            return self._withdraw(work, watched) if watched.cancelled else ("left", None, False)
        except PipelineError as error:
            if watched.leave.is_set() and isinstance(error, HostError | TransferError):
                # Its connection was broken for it to leave.
                return self._withdraw(work, watched) if watched.cancelled else ("left", None, False)
            outcome = self._judge(error)
            return outcome, error, outcome == "lost" and self._is_gone(error)
        except Exception as error:
            _log.info("%s: %s", self.name, work.key, exc_info=error)
            said = f"this should not happen: {type(error).__name__}: {line(error)}"
            return "failed", UnexpectedError(said), False
        return "done", None, False

    def _withdraw(self, work: Work, watched: _Watched) -> _End:
        """End what a cancelled work has left running on the host."""
        watched.leave.clear()
        try:
            self._heed_bar()
            self.errand.withdraw(work)
        except PipelineError as error:
            return "lost", error, self._is_gone(error)
        return "left", None, False

    def withdraw(self, work: Work, attempt: int) -> Ended:
        """End what an attempt has left running on the host: ``lost`` where nobody could look."""
        return self._told(work, attempt, self._withdraw)

    def reach(self) -> str:
        """Connect to the host and look at it: why nothing can be done there, or nothing."""
        try:
            self._heed_bar()
            self.errand.reach()
        except PipelineError as error:
            self._bar(error)
            return line(error.message, 500) or error.title
        except Exception as error:
            _log.info("%s: reach", self.name, exc_info=error)
            return f"this should not happen: {type(error).__name__}: {line(error)}"
        return ""

    def _judge(self, error: PipelineError) -> Outcome:
        if isinstance(error, TimeUpError):
            return "left"
        if isinstance(error, _HOSTS):
            return "lost"
        if not isinstance(error, StorageError):
            return "failed"
        if _room(self.folder) > _ROOM:  # then it is not our disk that is full
            return "lost"
        self.broken = self.broken or error
        return "left"

    def _is_gone(self, error: PipelineError) -> bool:
        """Whether nothing can be done there; where that is not said, it is tried."""
        self._bar(error)
        if isinstance(error, UnfitHostError | SetupError | StorageError | AuthError):
            return True
        if not isinstance(error, HostError) or isinstance(error, DeadHostError):
            return False  # it is there, or it is made anew by the next work
        return not self.errand.reachable()

    def _bar(self, error: PipelineError) -> None:
        if isinstance(error, AuthError):
            self._barred = error

    def _heed_bar(self) -> None:
        """Raise what the host said to the sign-in, instead of trying it again."""
        if self._barred is not None:
            raise self._barred

    def cancel(self, key: str) -> None:
        """End that work if it goes on here; returns at once."""
        with self._lock:
            watched = self._now.get(key)
            if watched is None or watched.cancelled:
                return  # its job is being ended, and would be left if it were told again
            watched.cancelled = True
        watched.leave.set()

    def leave(self) -> None:
        """Leave every work where it is, also those that begin from now on; returns at once."""
        self._left = True
        with self._lock:
            going = list(self._now.values())
        for watched in going:
            watched.leave.set()
        if going:
            threading.Thread(target=self.errand.unblock, daemon=True).start()

    def release(self) -> None:
        """Give the host back, unless it works."""
        with self._lock:
            if self._now:
                return
        self.errand.release()


def _room(folder: Path) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0


def log_of(folder: Path, key: str) -> Path:
    """Where a work's words are."""
    return folder / f"{key.replace('/', '-')}.log"


def _words(error: BaseException) -> str:
    told = error_of(error)
    said = f"{told.title} error: {told.message}" + (f"\n-> {told.advice}" if told.advice else "")
    return safe(said, 2 * len(said))


def doing_of(drivers: Mapping[str, Driver]) -> dict[str, tuple[Doing, ...]]:
    """What each host does at this moment."""
    return {name: driver.doing() for name, driver in drivers.items()}
