"""The sha256 of files that are kept: computed when one is used, once for each state of it.

What was computed is remembered beside the file, with what the file system says of the file: another
size, time or inode, and it is computed again. A cache that was copied or restored is thus hashed
anew, for its files have other inodes and times of change.
"""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

from pipelines.core.errors import LockError
from pipelines.core.files import own_part, sha256_of, whole
from pipelines.toolchain.sources import Source

#: Two changes within a tick of the file system's clock have one time: what has changed within so
#: many nanoseconds is not remembered yet.
_TICK = 100_000_000


def sha256_once(path: Path) -> str:
    """The sha256 of ``path``; ``OSError`` when it cannot be read."""
    note = path.with_name(f".{path.name}.hashed")
    state = _state(path)
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        told = json.loads(note.read_text("utf-8"))
        if told["state"] == state:
            return str(told["sha256"])
    found, now = sha256_of(path), time.time_ns()
    settled = all(abs(now - moment) > _TICK for moment in state[1:3])
    if settled and _state(path) == state:
        # a cache that cannot be written is only slower
        with contextlib.suppress(OSError), whole(note, own_part(note)) as part:
            part.write_text(json.dumps({"sha256": found, "state": state}), "utf-8")
    return found


def _state(path: Path) -> list[int]:
    """Size, times of change of its bytes and of its entry (ns), inode."""
    found = path.stat()
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]


def damage(path: Path, sha256: str, size: int | None = None) -> str:
    """In what a file that is kept differs from what was pinned; empty when it does not."""
    try:
        here = path.stat().st_size
        if size and here != size:
            return f"it has {here} bytes, {size} were pinned"
        found = sha256_once(path)
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    return "" if found == sha256 else f"it has sha256 {found}, pinned is {sha256}"


def verify(path: Path, source: Source) -> None:
    """Raise :class:`LockError` unless ``path`` has the sha256 of ``source``, and its size if known.

    A source without a sha256 is an error, too: nothing was pinned.
    """
    if not source.sha256:
        raise LockError(f"{source.file} is not pinned")
    size = path.stat().st_size
    if source.size and size != source.size:
        raise LockError(f"{source.file} has {size} bytes, {source.size} were pinned")
    found = sha256_of(path)
    if found != source.sha256:
        raise LockError(f"{source.file} has sha256 {found}, pinned is {source.sha256}")
