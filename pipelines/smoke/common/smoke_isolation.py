"""One case that ends the interpreter, or hangs, is one failed case; the others go on.

pytest-xdist runs the cases in a process of their own and starts another when it dies.
What is added here: how it died, an end to hangs, a new process after the GPU's context was
lost, and an end to it all before the caller's patience is over.

Environment: ``SMOKE_CASE_SECONDS`` for one case, ``SMOKE_SECONDS`` for all of them.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, TextIO, TypedDict

import awake
import pytest
from smoke_facts import Facts, ended

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

CASE_SECONDS = float(os.environ.get("SMOKE_CASE_SECONDS", "180"))
ALL_SECONDS = float(os.environ.get("SMOKE_SECONDS", "1500"))
#: After so many lost processes the rest is skipped: a wheel that always crashes has shown it.
MOST_CRASHES = 8
LOST = 86  # the exit code of a process that gives up after its GPU context was lost
_GRACE = 10.0
_BEGAN = awake.seconds()  # gathering the facts counts as well
#: Where a test module finds what :func:`smoke_facts.gather` found, before there are fixtures.
FACTS = pytest.StashKey[Facts]()
_CANNOT_SAY = "the case's process"


class WorkerInput(TypedDict):
    """What pytest's own process hands to a worker."""

    smoke_facts: str
    """JSON."""
    smoke_deadline: float
    """By :func:`awake.seconds`."""
    smoke_crashes: int
    """How many workers were lost before it."""


class Watch:
    """In pytest's own process: gives workers what they need, tells how they ended, ends hangs."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._deadline = _BEGAN + ALL_SECONDS
        self._crashes = 0
        self._cause: dict[str, str] = {}
        self._running: tuple[str, float] | None = None
        self._worker: WorkerController | None = None
        self._killed = ""
        threading.Thread(target=self._look, daemon=True).start()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: WorkerController) -> None:
        """Hand the facts to a new worker, and what became of those before it."""
        self._worker = node
        node.workerinput["smoke_facts"] = json.dumps(self._facts)
        node.workerinput["smoke_deadline"] = self._deadline
        node.workerinput["smoke_crashes"] = self._crashes

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running = (nodeid, awake.seconds())

    def pytest_runtest_logfinish(self) -> None:
        self._running = None

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: WorkerController, error: object) -> None:
        """Say how the worker ended, while its process can still be asked."""
        if not error:
            return
        self._crashes += 1
        code: int | None = None
        with contextlib.suppress(Exception):  # no public way to a worker's exit code
            code = node.gateway._io.popen.wait(5)
        seconds = awake.seconds() - self._running[1] if self._running else 0.0
        if self._killed:
            cause = self._killed
        elif code == LOST:
            cause = "the GPU's context was lost; the cases after this one get a new process"
        elif code == 1 and seconds >= CASE_SECONDS:
            cause = f"hung: no end after {CASE_SECONDS:.0f} s (the log has the stack)"
        else:
            cause = f"{_CANNOT_SAY} {ended(code)} (the log has the stack)"
        self._cause[node.gateway.id] = cause
        self._running, self._killed = None, ""

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, report: pytest.TestReport) -> None:
        """Put the cause where the report says only that a worker crashed."""
        report.longrepr = self._cause.get(report.node.gateway.id, str(report.longrepr))
        report.when = "call"  # a failure of the case, not of its setup

    def _look(self) -> None:
        """End a worker that does not end itself: stuck in the driver, or out of time."""
        while True:
            time.sleep(0.5)
            running, now = self._running, awake.seconds()
            if running is None:
                continue
            if now - running[1] > CASE_SECONDS + _GRACE:
                self._kill(f"hung: no end after {CASE_SECONDS:.0f} s, and it had to be killed")
            elif awake.seconds() > self._deadline + _GRACE:
                self._kill(f"ended: the suite's {ALL_SECONDS:.0f} s are used up")

    def _kill(self, why: str) -> None:
        self._killed = why
        with contextlib.suppress(Exception):
            if self._worker is not None:
                self._worker.gateway._io.popen.kill()


class Guard:
    """In the process that runs the cases: a limit for each, and an end once the GPU is lost."""

    def __init__(self, worker: WorkerInput, lost: Callable[[], bool]) -> None:
        self._deadline = worker["smoke_deadline"]
        self._crashes = worker["smoke_crashes"]
        self._lost = lost
        self._failed = False
        # pytest replaces file descriptor 2 while a case runs; the stack of a hang is for the log.
        self._errors: TextIO = os.fdopen(os.dup(sys.__stderr__.fileno()), "w")  # type: ignore[union-attr]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        """Not pytest-timeout: its thread needs the lock that a hanging extension may hold."""
        self._failed = False
        faulthandler.dump_traceback_later(CASE_SECONDS, exit=True, file=self._errors)
        try:
            result = yield
            if self._failed and self._lost():
                os._exit(LOST)  # every later case would fail with the same error
            return result
        finally:
            faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Run nothing more after too many crashes or too much time."""
        if self._crashes >= MOST_CRASHES:
            pytest.skip(f"not run: {self._crashes} cases before it ended their process")
        if awake.seconds() > self._deadline:
            pytest.fail(f"not run: the suite's {ALL_SECONDS:.0f} s are used up", pytrace=False)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed = self._failed or report.failed
