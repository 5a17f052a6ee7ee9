"""Keeps Windows awake, and a clock that stops while the machine sleeps.

Imports nothing of this package: smoke suites ship a copy of it.
"""

from __future__ import annotations

import ctypes
import sys
import time
from typing import Any


def begin() -> None:
    """Keep Windows awake while this thread lives, and suppress error dialogs.

    Load alone does not keep it awake; a user command or a closed lid still puts it to sleep.
    https://learn.microsoft.com/windows/win32/api/winbase/nf-winbase-setthreadexecutionstate
    https://learn.microsoft.com/windows/win32/api/errhandlingapi/nf-errhandlingapi-seterrormode
    """
    if sys.platform == "win32":
        kernel: Any = ctypes.WinDLL("kernel32")
        kernel.SetErrorMode(kernel.GetErrorMode() | 0x8003)  # children inherit it
        kernel.SetThreadExecutionState(ctypes.c_uint32(0x80000001))  # continuous, system required


def seconds() -> float:
    """Seconds that the machine has been awake, the same in all its processes.

    Windows' time.monotonic counts sleep: GetTickCount64, from Python 3.13 QueryPerformanceCounter.
    https://learn.microsoft.com/windows/win32/api/realtimeapiset/nf-realtimeapiset-queryunbiasedinterrupttime
    """
    if sys.platform != "win32":
        return time.monotonic()
    ticks = ctypes.c_uint64()  # of 100 ns
    ctypes.WinDLL("kernel32").QueryUnbiasedInterruptTime(ctypes.byref(ticks))
    return ticks.value / 1e7
