"""What the DLLs of one wheel or directory export, as a small file: compressed, and hashed.

A line with the sha256 of all that follows, a line of JSON, then each DLL's names. Torch's 70 MB to
300 MB of DLLs become half a megabyte, which can be copied to a machine without a network.
"""

from __future__ import annotations

import hashlib
import lzma
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from pipelines.core.errors import LockError
from pipelines.core.files import disk_errors
from pipelines.core.model import Model
from pipelines.remote.files import replace

_LARGEST = 64 << 20  # bytes of such a file
_TEXT = 128 << 20  # bytes of the names of one DLL
_HASH = 64  # hexadecimal digits
_SUFFIX = ".exports"


class Names(Model):
    """Where the names of one DLL are, behind the head."""

    start: int
    size: int
    count: int


class Head(Model):
    """What is said of a source: a wheel, or a directory."""

    schema_version: Literal[1] = 1
    file: str
    """Name of the wheel or directory."""
    sha256: str
    """Of the wheel; empty for a directory."""
    whole: bool
    """Whether that was computed; of a wheel of which only parts were fetched it was stated."""
    listed: str = ""
    """The mark of the index, or ``lock``, that says that this is the release of that name; empty:
    nobody does, as of a file or a directory that somebody named."""
    version: str
    """Of the distribution, as its own metadata have it."""
    libraries: dict[str, Names | None]
    """DLL in lower case -> its names; ``None``: not all of them could be read."""
    others: tuple[str, ...] = ()
    """DLLs that are there as well and were not read."""


class Kept:
    """One such file. Raises :class:`LockError` wherever it is damaged."""

    def __init__(self, path: Path) -> None:
        """Reads its head, and hashes it whole."""
        self.path = path
        try:
            if path.stat().st_size > _LARGEST:
                raise _damaged(path, "it is too large")
            data = path.read_bytes()
        except OSError as error:
            raise _damaged(path, error.strerror or "it cannot be read") from None
        stated, self._data = data[:_HASH], data[_HASH + 1 :]
        self.sha256 = found = hashlib.sha256(self._data).hexdigest()
        if stated != found.encode():
            raise _damaged(path, f"it has sha256 {found}")
        text, _, self._names = self._data.partition(b"\n")
        try:
            self.head = Head.model_validate_json(text)
        except ValidationError:
            raise _damaged(path, "it is of another release") from None

    def listed(self, root: Path, file: str, mark: str) -> Kept:
        """The same, of which an index or the lock says that it is the release ``file``."""
        if (self.head.listed, self.head.file) == (mark, file):
            return self
        update = {"listed": mark, "file": file}
        return _write(root, self.head.model_copy(update=update), self._names)

    def names(self, library: str) -> frozenset[str] | None:
        """What a DLL exports; ``None`` where that is not all known."""
        at = self.head.libraries.get(library)
        if at is None:
            return None
        unpacker = lzma.LZMADecompressor(memlimit=_TEXT)
        try:
            data = unpacker.decompress(self._names[at.start : at.start + at.size], _TEXT)
            text = data.decode("ascii")
        except (lzma.LZMAError, EOFError, UnicodeDecodeError) as error:
            raise _damaged(self.path, str(error)) from None
        found = frozenset(text.split("\n")) if text else frozenset()
        if not unpacker.eof or len(found) != at.count:
            raise _damaged(self.path, f"{len(found)} names of {library}, {at.count} are stated")
        return found


def place(root: Path, key: str) -> Path:
    """Where the cache at ``root`` keeps what a source with that sha256 exports."""
    return root / "exports" / f"{key}{_SUFFIX}"


def every(root: Path) -> list[Kept]:
    """All that the cache keeps and are whole."""
    found = []
    for path in sorted((root / "exports").glob(f"*{_SUFFIX}")):
        try:
            found.append(Kept(path))
        except LockError:
            continue
    return found


def keep(root: Path, head: Head, read: Mapping[str, frozenset[str] | None]) -> Kept:
    """Write what was read of a source; a directory's is called by what is in it."""
    libraries: dict[str, Names | None] = {}
    packed = b""
    for library, names in sorted(read.items()):
        if names is None:
            libraries[library] = None
            continue
        one = lzma.compress("\n".join(sorted(names)).encode("ascii"), preset=1)
        libraries[library] = Names(start=len(packed), size=len(one), count=len(names))
        packed += one
    return _write(root, head.model_copy(update={"libraries": libraries}), packed)


def _write(root: Path, head: Head, packed: bytes) -> Kept:
    data = head.model_dump_json().encode() + b"\n" + packed
    found = hashlib.sha256(data).hexdigest()
    path = place(root, head.sha256 or found)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")  # others may make the same
    with disk_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(found.encode() + b"\n" + data)
        replace(part, path)
    return Kept(path)


def _damaged(path: Path, why: str) -> LockError:
    return LockError(
        f"{path} is damaged: {why}", hint="Delete it: it is made anew from where it came."
    )
