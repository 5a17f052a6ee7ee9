"""Locks that the operating system releases when their holder dies, however it dies."""

from __future__ import annotations

import contextlib
import ctypes
import pathlib
import sys
import time
from collections.abc import Iterator
from typing import Any

from . import awake

_FAIL_IMMEDIATELY, _EXCLUSIVE = 1, 2  # LOCKFILE_FAIL_IMMEDIATELY, LOCKFILE_EXCLUSIVE_LOCK
_HELD = 33  # ERROR_LOCK_VIOLATION


@contextlib.contextmanager
def claim(path: pathlib.Path, patience: float = 0.0, *, shared: bool = False) -> Iterator[bool]:
    """Acquire the lock file ``path`` if it is free; returns whether it was acquired.

    ``shared`` locks exclude exclusive ones, but not each other, so several readers can hold one.
    Waits up to ``patience`` seconds. The file is created, and stays. Raises ``OSError``.
    """
    deadline = awake.seconds() + patience
    with path.open("a+b") as file:
        while not (held := lock(file.fileno(), shared)) and awake.seconds() < deadline:
            time.sleep(0.02)
        yield held


def lock(descriptor: int, shared: bool = False) -> bool:
    """Lock an open file until it is closed; returns whether it was free."""
    if sys.platform == "win32":
        return _lock_on_windows(descriptor, shared)
    import fcntl

    try:
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _lock_on_windows(descriptor: int, shared: bool) -> bool:
    """LockFileEx, because all locks of the C runtime are exclusive."""
    import msvcrt

    kernel: Any = ctypes.WinDLL("kernel32", use_last_error=True)  # type: ignore[attr-defined, unused-ignore]
    lock = kernel.LockFileEx
    lock.argtypes = [ctypes.c_void_p, *[ctypes.c_uint32] * 4, ctypes.c_void_p]
    handle = msvcrt.get_osfhandle(descriptor)  # type: ignore[attr-defined, unused-ignore]
    overlapped = (ctypes.c_uint64 * 4)()  # OVERLAPPED, 32 bytes: the lock is on byte 0
    flags = _FAIL_IMMEDIATELY | (0 if shared else _EXCLUSIVE)
    if lock(handle, flags, 0, 1, 0, ctypes.byref(overlapped)):
        return True
    error: int = ctypes.get_last_error()  # type: ignore[attr-defined, unused-ignore]
    if error == _HELD:
        return False
    raise OSError(None, "LockFileEx failed", None, error)
