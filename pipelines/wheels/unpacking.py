"""Members of archives in pieces, and files as one piece, without the memory they would take."""

from __future__ import annotations

import io
import mmap
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from pipelines.wheels.fatbin import Data

_CHUNK = 1 << 20
#: What reading an archive of somebody else's raises. RuntimeError: an encrypted member; zlib.error
#: and EOFError: a damaged one; UnicodeDecodeError: a name that says that it is UTF-8 and is not.
UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, EOFError),
    *(RuntimeError, OSError, UnicodeDecodeError),
)


def chunks(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[bytes]:
    """The member's bytes in pieces, which stop at the size it states.

    ``ZipFile.read`` would unpack up to 2 GiB of a member that lies about its size.
    """
    with archive.open(member) as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk


@contextmanager
def mapped(file: io.BufferedRandom | io.BufferedReader) -> Iterator[Data]:
    """A file as one piece that costs no memory; ``b""`` where there is nothing to map."""
    file.flush()
    if not file.seek(0, io.SEEK_END):
        yield b""
        return
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        yield data
