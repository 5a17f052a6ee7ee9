"""Reads members of archives in chunks and maps files, to save memory."""

from __future__ import annotations

import io
import mmap
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from pipelines.wheels.fatbin import Data

_CHUNK = 1 << 20
#: What reading an untrusted archive raises. RuntimeError: an encrypted member; zlib.error
#: and EOFError: a damaged one; UnicodeDecodeError: a name marked as UTF-8 that is not.
UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, EOFError),
    *(RuntimeError, OSError, UnicodeDecodeError),
)


def iter_member_chunks(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, size: int = _CHUNK
) -> Iterator[bytes]:
    """The member's bytes in chunks, up to its stated size.

    ``ZipFile.read`` would unpack up to 2 GiB of a member with a false size.
    """
    with archive.open(member) as stream:
        while chunk := stream.read(size):
            yield chunk


class SpentError(Exception):
    """No more bytes of a file on a server may be fetched."""


@contextmanager
def open_memory_map(file: io.BufferedRandom | io.BufferedReader) -> Iterator[Data]:
    """A file as a memory map; ``b""`` for an empty one."""
    file.flush()
    if not file.seek(0, io.SEEK_END):
        yield b""
        return
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        yield data
