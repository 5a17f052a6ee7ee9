"""Files on the host: the few operations that stages need; put and get are in blocks.py.

Callers choose the paths; they may be relative to the Python's working directory. Errors
are plain ``OSError``s: a full disk arrives at the controller as ``ENOSPC`` with the path.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat as modes
import sys
import time
from collections.abc import Callable, Generator
from typing import TypedDict, TypeVar

from . import awake, protected_dirs
from .rpc import idempotent

T = TypeVar("T")

_FULL = 4 << 20  # bytes free below which a disk is called full
#: Seconds that a scanner, an indexer or another reader may hold a file.
_SCAN = 5.0 if sys.platform == "win32" else 0.0


def long_path(path: str) -> str:
    r"""``path``, on Windows in the form ``\\?\...`` that is not limited to 260 characters."""
    if sys.platform != "win32":
        return path
    if not path.startswith("\\\\?\\"):  # which switches normalisation off
        path = os.path.abspath(path)  # noqa: PTH100
    if path.startswith(("\\\\?\\", "\\\\.\\")):
        return path
    return "\\\\?\\UNC" + path[1:] if path.startswith("\\\\") else "\\\\?\\" + path


@contextlib.contextmanager
def writing(path: str) -> Generator[None, None, None]:
    """Name ``path`` in write errors, and report a full disk as such.

    The C runtime may report a write without space as "invalid argument", or, if part of it was
    written, as "bad file descriptor".
    """
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = path
        if error.errno in (errno.EINVAL, errno.EBADF) and _free_space_at(path) < _FULL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path) from error
        raise


def _free_space_at(path: str) -> int:
    """Free bytes on the disk of ``path``."""
    return shutil.disk_usage(os.path.dirname(os.path.abspath(path))).free  # noqa: PTH100, PTH120


def patiently(change: Callable[[], T], *held: int, seconds: float | None = None) -> T:
    """Retry while Windows reports that a scanner, or an ending process, holds the file.

    ``held``: further ``errno`` with that meaning.
    """
    deadline = awake.seconds() + (_SCAN if seconds is None else seconds)
    while True:
        try:
            return change()
        except OSError as error:
            known = isinstance(error, PermissionError) or error.errno in held
            if not known or awake.seconds() >= deadline:
                raise
            time.sleep(0.05)


def replace(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Rename over ``target``; virus scanners hold new files open for a moment."""
    patiently(lambda: os.replace(source, target))  # noqa: PTH105 - long paths are strings


class Stat(TypedDict):
    """Size in bytes, modification time (seconds since the epoch) and kind of a path."""

    size: int
    mtime: float
    directory: bool


@idempotent
def stat(path: str) -> Stat | None:
    """Size, modification time and kind of ``path``; ``None`` if it does not exist."""
    try:
        status = os.stat(long_path(path))  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return None
    return {
        "size": status.st_size,
        "mtime": status.st_mtime,
        "directory": modes.S_ISDIR(status.st_mode),
    }


@idempotent
def make_dirs(path: str) -> None:
    """Create the directory and its parents, if missing."""
    protected_dirs.make(long_path(path))


@idempotent
def remove_tree(path: str) -> bool:
    """Remove a directory with its contents, or a file; returns whether it existed."""
    target = long_path(path)
    if os.path.islink(target) or os.path.isfile(target):  # noqa: PTH113, PTH114
        patiently(lambda: os.unlink(target))  # noqa: PTH108
        return True
    if not os.path.isdir(target):  # noqa: PTH112
        return False

    def writable(
        function: Callable[[str], object],
        name: str,
        problem: BaseException | tuple[object, BaseException, object],
    ) -> None:
        """Windows refuses to remove read-only files, such as git's: make them writable."""
        error = problem if isinstance(problem, BaseException) else problem[1]
        if isinstance(error, FileNotFoundError):
            return
        # A removed file that is still open keeps its directory from being empty.
        if not isinstance(error, PermissionError) and getattr(error, "errno", 0) != errno.ENOTEMPTY:
            raise error
        with contextlib.suppress(FileNotFoundError):
            os.chmod(name, modes.S_IRWXU)  # noqa: PTH101
            patiently(lambda: function(name), errno.ENOTEMPTY)

    if sys.version_info >= (3, 12):
        shutil.rmtree(target, onexc=writable)  # novermin - see above
    else:
        shutil.rmtree(target, onerror=writable)
    return True


@idempotent
def read_tail(path: str, limit: int) -> bytes:
    """The last ``limit`` bytes of a file."""
    with open(long_path(path), "rb") as file:  # noqa: PTH123
        file.seek(max(0, file.seek(0, os.SEEK_END) - limit))
        return file.read(limit)


@idempotent
def sha256(path: str, size: int | None = None) -> str:
    """The sha256 of a file, or of its first ``size`` bytes."""
    digest, left = hashlib.sha256(), sys.maxsize if size is None else size
    with open(long_path(path), "rb") as file:  # noqa: PTH123
        while data := file.read(min(1 << 20, left)):
            left -= len(data)
            digest.update(data)
    return digest.hexdigest()
