"""The host's side of put and get: files in blocks with checksums, and a sha256 of the whole.

A damaged block is found by its CRC-32 and sent again; sha256 takes eight times as long, and
verifies the complete file at both ends before it is renamed into place.

The received part of an upload is next to its target, as ``<target>.<key>.part``. The key is the
beginning of the content's sha256, so that different contents never mix, and uploads of the same
content write the same bytes. This, rather than a lock, allows two controllers to upload at once: a
lock would be held by the Python of a broken connection for as long as its shell lives.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import time
import zlib
from collections.abc import Generator, Iterator
from typing import Protocol, TypedDict

from . import protected_dirs
from .files import long_path, replace, writing
from .files import sha256 as file_sha256
from .rpc import Feed, fed, idempotent

_READ = 1 << 20
#: Limit for a decompressed piece, whatever it claims.
_PIECE = 16 << 20
#: Seconds without a new block after which a part counts as abandoned.
ABANDONED = 600.0
_PART = re.compile(r"\.[0-9a-f]{12}\.part")
_BINARY = getattr(os, "O_BINARY", 0)


class Digest(Protocol):
    """The parts of hashlib's interface used here."""

    def update(self, data: bytes, /) -> None:
        """Take more data."""

    def hexdigest(self) -> str:
        """The digest in hexadecimal digits."""


class Check:
    """CRC-32 with the interface of hashlib's."""

    def __init__(self) -> None:
        self._sum = 0

    def update(self, data: bytes) -> None:
        """Take more data."""
        self._sum = zlib.crc32(data, self._sum)

    def hexdigest(self) -> str:
        """Eight hexadecimal digits."""
        return f"{self._sum:08x}"


def _part_path(path: str, key: str) -> str:
    return f"{long_path(path)}.{key}.part"


def pack(piece: bytes) -> bytes:
    """Compress a piece: level 1, since stronger compression would be slower than the network."""
    return zlib.compress(piece, 1)


def unpack(piece: bytes) -> bytes:
    """The decompressed piece; ``ValueError`` if it is invalid."""
    machine = zlib.decompressobj()
    try:
        data = machine.decompress(piece, _PIECE)
    except zlib.error as error:
        raise ValueError(f"a compressed block of a file is damaged: {error}") from error
    if not machine.eof:
        raise ValueError("a compressed block of a file is truncated, or too large")
    return data


@contextlib.contextmanager
def _filling(path: str, part: str) -> Iterator[None]:
    """Name the target in errors; on a full disk the part is removed to free space."""
    try:
        with writing(path):
            yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)):
            with contextlib.suppress(OSError):
                os.unlink(part)  # noqa: PTH108
        raise


@fed
def receive(
    chunks: Feed, path: str, key: str, offset: int, *, packed: bool = False, whole: bool = False
) -> bool:
    """Write one block of an upload; returns whether it arrived intact, else nothing is written.

    With ``whole`` the block is the complete file, which is then renamed into place.
    """
    digest: Digest = hashlib.sha256() if whole else Check()
    block = bytearray()
    for chunk in chunks:
        try:
            piece = unpack(chunk) if packed else chunk
        except ValueError:
            piece = b""  # damaged: the digest will not agree
        digest.update(piece)
        block += piece
    if digest.hexdigest() != chunks.digest:
        return False
    part = _part_path(path, key)
    protected_dirs.make(os.path.dirname(part) or ".")  # noqa: PTH120
    with _filling(path, part):
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | _BINARY, 0o666)
        with open(descriptor, "r+b", buffering=0) as file:  # noqa: PTH123
            file.seek(offset)
            left = memoryview(block)
            while left:
                left = left[file.write(left) :]
            if whole:
                file.truncate()
            os.fsync(file.fileno())
    if whole:
        _finalize_upload(part, path, digest.hexdigest())
    return True


@idempotent
def land(path: str, key: str, size: int, sha256: str) -> str:
    """Rename a part to its target if its sha256, which is returned, is this one.

    Without a part, returns the target's: another upload may have been faster. Empty: neither.
    """
    part = _part_path(path, key)
    try:
        with _filling(path, part), open(part, "r+b") as file:  # noqa: PTH123
            file.truncate(min(size, os.fstat(file.fileno()).st_size))
            # Read again, not cached: another upload of the same content may have finished the part
            # that this Python wrote to, and started a new one.
            read = os.fstat(file.fileno())
            digest = hashlib.sha256()
            while data := file.read(_READ):
                digest.update(data)
            actual = digest.hexdigest()
            if actual != sha256:
                return actual
            os.fsync(file.fileno())
        if not os.path.samestat(read, os.stat(part)):  # noqa: PTH116
            return ""
        _finalize_upload(part, path, sha256)
    except FileNotFoundError:
        with contextlib.suppress(FileNotFoundError):
            return file_sha256(path)
        return ""
    return sha256


@idempotent
def discard(path: str, key: str) -> None:
    """Remove a part, if it exists."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_part_path(path, key))  # noqa: PTH108


def _finalize_upload(part: str, path: str, sha256: str) -> None:
    """Rename, and remove the parts of other contents for this target."""
    target = long_path(path)
    try:
        replace(part, target)
    except FileNotFoundError:  # another controller uploaded the same, and was faster
        if file_sha256(path) != sha256:
            raise
    folder, name = os.path.split(target)
    for entry in os.scandir(folder or "."):
        if entry.name.startswith(name) and _PART.fullmatch(entry.name[len(name) :]):
            with contextlib.suppress(OSError):  # Windows: it is being written to
                if entry.stat().st_mtime < time.time() - ABANDONED:
                    os.unlink(entry.path)  # noqa: PTH108


def digests(path: str, block: int, count: int, key: str = "") -> Iterator[str]:
    """Yield the checksum of each of the first ``count`` blocks of a file, or of its part.

    The last may be shorter. Nothing if the file does not exist.
    """
    try:
        with open(_part_path(path, key) if key else long_path(path), "rb") as file:  # noqa: PTH123
            for _ in range(count):
                digest, left = Check(), block
                while left and (data := file.read(min(left, _READ))):
                    digest.update(data)
                    left -= len(data)
                if left == block:
                    return
                yield digest.hexdigest()
    except FileNotFoundError:
        return


class Head(TypedDict):
    """Size in bytes, and modification time in nanoseconds since the epoch."""

    size: int
    changed: int


@idempotent
def head(path: str) -> Head:
    """For a file to be downloaded; ``OSError`` if it cannot be read."""
    with open(long_path(path), "rb") as file:  # noqa: PTH123
        result = os.fstat(file.fileno())
    return {"size": result.st_size, "changed": result.st_mtime_ns}


def send(
    path: str, offset: int, length: int, chunk: int, *, packed: bool = False
) -> Generator[bytes, None, str]:
    """Yield one block of a file in pieces of ``chunk`` bytes; returns its checksum.

    The block is shorter if the file has become shorter.
    """
    digest = Check()
    with open(long_path(path), "rb") as file:  # noqa: PTH123
        file.seek(offset)
        while length and (data := file.read(min(chunk, length))):
            length -= len(data)
            digest.update(data)
            yield pack(data) if packed else data
    return digest.hexdigest()
