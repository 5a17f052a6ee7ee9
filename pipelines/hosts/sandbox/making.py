"""Directories shared by several processes: one at a time builds them, next to their final path."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from pipelines.core.errors import SetupError
from pipelines.remote import locks


@contextmanager
def alone(target: Path) -> Iterator[None]:
    """Hold the lock for ``target``, which need not exist: one process at a time."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f".{target.name}.lock").open("w") as file:
        while not lock(file):
            time.sleep(0.02)
        yield


def lock(file: IO[str]) -> bool:
    """Lock a file, open for writing, until it is closed; returns whether it was free.

    NFS turns these into byte-range locks, which need a writable file (flock(2)). Raises
    :class:`SetupError` on a file system without locks.
    """
    try:
        return locks.lock(file.fileno())
    except OSError as error:
        raise SetupError(
            f"{file.name} cannot be locked on that file system: {error.strerror}",
            hint="Put XDG_CACHE_HOME and the sandbox's 'home' on a local disk.",
        ) from error


@contextmanager
def scratch_for(target: Path) -> Iterator[Path]:
    """A directory next to ``target``, to be renamed to it or a part of it; ``target`` is removed.

    So are leftovers of killed processes. Only for holders of the lock of :func:`alone`.
    """
    shutil.rmtree(target, ignore_errors=True)
    for left in target.parent.glob(f".{target.name}.*/"):
        shutil.rmtree(left, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    scratch.chmod(0o755)  # as mkdir would: readable by other users of the cache
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
