"""Directories that several processes share: one at a time makes them, beside their place."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from pipelines.core.errors import SetupError


@contextmanager
def alone(target: Path) -> Iterator[None]:
    """Only one process at a time is in here with ``target``, which need not be there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f".{target.name}.lock").open("w") as file:
        lock(file, wait=True)
        yield


def lock(file: IO[str], *, wait: bool = False) -> bool:
    """Lock a file, which is open for writing, until it is closed; whether it was free.

    NFS makes locks of byte ranges of these, which want a writable file (flock(2)). Raises
    :class:`SetupError` on a file system that has none.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        raise SetupError(
            f"{file.name} cannot be locked on that file system: {error.strerror}",
            hint="Let XDG_CACHE_HOME and the sandbox's 'home' be on a local disk.",
        ) from error
    return True


@contextmanager
def scratch_for(target: Path) -> Iterator[Path]:
    """A directory beside ``target``, to be renamed to it, or a part of it; ``target`` is removed.

    So is what earlier ones have left that were killed. For those who are :func:`alone` with it.
    """
    shutil.rmtree(target, ignore_errors=True)
    for left in target.parent.glob(f".{target.name}.*/"):
        shutil.rmtree(left, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    scratch.chmod(0o755)  # as mkdir would: other users of the cache may look
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
