"""Waiting and measuring that a busy machine does not spoil."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for what is sure to come; the limit only keeps a failure from hanging."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.005)


#: Windows counts a process' time in steps of 1/64 second.
LEAST = 0.1 if sys.platform == "win32" else 0.0


def cost(work: Callable[[], object], times: int = 5) -> float:
    """Processor seconds of ``work``, the least of a few: for a comparison, never alone."""
    took = []
    for _ in range(times):
        began, done = time.process_time(), 0
        while not done or time.process_time() - began < LEAST:
            work()
            done += 1
        took.append((time.process_time() - began) / done)
    return min(took)
