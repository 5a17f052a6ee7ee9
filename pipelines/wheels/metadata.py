"""What a wheel claims to be, and what it contains: facts only, :mod:`.checks` judges them.

Wheels are untrusted: path traversal, duplicate members, zip bombs and files that are not wheels are
refused with ``AuditError``. Anything else wrong is a fact in the result.

Sources: the wheel format in the Python packaging guide (binary distribution format,
"Recording installed projects") and PEP 440 for local versions (``1.0+cu130``).
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import math
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from email.parser import HeaderParser
from enum import IntEnum
from pathlib import Path
from typing import BinaryIO

from packaging.tags import parse_tag
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from pipelines.core.errors import AuditError, PipelineError
from pipelines.core.files import disk_errors
from pipelines.core.versions import parse_version
from pipelines.wheels.binary import BINARIES, Binary, read_alone, read_binary
from pipelines.wheels.fatbin import HEAD, Data, Inventory, inventory
from pipelines.wheels.pe import read_pe, tables_end
from pipelines.wheels.unpacking import UNREADABLE, iter_member_chunks, open_memory_map
from pipelines.wheels.zipform import Form, inspect_zip_form

_SMALL = 16 << 20  # RECORD: 100 bytes a row
_SMALLER, _LINES = 1 << 20, 10_000  # METADATA and WHEEL, which become objects
_SPILL = 32 << 20  # larger binaries are unpacked to a file instead of memory
_DEVICE = (".cubin", ".fatbin", ".ptx")
_TAGS = 1000  # of one wheel
_SBOM, _SBOMS = 4 << 20, 16  # bytes of an SBOM, and how many of a wheel are read
_HEADERS = 64 << 10  # bytes of a binary: linkers' headers have 4 KiB
_MORE = 256 << 10  # bytes after a binary's tables, where its device code often begins
_UNPACKED = 128 << 20  # bytes of a binary that are unpacked for its tables
_UNRECORDED = ("RECORD", "RECORD.jws", "RECORD.p7s")  # the format exempts these from hashes
_STRONG = frozenset({"sha256", "sha384", "sha512"})


@dataclass(frozen=True)
class Limits:
    """Bounds on what a wheel may unpack to; more is refused before any of it is unpacked.

    Deflate packs at most 1:1032; device code seldom more than 1:20. ``ratio`` counts only
    once a wheel unpacks to more than ``small`` bytes.
    """

    members: int = 50_000
    member_bytes: int = 4 << 30
    total_bytes: int = 16 << 30
    ratio: int = 200
    small: int = 64 << 20


class Depth(IntEnum):
    """How much was read: directory and ``.dist-info``; the tables of all Windows binaries; all."""

    NAMES, TABLES, ALL = range(3)


@dataclass(frozen=True)
class RecordFacts:
    """Files only in RECORD, only in the wheel, and with different contents."""

    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()

    @property
    def true(self) -> bool:
        """Whether RECORD matches every file."""
        return not (self.missing or self.extra or self.wrong)


@dataclass(frozen=True)
class WheelFacts:
    """What ``inspect`` found.

    ``name`` (canonical), ``version`` and ``tags`` come from the file name; ``metadata_*`` from
    METADATA, ``wheel_tags`` from WHEEL, ``dist_info`` is that directory's name.
    """

    filename: str
    size: int
    sha256: str
    name: str
    version: str
    tags: tuple[str, ...]
    metadata_name: str
    metadata_version: str
    wheel_tags: tuple[str, ...]
    dist_info: str
    record: RecordFacts
    binaries: tuple[Binary, ...]
    metadata: str = ""
    """METADATA as it is."""
    purelib: bool = False
    """Root-Is-Purelib of WHEEL."""
    members: tuple[str, ...] = ()
    """The names of all its files."""
    sboms: tuple[tuple[str, bytes | None], ...] = ()
    """Names and bytes of its SBOMs; ``None``: too large, or too many."""
    elsewhere: tuple[Binary, ...] = ()
    """Files with device code whose names are not those of binaries."""
    broken: tuple[str, ...] = ()
    """Python sources with a NUL, which Python refuses."""
    form: Form = field(default_factory=Form)
    """The form of its zip archive."""
    depth: Depth = Depth.ALL
    """How much was read. The rest is empty, as is the sha256 of a wheel not read whole."""
    fetched: int = 0
    """Bytes that were fetched from a server."""

    @property
    def extensions(self) -> tuple[Binary, ...]:
        """The extension modules."""
        return tuple(binary for binary in self.binaries if binary.module)

    @property
    def names_agree(self) -> bool:
        """File name, METADATA and dist-info agree on name and version, local version included."""
        folder, _, version = self.dist_info.removesuffix(".dist-info").partition("-")
        stated = ((self.metadata_name, self.metadata_version), (folder, version))
        return all(
            canonicalize_name(name) == self.name and parse_version(text) == Version(self.version)
            for name, text in stated
        )

    @property
    def tags_agree(self) -> bool:
        """The file name's tags are exactly those of the WHEEL file."""
        return self.tags == self.wheel_tags


def inspect_wheel(path: Path, *, limits: Limits | None = None) -> WheelFacts:
    """Read a whole wheel; ``AuditError`` if it is not one, or is hostile."""
    try:
        with path.open("rb") as file:
            facts = inspect_file(file, path, path.stat().st_size, limits or Limits(), Depth.ALL)
            file.seek(0)
            return replace(facts, sha256=hashlib.file_digest(file, "sha256").hexdigest())
    except UNREADABLE as error:
        raise _rejected_file_error(path, f"it cannot be read: {error}") from error


def inspect_file(file: BinaryIO, path: Path, size: int, limits: Limits, depth: Depth) -> WheelFacts:
    """As :func:`inspect_wheel`, to ``depth`` and without sha256; raises ``UNREADABLE``, too."""
    try:
        name, version, _, tags = parse_wheel_filename(path.name)
    except ValueError as error:  # InvalidWheelFilename, InvalidTag
        raise _rejected_file_error(path, f"not the name of a wheel: {error}") from error
    with zipfile.ZipFile(file) as archive:
        members = _validate_members(path, archive, limits, size)
        info = _dist_info(path, members)
        text = _read_metadata_text(archive, members, f"{info}/METADATA", path, _SMALLER)
        metadata = HeaderParser().parsestr(text)
        wheel = HeaderParser().parsestr(
            _read_metadata_text(archive, members, f"{info}/WHEEL", path, _SMALLER)
        )
        sboms = _read_embedded_sboms(archive, members, info)
        alone = all((tag.interpreter[:2], tag.abi) == ("py", "none") for tag in tags)
        if depth is Depth.ALL:
            record, binaries, elsewhere, broken = _contents(path, archive, members, info, alone)
        else:
            record, elsewhere, broken = RecordFacts(), (), ()
            binaries, depth = _read_all_binary_headers(archive, members)
        return WheelFacts(
            filename=path.name,
            size=size,
            sha256="",
            name=name,
            version=str(version),
            tags=tuple(sorted(map(str, tags))),
            metadata_name=metadata.get("Name", ""),
            metadata_version=metadata.get("Version", ""),
            wheel_tags=_expand_wheel_tags(wheel.get_all("Tag", [])),
            dist_info=info,
            record=record,
            elsewhere=elsewhere,
            broken=broken,
            binaries=binaries,
            metadata=text,
            purelib=wheel.get("Root-Is-Purelib", "").strip().lower() == "true",
            members=tuple(members),
            form=inspect_zip_form(file, archive) if depth is Depth.ALL else Form(),
            sboms=sboms,
            depth=depth,
        )


def read_sboms(path: Path) -> dict[str, str]:
    """The sha256 of each SBOM in a wheel; nothing else is read. Raises what ``inspect`` does."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = _validate_members(path, archive, Limits(), path.stat().st_size)
            return sbom_hashes(_read_embedded_sboms(archive, members, _dist_info(path, members)))
    except UNREADABLE as error:
        raise _rejected_file_error(path, f"it cannot be read: {error}") from error


def sbom_hashes(sboms: Iterable[tuple[str, bytes | None]]) -> dict[str, str]:
    """The sha256 by name of each that was read; those that were not are not stated either."""
    return {n: hashlib.sha256(d).hexdigest() for n, d in sorted(sboms) if d is not None}


def _rejected_file_error(path: Path, why: str) -> AuditError:
    return AuditError(
        f"{path.name} is rejected: {why}", hint="Build it again; keep this file for inspection."
    )


def _validate_members(
    path: Path, archive: zipfile.ZipFile, limits: Limits, packed: int
) -> dict[str, zipfile.ZipInfo]:
    """Files by name, directories left out; refuses what must not be unpacked."""
    files: dict[str, zipfile.ZipInfo] = {}
    entries = archive.infolist()
    if len(entries) > limits.members:
        raise _rejected_file_error(path, f"{len(entries)} members, more than {limits.members}")
    for member in entries:
        # orig_filename: ZipInfo cuts filename at a NUL, what unpacks it later may not.
        name = member.orig_filename
        parts = name.rstrip("/").split("/")
        if "\\" in name or ":" in name or "\0" in name or any(p in {"", ".", ".."} for p in parts):
            raise _rejected_file_error(path, f"member {name!r} would land outside its directory")
        if name in files:
            raise _rejected_file_error(path, f"duplicate member {name!r}")
        if member.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
            raise _rejected_file_error(
                path, f"member {name!r} has compression method {member.compress_type}"
            )
        if member.file_size > limits.member_bytes:
            raise _rejected_file_error(path, f"member {name!r} unpacks to {member.file_size} bytes")
        if not member.is_dir():
            files[name] = member
    total = sum(m.file_size for m in files.values())
    if total > limits.total_bytes or (total > limits.small and total > packed * limits.ratio):
        raise _rejected_file_error(path, f"{packed} bytes unpack to {total}: a zip bomb")
    return files


def _dist_info(path: Path, members: dict[str, zipfile.ZipInfo]) -> str:
    folders = sorted(
        {top for name in members if (top := name.split("/")[0]).endswith(".dist-info")}
    )
    if len(folders) != 1:
        raise _rejected_file_error(
            path, f"expected one .dist-info directory, found {len(folders)}: {folders[:3]}"
        )
    return folders[0]


def _read_metadata_text(
    archive: zipfile.ZipFile,
    members: dict[str, zipfile.ZipInfo],
    name: str,
    path: Path,
    most: int = _SMALL,
) -> str:
    member = members.get(name)
    if member is None:
        raise _rejected_file_error(path, f"{name} is missing")
    if member.file_size > most:
        raise _rejected_file_error(path, f"{name} has {member.file_size} bytes, more than {most}")
    data = b"".join(iter_member_chunks(archive, member))
    lines = data.count(b"\n") + data.count(b"\r")
    if lines > (_LINES if most < _SMALL else 2 * len(members) + _LINES):
        raise _rejected_file_error(path, f"{name} has {lines} lines")
    return data.decode("utf-8", "replace")


def _contents(
    path: Path,
    archive: zipfile.ZipFile,
    members: dict[str, zipfile.ZipInfo],
    info: str,
    alone: bool,
) -> tuple[RecordFacts, tuple[Binary, ...], tuple[Binary, ...], tuple[str, ...]]:
    """Unpack every member: hash it, compare it with RECORD, read binaries."""
    listed = [*_parse_record_rows(_read_metadata_text(archive, members, f"{info}/RECORD", path))]
    rows, counts = dict(listed), Counter(name for name, _ in listed)
    exempt = {f"{info}/{name}" for name in _UNRECORDED}
    wrong = [name for name in members if counts[name] > 1]  # readers differ in which row they use
    binaries, elsewhere, broken = [], [], []
    for name, member in members.items():
        keep = _is_binary(name)
        hashed, size = rows.get(name, ("", ""))
        algorithm = hashed.partition("=")[0]
        # md5, sha1 and no hash at all prove nothing
        strong = hashlib.new(algorithm) if algorithm in _STRONG else None
        pieces = _hashed(iter_member_chunks(archive, member), strong)
        if keep:
            with _buffer_binary(pieces, member.file_size) as data:
                binaries.append(read_binary(name, data, alone=alone))
        else:
            device, nul = _looked_through(name, pieces)
            if device:
                with _buffer_binary(iter_member_chunks(archive, member), member.file_size) as data:
                    elsewhere.append(read_alone(name, data))
            if nul and name.endswith(".py"):
                broken.append(name)
        for _ in pieces:
            pass
        if name in rows and name not in exempt:
            value = base64.urlsafe_b64encode(strong.digest()).decode() if strong else ""
            same = strong and hashed.rstrip("=") == f"{algorithm}={value}".rstrip("=")
            if not same or size not in {"", str(member.file_size)}:
                wrong.append(name)
    record = RecordFacts(
        missing=tuple(sorted(set(rows) - set(members))),
        extra=tuple(sorted(set(members) - set(rows) - exempt)),
        wrong=tuple(wrong),
    )
    return record, tuple(binaries), tuple(elsewhere), tuple(broken)


def _is_binary(name: str) -> bool:
    """Windows loads HELPER.DLL as well."""
    return name.endswith(BINARIES) or name.lower().endswith((".dll", ".pyd"))


def _read_all_binary_headers(
    archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo]
) -> tuple[tuple[Binary, ...], Depth]:
    """The binaries up to their tables, and whether the tables of all for Windows were read."""
    binaries = [
        _read_binary_headers(archive, member)
        for name, member in members.items()
        if _is_binary(name)
    ]
    tables = all(
        binary.pe and None not in (binary.pe.needs, binary.pe.late, binary.pe.exports)
        for binary in binaries
        if not binary.name.endswith(".so")
    )
    return tuple(binaries), Depth.TABLES if tables else Depth.NAMES


def _read_binary_headers(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Binary:
    name, why = member.filename, "not for Windows"
    try:
        if not name.endswith(".so"):
            data, end = bytearray(), 0
            for chunk in iter_member_chunks(archive, member, _HEADERS):
                data += chunk
                end = end or min(tables_end(bytes(data)), _UNPACKED) + _MORE
                if len(data) >= end:
                    break
            head = bytes(data)
            return Binary(name, replace(inventory(head), complete=False), pe=read_pe(head))
    except (*UNREADABLE, PipelineError):
        raise
    except Exception as error:  # SpentError, or as in read_binary
        why = type(error).__name__
    return Binary(name, Inventory(complete=False), problem=f"not read: {why}")


def _read_embedded_sboms(
    archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], info: str
) -> tuple[tuple[str, bytes | None], ...]:
    """The SBOMs as in PEP 770; only the first few are read."""
    found = [member for name, member in members.items() if name.startswith(f"{info}/sboms/")]
    return tuple(
        (one.filename, None)
        if at >= _SBOMS or one.file_size > _SBOM
        else (one.filename, b"".join(iter_member_chunks(archive, one)))
        for at, one in enumerate(found)
    )


def _looked_through(name: str, pieces: Iterable[bytes]) -> tuple[bool, bool]:
    """Whether a file has device code, by its name or contents; whether it has a NUL."""
    device, nul, tail = name.lower().endswith(_DEVICE), False, b""
    for chunk in pieces:
        device = device or HEAD in tail + chunk
        nul = nul or b"\0" in chunk
        tail = chunk[1 - len(HEAD) :]
    return device, nul


def _hashed(pieces: Iterable[bytes], strong: hashlib._Hash | None) -> Iterator[bytes]:
    for chunk in pieces:
        if strong:
            strong.update(chunk)
        yield chunk


@contextmanager
def _buffer_binary(pieces: Iterable[bytes], size: int) -> Iterator[Data]:
    """A binary as one buffer; a large one is mapped from an anonymous file."""
    if size < _SPILL:
        yield b"".join(pieces)
        return
    with tempfile.TemporaryFile(prefix="wcw-binary-") as file:
        for chunk in pieces:
            with disk_errors(Path(tempfile.gettempdir())):
                file.write(chunk)
        with disk_errors(Path(tempfile.gettempdir())):
            file.flush()
        with open_memory_map(file) as data:
            yield data


def _parse_record_rows(text: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """RECORD: (name, (hash, size)) for each line that has a name."""
    try:
        for row in csv.reader(io.StringIO(text, newline="")):
            if row and row[0]:
                name, hashed, size = [*row, "", ""][:3]
                yield name, (hashed, size)
    except csv.Error:  # the rest of the file is not CSV: its files then count as unrecorded
        return


def _expand_wheel_tags(lines: list[str]) -> tuple[str, ...]:
    """WHEEL's Tag lines, expanded and sorted; invalid lines are kept as they are.

    So are lines that would expand to too many tags.
    """
    tags: set[str] = set()
    total = 0
    for line in lines:
        many = math.prod(part.count(".") + 1 for part in line.split("-"))  # python-abi-platform
        total += many
        try:
            tags |= set(map(str, parse_tag(line))) if total <= _TAGS else {line}
        except ValueError:
            tags.add(line)
    return tuple(sorted(tags))
