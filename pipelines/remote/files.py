"""Files on the host: what put and get are made of, and the few operations that stages need.

Paths are the caller's business; they may be relative to the Python's working directory. Errors
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
from typing import Any

from .rpc import Feed, fed, idempotent

_FULL = 4 << 20  # bytes free below which a disk is called full


def _long(path: str) -> str:
    r"""``path``, on Windows in the form ``\\?\...`` that is not limited to 260 characters."""
    if sys.platform != "win32" or path.startswith("\\\\"):
        return path
    path = os.path.abspath(path)  # noqa: PTH100 - the prefix switches normalisation off
    return path if path.startswith("\\\\") else "\\\\?\\" + path


@contextlib.contextmanager
def writing(path: str) -> Generator[None, None, None]:
    """Name ``path`` in the errors of writing it, and call a full disk by its name.

    The C run-time may report a write that found no room as "invalid argument".
    """
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = path
        if error.errno == errno.EINVAL and _free(path) < _FULL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path) from error
        raise


def _free(path: str) -> int:
    """Bytes free where ``path`` is, or would be."""
    return shutil.disk_usage(os.path.dirname(os.path.abspath(path))).free  # noqa: PTH100, PTH120


def _replace(source: str, target: str) -> None:
    """Rename over ``target``; patiently, for virus scanners hold new files open for a moment."""
    for pause in (0.1, 0.3, 1.0):
        try:
            os.replace(source, target)  # noqa: PTH105 - long paths are strings
        except PermissionError:
            if sys.platform != "win32":
                raise
            time.sleep(pause)
        else:
            return
    os.replace(source, target)  # noqa: PTH105


@fed
def receive(chunks: Feed, path: str) -> dict[str, Any]:
    """Write an upload to ``<path>.part`` and rename it to ``path`` once it is whole and on disk.

    Whatever goes wrong, the partial file is removed and an older ``path`` stays as it was.
    The result tells the sha256 of what came; where it differs from the sender's, nothing landed.
    """
    target = _long(path)
    part = target + ".part"
    digest, size = hashlib.sha256(), 0
    os.makedirs(os.path.dirname(target) or ".", exist_ok=True)  # noqa: PTH103, PTH120
    try:
        with writing(path), open(part, "wb") as file:  # noqa: PTH123
            for chunk in chunks:
                file.write(chunk)
                digest.update(chunk)
                size += len(chunk)
            file.flush()
            os.fsync(file.fileno())
        if digest.hexdigest() == chunks.digest:
            _replace(part, target)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part)  # noqa: PTH108 - gone already when it landed
    return {"sha256": digest.hexdigest(), "size": size}


def send(path: str, chunk: int) -> Generator[Any, None, dict[str, Any]]:
    """Yield the size of a file, then its bytes; returns its sha256 and the number of bytes."""
    digest, size = hashlib.sha256(), 0
    with open(_long(path), "rb") as file:  # noqa: PTH123
        yield os.fstat(file.fileno()).st_size
        while data := file.read(chunk):
            digest.update(data)
            size += len(data)
            yield data
    return {"sha256": digest.hexdigest(), "size": size}


@idempotent
def stat(path: str) -> dict[str, Any] | None:
    """Size, time of change and kind of ``path``; ``None`` when there is nothing."""
    try:
        found = os.stat(_long(path))  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return None
    return {
        "size": found.st_size,
        "mtime": found.st_mtime,
        "directory": modes.S_ISDIR(found.st_mode),
    }


@idempotent
def make_dirs(path: str) -> None:
    """Make the directory and those above it; harmless when it is there."""
    os.makedirs(_long(path), exist_ok=True)  # noqa: PTH103


@idempotent
def remove_tree(path: str) -> bool:
    """Remove a directory with all that is in it, or a file; says whether there was anything."""
    target = _long(path)
    if os.path.islink(target) or os.path.isfile(target):  # noqa: PTH113, PTH114
        os.unlink(target)  # noqa: PTH108
        return True
    if not os.path.isdir(target):  # noqa: PTH112
        return False

    def writable(function: Callable[..., Any], name: str, problem: Any) -> None:
        """Windows refuses to remove read-only files, git's objects for one: lift that, once."""
        error = problem if isinstance(problem, BaseException) else problem[1]
        if isinstance(error, FileNotFoundError):
            return
        if not isinstance(error, PermissionError):
            raise error
        os.chmod(name, modes.S_IRWXU)  # noqa: PTH101
        function(name)

    if sys.version_info >= (3, 12):
        shutil.rmtree(target, onexc=writable)
    else:
        shutil.rmtree(target, onerror=writable)
    return True


@idempotent
def read_tail(path: str, limit: int) -> bytes:
    """The last ``limit`` bytes of a file."""
    with open(_long(path), "rb") as file:  # noqa: PTH123
        file.seek(max(0, file.seek(0, os.SEEK_END) - limit))
        return file.read(limit)


@idempotent
def sha256(path: str) -> str:
    """The sha256 of a file, to find out whether it needs sending at all."""
    digest = hashlib.sha256()
    with open(_long(path), "rb") as file:  # noqa: PTH123
        while data := file.read(1 << 20):
            digest.update(data)
    return digest.hexdigest()
