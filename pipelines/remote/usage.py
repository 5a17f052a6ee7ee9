"""Resource usage of a build: when each unit was compiled, the load on cores and memory.

Units come from ``.ninja_log``, written by ninja and by any other build that wants to be included.
"""

from __future__ import annotations

import contextlib
import ctypes
import pathlib
import sys
import threading
import time
from typing import TypedDict

from . import facts, limits

_EVERY = 2.0  # seconds
_MOST_SAMPLES = 600  # beyond that every second one is dropped, and the interval doubles
_MOST_UNITS = 2000
_UNITS = (".o", ".obj", ".cubin", ".ptx")


class Timeline(TypedDict, total=False):
    """All times are in seconds since the start of the build."""

    units: list[list[str | float]]
    """Name, start and end of each."""
    samples: list[list[float]]
    """Time, busy fraction of all cores, bytes in use."""
    cpus: int
    memory: int
    """Total bytes; 0 if unknown."""


class Gauge:
    """Measures from its creation until :meth:`finish`."""

    def __init__(self) -> None:
        self._began = time.time()
        self._clock = time.monotonic()
        self._samples: list[list[float]] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        interval = _EVERY
        with contextlib.suppress(OSError, ValueError, AttributeError):  # no figures, but a build
            before = processor_times()
            while not self._done.wait(interval):
                now = processor_times()
                busy, total = now[0] - before[0], now[1] - before[1]
                before = now
                share = min(1.0, max(0.0, busy / total)) if total else 0.0
                at = time.monotonic() - self._clock
                self._samples.append([round(at, 1), round(share, 3), float(memory()[0])])
                if len(self._samples) >= _MOST_SAMPLES:
                    self._samples = self._samples[1::2]
                    interval *= 2

    def finish(self, tree: pathlib.Path) -> Timeline:
        """Stop and return the figures; ``tree`` is the build directory."""
        self._done.set()
        self._thread.join(5)
        units: list[list[str | float]] = []
        for log in sorted(tree.glob("build/**/.ninja_log")):
            with contextlib.suppress(OSError, ValueError):
                units += ninja_units(log, self._began)
        timeline: Timeline = {
            "units": sorted(units, key=lambda unit: unit[1])[:_MOST_UNITS],
            "samples": list(self._samples),
            "cpus": limits.cores(),
            "memory": 0,
        }
        with contextlib.suppress(OSError, AttributeError):
            timeline["memory"] = memory()[1]
        return timeline


def ninja_units(log: pathlib.Path, began: float) -> list[list[str | float]]:
    """The objects created after ``began`` (seconds since the epoch).

    A line is ``start end mtime output hash`` with milliseconds since the start of that ninja, which
    is not recorded: it is derived from the last modification times of the objects.
    https://ninja-build.org/manual.html (version 5 to 7 of the log)
    """
    rows: dict[str, tuple[float, float]] = {}
    for line in log.read_text("utf-8", "replace").splitlines():
        parts = line.split("\t")
        if len(parts) == 5 and parts[0].isdecimal() and parts[1].isdecimal():  # noqa: PLR2004
            rows[parts[3]] = (int(parts[0]) / 1000, int(parts[1]) / 1000)
    made: dict[str, float] = {}
    for output in rows:
        path = log.parent / output  # an absolute one is unchanged
        if path.suffix in _UNITS and path.is_file():
            made[output] = path.stat().st_mtime
    fresh = [output for output, at in made.items() if at >= began - 1]
    if not fresh:
        return []
    zero = max(made[output] - rows[output][1] for output in fresh) - began
    return [
        [pathlib.PurePath(name.replace("\\", "/")).name, *(round(t + zero, 2) for t in rows[name])]
        for name in fresh
    ]


class _Time(ctypes.Structure):
    """FILETIME."""

    _fields_ = (("low", ctypes.c_uint32), ("high", ctypes.c_uint32))

    @property
    def value(self) -> int:
        return int(self.high) << 32 | int(self.low)


def processor_times() -> tuple[float, float]:
    """Busy and total time of all cores, in the platform's own units.

    On Windows those of the thread's group: https://github.com/shirou/gopsutil/pull/2125
    """
    if sys.platform == "win32":
        idle, kernel, user = _Time(), _Time(), _Time()
        ctypes.windll.kernel32.GetSystemTimes(
            ctypes.byref(idle), ctypes.byref(kernel), ctypes.byref(user)
        )
        total = kernel.value + user.value  # kernel time includes idle time
        return float(total - idle.value), float(total)
    with open("/proc/stat", encoding="ascii") as file:  # noqa: PTH123
        fields = [int(word) for word in file.readline().split()[1:9]]
    waits = fields[3] + fields[4]  # idle, and waiting for a disk
    return float(sum(fields) - waits), float(sum(fields))


def memory() -> tuple[int, int]:
    """Bytes in use and total bytes; on Windows of the commit limit."""
    figures = facts.memory()
    if "commit_limit" in figures:
        return figures["commit_limit"] - figures["commit_available"], figures["commit_limit"]
    if sys.platform == "win32":
        return 0, 0
    return figures["total"] - figures["available"], figures["total"]
