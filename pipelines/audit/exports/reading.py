"""Reads what DLLs export, of a wheel here or on a server and of a directory, and keeps that."""

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
from packaging.version import InvalidVersion, Version

from pipelines.audit.exports.kept import Head, Kept, keep
from pipelines.core.errors import ConfigError, LockError
from pipelines.core.hosttext import line
from pipelines.wheels.pe import exports_of
from pipelines.wheels.unpacking import chunks, mapped

_RECORD = 64 << 20  # bytes: torch's has 2 MB
_LARGEST = 4 << 30  # bytes of a DLL: torch_cuda.dll has 1 to 2 GB
_FILES = 100_000

#: Of a DLL's name in lower case: whether its exports are wanted.
Wanted = Callable[[str], bool]


def read_archive(
    archive: zipfile.ZipFile,
    file: str,
    sha256: str,
    wanted: Wanted,
    root: Path,
    *,
    whole: bool,
    largest: int = _LARGEST,
) -> Kept:
    """Of a wheel called ``file``, into the cache at ``root``.

    Only its list of files and the DLLs that are wanted are read, of ``largest`` packed bytes each,
    and held against the wheel's own RECORD. Raises :class:`LockError` where the wheel is damaged or
    is another one than its name says.
    """
    try:
        if len(archive.infolist()) > _FILES:
            raise _refused(file, f"it has more than {_FILES} files")
        members = {PurePosixPath(one.filename): one for one in archive.infolist()}
        dlls = {path.name.lower(): one for path, one in members.items() if _is_dll(path)}
        version, record = _said(archive, file, members)
        hashes = {(p.name.lower(), record.get(one.filename)) for p, one in members.items()}
        every = Counter(name for name, _ in hashes)
        if sum(one.file_size for name, one in dlls.items() if wanted(name)) > 2 * _LARGEST:
            raise _refused(file, "its DLLs are too large")
        read = {
            # Of two that are not the same nobody knows which is loaded.
            name: _exports(archive, one, record)
            if one.compress_size <= largest and every[name] == 1
            else None
            for name, one in sorted(dlls.items())
            if wanted(name)
        }
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, KeyError, ValueError) as error:
        raise _refused(file, f"it cannot be read: {line(str(error), 200)}") from error
    head = Head(
        file=file,
        sha256=sha256,
        whole=whole,
        version=version,
        libraries={},
        others=tuple(sorted(set(dlls) - set(read))),
    )
    return keep(root, head, read)


def read_folder(folder: Path, version: str, wanted: Wanted, root: Path) -> Kept:
    """The same of the DLLs in a directory; :class:`ConfigError` when it cannot be read."""
    try:
        dlls = {one.name.lower(): one for one in folder.iterdir() if _is_dll(one)}
        read = {}
        for name, path in sorted(dlls.items()):
            if wanted(name):
                with path.open("rb") as file, mapped(file) as data:
                    read[name] = exports_of(data)
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be read: {error.strerror}", hint="Name torch's directory."
        ) from None
    others = tuple(sorted(set(dlls) - set(read)))
    head = Head(
        file=folder.name, sha256="", whole=True, version=version, libraries={}, others=others
    )
    return keep(root, head, read)


def _is_dll(path: Path | PurePosixPath) -> bool:
    return path.suffix.lower() == ".dll"


def _said(
    archive: zipfile.ZipFile, file: str, members: dict[PurePosixPath, zipfile.ZipInfo]
) -> tuple[str, dict[str, str]]:
    """What a wheel says of itself: its version, and the sha256 of its files."""
    try:
        name, version, _, tags = parse_wheel_filename(file)
    except InvalidWheelFilename:
        raise _refused(file, "its name is not a wheel's") from None
    if "win_amd64" not in {tag.platform for tag in tags}:
        raise _refused(file, "it is not for Windows")
    infos = {one.parts[0] for one in members if one.parts and one.parts[0].endswith(".dist-info")}
    if len(infos) != 1:
        raise _refused(file, f"it has {len(infos)} .dist-info directories")
    info = infos.pop()
    own, _, said = info.removesuffix(".dist-info").partition("-")
    head = HeaderParser().parsestr(_text(archive, file, members[PurePosixPath(info, "METADATA")]))
    told = [(own, said), (head.get("Name", ""), head.get("Version", ""))]
    for own, said in told:
        try:
            same = Version(said) == version and canonicalize_name(own) == name
        except InvalidVersion:
            same = False
        if not same:
            raise _refused(file, f"inside it is {line(own, 80)} {line(said, 80)}")
    text = _text(archive, file, members[PurePosixPath(info, "RECORD")])
    rows = csv.reader(io.StringIO(text, newline=""))
    try:
        return str(version), {row[0]: row[1] for row in rows if len(row) > 1}
    except csv.Error as error:
        raise _refused(file, f"its RECORD: {error}") from None


def _text(archive: zipfile.ZipFile, file: str, member: zipfile.ZipInfo) -> str:
    if member.file_size > _RECORD:
        raise _refused(file, f"{line(member.filename, 200)} has {member.file_size} bytes")
    return b"".join(chunks(archive, member)).decode("utf-8", "replace")


def _exports(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, record: dict[str, str]
) -> frozenset[str] | None:
    if member.file_size > _LARGEST:
        return None
    hashed = hashlib.sha256()
    with tempfile.TemporaryFile(prefix="wcw-dll-") as file:
        for chunk in chunks(archive, member):
            hashed.update(chunk)
            file.write(chunk)
        found = base64.urlsafe_b64encode(hashed.digest()).decode().rstrip("=")
        said = record.get(member.filename, "").rstrip("=")
        if said != f"sha256={found}":
            raise _refused(member.filename, "its bytes are not those of the wheel's RECORD")
        with mapped(file) as data:
            return exports_of(data)


def _refused(file: str, why: str) -> LockError:
    return LockError(
        f"{line(file, 200)}: {why}", hint="Nothing is judged by it: name another wheel of torch."
    )
