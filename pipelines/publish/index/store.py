"""Storage of an index: a directory, an object store, or anything else fsspec supports.

Files are written atomically: by rename in a directory, as one object in an object store. The lock
is created with "only if it does not exist".
"""

from __future__ import annotations

import errno
import hashlib
import io
import mimetypes
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

import fsspec
from fsspec.implementations.local import LocalFileSystem

from pipelines.core.errors import ConfigError, SetupError, StorageError
from pipelines.core.files import DISK_ERRNOS, copy_atomic, disk_error_hint
from pipelines.core.hosttext import safe_line, shown_url
from pipelines.core.shell import pip_install

#: Hint for every storage error.
AGAIN = "The index is intact. Run the same command again to continue."
_PIECE = 4 << 20
#: Modules of object store clients, whose errors are not ``OSError``.
_CLIENTS = frozenset({"botocore", "aiobotocore", "aiohttp", "gcsfs", "adlfs", "azure", "google"})
_EXTRAS = {"s3": "s3fs", "s3a": "s3fs"}
#: What fsspec writes to, but no index can be; docs/publish.md has the sources.
_UNFIT = {
    **dict.fromkeys(("http", "https"), "a registry such as GitLab's generates its own pages"),
    "hf": "Hugging Face serves no directory pages and cannot lock an index",
}
#: botocore would append a CRC32, which R2 and others refuse. Uploads are read back and hashed
#: anyway. https://github.com/amd/gaia/pull/3029
_AS_BEFORE = {"config_kwargs": {"request_checksum_calculation": "when_required"}}


def hash_etags(paths: Iterable[str], tags: Mapping[str, str]) -> str:
    """A hash over the tags of some files, their ETags; empty, if one has none, or without files."""
    rows = sorted((path, tags.get(path, "")) for path in paths)
    whole = rows and all(tag for _, tag in rows)
    return hashlib.sha256(repr(rows).encode()).hexdigest() if whole else ""


class Store:
    """The files of an index, by their paths in it; every error is a :class:`StorageError`."""

    def __init__(self, address: str) -> None:
        """``address`` is a directory, or what fsspec knows: ``s3://bucket/index``.

        Raises :class:`ConfigError` for an unknown kind, and :class:`SetupError` if its library is
        not installed.
        """
        self.name = address
        kind = address.partition("://")[0]
        if kind in _UNFIT:
            raise ConfigError(
                f"--to {shown_url(safe_line(address, 200))}: {_UNFIT[kind]}",
                hint="Publish to a directory, and upload that to a web server or GitLab Pages.",
            )
        try:
            filesystem, root = fsspec.core.url_to_fs(
                address, **(_AS_BEFORE if kind in _EXTRAS else {})
            )
        except ImportError:
            raise SetupError(
                f"{kind}:// needs {_EXTRAS.get(kind, 'another library')}",
                hint=f"Type: {pip_install(_EXTRAS[kind])}"
                if kind in _EXTRAS
                else "See fsspec's documentation.",
            ) from None
        except ValueError as error:
            raise ConfigError(
                f"--to {safe_line(address, 200)}: {safe_line(error, 200)}",
                hint="Name a directory, s3://BUCKET/PATH or github:OWNER/REPO@TAG.",
            ) from None
        if isinstance(filesystem, LocalFileSystem) and Path(str(root)).is_file():
            raise ConfigError(
                f"--to {safe_line(address, 200)}: is a file", hint="Name a directory."
            )
        self._fs = cast("Any", filesystem)
        self._root = str(root).rstrip("/")
        self.is_local = isinstance(filesystem, LocalFileSystem)
        """Whether it is a directory of this machine."""
        self.address = self._root if self.is_local else address
        """As seen from wherever this is called."""
        self.hashed: dict[str, str] = {}
        """Path -> tag of each file that was read and hashed."""
        self._s3 = "s3" in (filesystem.protocol if not self.is_local else ())

    def _path(self, path: str) -> str:
        if path.startswith("/") or ".." in PurePosixPath(path).parts:
            raise ConfigError(f"{safe_line(path, 200)} is outside the index")
        return f"{self._root}/{path}"

    def read(self, path: str, most: int) -> bytes | None:
        """At most ``most + 1`` bytes of a file; ``None`` if it does not exist."""
        with self._errors(path):
            try:
                with self._fs.open(self._path(path), "rb") as stream:
                    return bytes(stream.read(most + 1))
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return None

    def listed(self, folder: str) -> dict[str, tuple[int, str]]:
        """Path -> size, and tag (see :func:`hash_etags`), of every file below ``folder``."""
        with self._errors(folder):
            self._fs.invalidate_cache()
            try:
                entries = self._fs.find(self._path(folder), detail=True)
            except FileNotFoundError:
                return {}
        cut = len(self._root) + 1
        return {
            str(path)[cut:]: (int(about["size"] or 0), _object_etag(about))
            for path, about in entries.items()
        }

    def write(self, path: str, data: bytes) -> None:
        """Write or replace a file."""
        with self._errors(path):
            if self.is_local:
                self._copy(io.BytesIO(data), path)
            else:
                self._fs.pipe_file(self._path(path), data, **self._kind(path))

    def create(self, path: str, data: bytes) -> bool:
        """Write a file unless it exists; whether it was written."""
        with self._errors(path):
            try:
                if self.is_local:
                    Path(self._path(path)).parent.mkdir(parents=True, exist_ok=True)
                self._fs.pipe_file(self._path(path), data, mode="create", **self._kind(path))
            except FileExistsError:
                return False
        return True

    def place(self, path: str, source: Path, sha256: str) -> bool:
        """Upload a file to a path with its ``sha256`` unless it exists; whether it is new.

        Raises :class:`StorageError` if the existing or uploaded file has another hash.
        """
        there = self.sha256(path)
        if there is None:
            with self._errors(path):
                if self.is_local:
                    with source.open("rb") as stream:
                        self._copy(stream, path)
                else:
                    self._fs.put_file(str(source), self._path(path), **self._kind(path))
                self._fs.invalidate_cache()
        if (actual := there or self.sha256(path)) != sha256:
            raise StorageError(
                f"{path} in {self.name} has sha256 {actual}, expected {sha256}",
                hint="The file is damaged or was changed by someone else; no page was changed. "
                "Remove it and run the same command again.",
            )
        return there is None

    def remove(self, path: str) -> None:
        """Remove a file if it exists."""
        with self._errors(path):
            try:
                self._fs.rm_file(self._path(path))
            except FileNotFoundError:
                return

    def sha256(self, path: str) -> str | None:
        """Of the file that is there, which is read; ``None``: no such file."""
        hashed = hashlib.sha256()
        with self._errors(path):
            try:
                with self._fs.open(self._path(path), "rb") as stream:
                    tag = _object_etag(
                        getattr(stream, "details", {})
                    )  # S3 is asked for these bytes
                    while piece := stream.read(_PIECE):
                        hashed.update(piece)
            except FileNotFoundError:
                return None
        self.hashed[path] = tag
        return hashed.hexdigest()

    def _copy(self, source: BinaryIO, path: str) -> None:
        copy_atomic(source, Path(self._path(path)))

    def _kind(self, path: str) -> dict[str, str]:
        """The content type, which object stores need to serve pages."""
        if not self._s3:
            return {}
        name = path.removesuffix(".metadata") if path.endswith(".metadata") else path
        content_type = "text/plain" if name != path else mimetypes.guess_type(path)[0]
        return {"ContentType": content_type or "application/octet-stream"}

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            full = error.errno in DISK_ERRNOS
            refused = isinstance(error, PermissionError) or error.errno == errno.EACCES
            raise StorageError(
                f"{self.name}: {path}: {safe_line(error.strerror or error, 300)}",
                hint=AGAIN
                + (f" {disk_error_hint(error)}." if full and not refused else "")
                + (" Check the write permissions." if refused else ""),
            ) from error
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in _CLIENTS:
                raise
            raise StorageError(
                f"{self.name}: {path}: {safe_line(error, 300)}",
                hint=f"{AGAIN} Check the store's credentials and address.",
            ) from error


def _object_etag(about: Mapping[str, Any]) -> str:
    return str(about.get("ETag") or about.get("etag") or "")
