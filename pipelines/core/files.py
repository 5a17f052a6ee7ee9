"""Files on this machine: hashed, written whole or not at all, disk errors by their name."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from pipelines.core.errors import StorageError
from pipelines.remote.files import replace

#: What the operating system says when a disk cannot take more, or is not there.
DISK_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.ENOTDIR})
_PIECE = 4 << 20


def sha256_of(path: Path) -> str:
    """The sha256 of a file, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def tree_size(path: Path) -> int:
    """Bytes of the files below ``path``; another process may be adding and removing some."""
    size = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(FileNotFoundError):
                size += Path(folder, name).lstat().st_size
    return size


def disk_error_hint(error: OSError, space: str = "some space") -> str:
    """What to do about one of ``DISK_ERRNOS``, the begin of a sentence."""
    if error.errno == errno.EACCES:
        return "Check who may write there, close what has it open"
    if error.errno == errno.ENOTDIR:
        return "Check the path: in it a file is in place of a directory"
    return f"Free {space}"


@contextmanager
def disk_errors(
    where: Path, otherwise: str = "name another directory: out in pipeline.yaml"
) -> Iterator[None]:
    """Turn "no space" and its kin into :class:`StorageError` naming ``where``.

    ``otherwise``: what else helps.
    """
    try:
        yield
    except OSError as error:
        if error.errno in DISK_ERRNOS:
            raise StorageError(
                f"cannot write to {where}: {error.strerror}",
                hint=f"{disk_error_hint(error)}, or {otherwise}.",
            ) from error
        raise


def make_directory(path: Path) -> None:
    """Make a directory that was named; :class:`StorageError` where that cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"cannot create {path}: {error.strerror}", hint="Name a writable directory."
        ) from None


def new_directory(parent: Path, name: str, what: str) -> Path:
    """Make ``parent/name``, or the first free ``name-1``, ``name-2``, ...

    :class:`StorageError` where 100 of them are there: the name holds a second, ``what`` the plural.
    """
    for number in range(100):
        path = parent / f"{name}{f'-{number}' if number else ''}"
        try:
            with disk_errors(parent):
                path.mkdir(parents=True)
        except FileExistsError:
            continue
        return path
    raise StorageError(f"100 {what} began in this second in {parent}", hint="Try again.")


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file so that it is there whole or not at all, even after a power failure."""
    with disk_errors(path.parent):
        copy_atomic(io.BytesIO(data), path)


def copy_atomic(source: BinaryIO, path: Path) -> None:
    """The same of what is read from ``source``; errors are those of the system."""
    with atomic_output(path) as part, part.open("wb") as stream:
        shutil.copyfileobj(source, stream, _PIECE)
        stream.flush()
        os.fsync(stream.fileno())


@contextmanager
def atomic_output(path: Path, part: Path | None = None) -> Iterator[Path]:
    """Where to write what is renamed to ``path`` at the end, or removed after an error.

    The directory is made. The usual name is one for all processes, so that the next one replaces
    what a killed one has left; where several may write at once, ``part`` is :func:`own_part`.
    """
    part = part or path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def own_part(path: Path) -> Path:
    """A name next to ``path`` that no other process or thread uses."""
    return path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.part")


def find_nearby(path: Path, name: str) -> Path | None:
    """A file called ``name`` next to that one, or above its directory, as runs have manifests."""
    folder = path.absolute().parent
    places = (folder / name, folder.parent / name)
    return next((place for place in places if place.is_file()), None)
