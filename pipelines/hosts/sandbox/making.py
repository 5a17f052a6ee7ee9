"""Directories shared by several processes: one at a time builds them, next to their final path.

One that is sealed has a list of its files with their sha256, compared at each use.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from pipelines.core.errors import SetupError
from pipelines.core.files import sha256_of
from pipelines.remote import locks

#: The list of a sealed directory.
FILES = "files.json"


@contextmanager
def exclusive_lock(target: Path) -> Iterator[None]:
    """Hold the lock for ``target``, which need not exist: one process at a time."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f".{target.name}.lock").open("w") as file:
        while not try_lock_file(file):
            time.sleep(0.02)
        yield


def try_lock_file(file: IO[str]) -> bool:
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

    So are leftovers of killed processes. Only for holders of the lock of :func:`exclusive_lock`.
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


def seal_directory(folder: Path) -> None:
    """List the files of ``folder`` in it."""
    (folder / FILES).write_text(json.dumps(_hash_directory(folder), indent=1), "utf-8")


def read_verified_seal(folder: Path) -> Mapping[str, str] | None:
    """The sha256 of each file in ``folder``; ``None`` unless it was sealed with just these."""
    try:
        listed: dict[str, str] = json.loads((folder / FILES).read_text("utf-8"))
        return listed if listed and listed == _hash_directory(folder) else None
    except (OSError, ValueError):
        return None


def _hash_directory(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): sha256_of(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != FILES
    }
