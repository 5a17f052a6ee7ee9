"""Locks that the operating system lets go of when their holder dies, however it dies."""

from __future__ import annotations

import contextlib
import os
import pathlib
import sys
import time
from collections.abc import Iterator


@contextlib.contextmanager
def claim(path: pathlib.Path, patience: float = 0.0) -> Iterator[bool]:
    """Hold the lock file ``path`` if nobody else does; says whether it is held.

    Waits up to ``patience`` seconds. The file is made, and stays. Raises ``OSError``.
    """
    deadline = time.monotonic() + patience
    with path.open("a+b") as file:
        while not (held := _lock(file.fileno())) and time.monotonic() < deadline:
            time.sleep(0.02)
        yield held


def _lock(descriptor: int) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            os.lseek(descriptor, 0, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
