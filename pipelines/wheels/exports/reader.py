"""Reads the exports of the DLLs in a local or remote wheel or a directory, and caches them."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from pipelines.core.errors import ConfigError, LockError
from pipelines.core.hosttext import safe_line
from pipelines.core.versions import parse_version
from pipelines.wheels.exports.cache import CacheEntry, Head, store_exports
from pipelines.wheels.pe import exports_of
from pipelines.wheels.unpacking import iter_member_chunks, open_memory_map

_RECORD = 64 << 20  # bytes: torch's has 2 MB
_LARGEST = 4 << 30  # bytes of a DLL: torch_cuda.dll has 1 to 2 GB
_FILES = 100_000

#: Whether the exports of a DLL, named in lower case, are needed.
Needed = Callable[[str], bool]


def read_archive(
    archive: zipfile.ZipFile,
    file: str,
    sha256: str,
    needed: Needed,
    root: Path,
    *,
    whole: bool,
    largest: int = _LARGEST,
) -> CacheEntry:
    """The exports of a wheel called ``file``, stored in the cache at ``root``.

    Only its list of files and the needed DLLs of up to ``largest`` compressed bytes are read, and
    checked against the wheel's own RECORD. Raises :class:`LockError` if the wheel is damaged or not
    what its name says.
    """
    try:
        if len(archive.infolist()) > _FILES:
            raise _rejected_wheel_error(file, f"it has more than {_FILES} files")
        members = {PurePosixPath(member.filename): member for member in archive.infolist()}
        dlls = {path.name.lower(): member for path, member in members.items() if _is_dll(path)}
        version, record = _read_version_and_hashes(archive, file, members)
        hashes = {(p.name.lower(), record.get(member.filename)) for p, member in members.items()}
        every = Counter(name for name, _ in hashes)
        if sum(dll.file_size for name, dll in dlls.items() if needed(name)) > 2 * _LARGEST:
            raise _rejected_wheel_error(file, "its DLLs are too large")
        read = {
            # Of two different DLLs of one name it is unknown which is loaded.
            name: _exports(archive, dll, record)
            if dll.compress_size <= largest and every[name] == 1
            else None
            for name, dll in sorted(dlls.items())
            if needed(name)
        }
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, KeyError, ValueError) as error:
        raise _rejected_wheel_error(
            file, f"it cannot be read: {safe_line(str(error), 200)}"
        ) from error
    head = Head(
        file=file,
        sha256=sha256,
        whole=whole,
        version=version,
        libraries={},
        others=tuple(sorted(set(dlls) - set(read))),
    )
    return store_exports(root, head, read)


def read_folder(folder: Path, version: str, needed: Needed, root: Path) -> CacheEntry:
    """The same for the DLLs in a directory; :class:`ConfigError` if it cannot be read."""
    try:
        dlls = {file.name.lower(): file for file in folder.iterdir() if _is_dll(file)}
        read = {}
        for name, path in sorted(dlls.items()):
            if needed(name):
                with path.open("rb") as file, open_memory_map(file) as data:
                    read[name] = exports_of(data)
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be read: {error.strerror}", hint="Name torch's directory."
        ) from None
    others = tuple(sorted(set(dlls) - set(read)))
    head = Head(
        file=folder.name, sha256="", whole=True, version=version, libraries={}, others=others
    )
    return store_exports(root, head, read)


def _is_dll(path: Path | PurePosixPath) -> bool:
    return path.suffix.lower() == ".dll"


def _read_version_and_hashes(
    archive: zipfile.ZipFile, file: str, members: dict[PurePosixPath, zipfile.ZipInfo]
) -> tuple[str, dict[str, str]]:
    """A wheel's own version, and the sha256 of its files."""
    try:
        name, version, _, tags = parse_wheel_filename(file)
    except InvalidWheelFilename:
        raise _rejected_wheel_error(file, "not the name of a wheel") from None
    if "win_amd64" not in {tag.platform for tag in tags}:
        raise _rejected_wheel_error(file, "it is not for Windows")
    infos = {
        path.parts[0] for path in members if path.parts and path.parts[0].endswith(".dist-info")
    }
    if len(infos) != 1:
        raise _rejected_wheel_error(file, f"it has {len(infos)} .dist-info directories")
    info = infos.pop()
    own, _, release = info.removesuffix(".dist-info").partition("-")
    head = HeaderParser().parsestr(
        _read_archive_text(archive, file, members[PurePosixPath(info, "METADATA")])
    )
    stated = [(own, release), (head.get("Name", ""), head.get("Version", ""))]
    for own, release in stated:
        if parse_version(release) != version or canonicalize_name(own) != name:
            raise _rejected_wheel_error(
                file, f"it contains {safe_line(own, 80)} {safe_line(release, 80)}"
            )
    text = _read_archive_text(archive, file, members[PurePosixPath(info, "RECORD")])
    rows = csv.reader(io.StringIO(text, newline=""))
    try:
        return str(version), {row[0]: row[1] for row in rows if len(row) > 1}
    except csv.Error as error:
        raise _rejected_wheel_error(file, f"its RECORD: {error}") from None


def _read_archive_text(archive: zipfile.ZipFile, file: str, member: zipfile.ZipInfo) -> str:
    if member.file_size > _RECORD:
        raise _rejected_wheel_error(
            file, f"{safe_line(member.filename, 200)} has {member.file_size} bytes"
        )
    return b"".join(iter_member_chunks(archive, member)).decode("utf-8", "replace")


def _exports(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, record: dict[str, str]
) -> frozenset[str] | None:
    if member.file_size > _LARGEST:
        return None
    hashed = hashlib.sha256()
    with tempfile.TemporaryFile(prefix="wcw-dll-") as file:
        for chunk in iter_member_chunks(archive, member):
            hashed.update(chunk)
            file.write(chunk)
        actual = base64.urlsafe_b64encode(hashed.digest()).decode().rstrip("=")
        expected = record.get(member.filename, "").rstrip("=")
        if expected != f"sha256={actual}":
            raise _rejected_wheel_error(
                member.filename, "its contents do not match the wheel's RECORD"
            )
        with open_memory_map(file) as data:
            return exports_of(data)


def _rejected_wheel_error(file: str, why: str) -> LockError:
    return LockError(
        f"{safe_line(file, 200)}: {why}", hint="It is not used. Name another torch wheel."
    )
