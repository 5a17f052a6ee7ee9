"""Cache of what the DLLs of a wheel or directory export: a small, compressed, hashed file for each.

A line with the sha256 of the rest, a line of JSON, then each DLL's symbols. Torch's 70 to 300 MB of
DLLs become half a megabyte, which can be copied to a machine without a network.
"""

from __future__ import annotations

import hashlib
import lzma
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from pipelines.core.errors import LockError
from pipelines.core.files import atomic_output, disk_errors, own_part
from pipelines.core.model import Model

_LARGEST = 64 << 20  # bytes of such a file
_TEXT = 128 << 20  # bytes of the names of one DLL
_HASH = 64  # hexadecimal digits
_SUFFIX = ".exports"


class Names(Model):
    """Where the symbols of one DLL are, after the head."""

    start: int
    size: int
    count: int


class Head(Model):
    """Describes the source: a wheel or a directory."""

    schema_version: Literal[1] = 1
    file: str
    """Name of the wheel or directory."""
    sha256: str
    """Of the wheel; empty for a directory."""
    whole: bool
    """Whether that hash was computed; if only parts of the wheel were fetched it was stated."""
    listed: str = ""
    """The mark of the index, or ``lock``, that lists this file as that release; empty for a file or
    directory that the user named."""
    version: str
    """Of the distribution, as its own metadata have it."""
    libraries: dict[str, Names | None]
    """DLL in lower case -> its symbols; ``None``: not all of them could be read."""
    others: tuple[str, ...] = ()
    """Other DLLs, which were not read."""


class CacheEntry:
    """One cache file. Raises :class:`LockError` if it is damaged."""

    def __init__(self, path: Path) -> None:
        """Read the head and check the hash of the file."""
        self.path = path
        try:
            if path.stat().st_size > _LARGEST:
                raise _damaged_entry_error(path, "it is too large")
            data = path.read_bytes()
        except OSError as error:
            raise _damaged_entry_error(path, error.strerror or "it cannot be read") from None
        stated, self._data = data[:_HASH], data[_HASH + 1 :]
        self.sha256 = actual = hashlib.sha256(self._data).hexdigest()
        if stated != actual.encode():
            raise _damaged_entry_error(path, f"it has sha256 {actual}")
        text, _, self._names = self._data.partition(b"\n")
        try:
            self.head = Head.model_validate_json(text)
        except ValidationError:
            raise _damaged_entry_error(path, "it has another format version") from None

    def listed(self, root: Path, file: str, mark: str) -> CacheEntry:
        """The same, marked as the release ``file`` of an index or the lock."""
        if (self.head.listed, self.head.file) == (mark, file):
            return self
        update = {"listed": mark, "file": file}
        return _write_cache_entry(root, self.head.model_copy(update=update), self._names)

    def names(self, library: str) -> frozenset[str] | None:
        """What a DLL exports; ``None`` if that is not completely known."""
        at = self.head.libraries.get(library)
        if at is None:
            return None
        unpacker = lzma.LZMADecompressor(memlimit=_TEXT)
        try:
            data = unpacker.decompress(self._names[at.start : at.start + at.size], _TEXT)
            text = data.decode("ascii")
        except (lzma.LZMAError, EOFError, UnicodeDecodeError) as error:
            raise _damaged_entry_error(self.path, str(error)) from None
        names = frozenset(text.split("\n")) if text else frozenset()
        if not unpacker.eof or len(names) != at.count:
            raise _damaged_entry_error(
                self.path, f"{len(names)} symbols of {library}, expected {at.count}"
            )
        return names


def entry_path(root: Path, key: str) -> Path:
    """The file in the cache at ``root`` for a source with that sha256."""
    return root / "exports" / f"{key}{_SUFFIX}"


def list_cache_entries(root: Path) -> list[CacheEntry]:
    """All intact files of the cache."""
    entries = []
    for path in sorted((root / "exports").glob(f"*{_SUFFIX}")):
        try:
            entries.append(CacheEntry(path))
        except LockError:
            continue
    return entries


def store_exports(root: Path, head: Head, read: Mapping[str, frozenset[str] | None]) -> CacheEntry:
    """Write the exports of a source; a directory's file is named by its contents."""
    libraries: dict[str, Names | None] = {}
    packed = b""
    for library, names in sorted(read.items()):
        if names is None:
            libraries[library] = None
            continue
        block = lzma.compress("\n".join(sorted(names)).encode("ascii"), preset=1)
        libraries[library] = Names(start=len(packed), size=len(block), count=len(names))
        packed += block
    return _write_cache_entry(root, head.model_copy(update={"libraries": libraries}), packed)


def _write_cache_entry(root: Path, head: Head, packed: bytes) -> CacheEntry:
    data = head.model_dump_json().encode() + b"\n" + packed
    digest = hashlib.sha256(data).hexdigest()
    path = entry_path(root, head.sha256 or digest)
    with disk_errors(path.parent), atomic_output(path, own_part(path)) as part:
        part.write_bytes(digest.encode() + b"\n" + data)
    return CacheEntry(path)


def _damaged_entry_error(path: Path, why: str) -> LockError:
    return LockError(f"{path} is damaged: {why}", hint="Delete it: it will be created again.")
