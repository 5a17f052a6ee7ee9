"""Whether a zip is unambiguous, so that pip installs exactly what was checked.

Readers differ where a file states something twice: in the central directory or local headers, as a
name or in an extra field, from the front or from the end. They all agree on a canonical form: the
members' headers and data cover the file from its first byte to the central directory, which
repeats each header and ends the file.

Format: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT. Of such confusion:
https://blog.pypi.org/posts/2025-08-07-wheel-archive-confusion-attacks/
"""

from __future__ import annotations

import stat
import struct
from typing import BinaryIO, NamedTuple
from zipfile import ZipFile, ZipInfo

_LOCAL, _CENTRAL = struct.Struct("<4s5H3L2H"), 46  # bytes of a central header before its texts
_ENDS = (22, 22 + 20 + 56)  # size of the end records, without and with zip64
_ZIP64, _STREAMED, _UTF8, _UNIX = 1, 1 << 3, 1 << 11, 3
#: NTFS' and Unix' times and owners: 4.5 and 4.6 of the format.
_HARMLESS = frozenset({0x000A, 0x5455, 0x5855, 0x7855, 0x7875})
_FULL = 0xFFFFFFFF


class Form(NamedTuple):
    """The form of a zip archive."""

    fault: str = ""
    """Why it is ambiguous; empty if it is not."""
    extras: tuple[str, ...] = ()
    """Extra fields with times and owners, which no installer reads."""


class _AmbiguousError(ValueError):
    """The archive can be read in more than one way."""


def inspect_zip_form(file: BinaryIO, archive: ZipFile) -> Form:
    """The form of ``archive``, which zipfile opened from ``file``; accepts any bytes."""
    extras: set[str] = set()
    try:
        _require_tiles(file, archive, extras)
    except (_AmbiguousError, UnicodeError, struct.error) as error:
        return Form(str(error))
    return Form(extras=tuple(sorted(extras)))


def _require_tiles(file: BinaryIO, archive: ZipFile, extras: set[str]) -> None:
    position, length = 0, 0
    for member in sorted(archive.infolist(), key=lambda member: member.header_offset):
        name = member.orig_filename.encode("utf-8" if member.flag_bits & _UTF8 else "ascii")
        _require_plain(member)
        if member.header_offset != position:  # zipfile tolerates data before a zip
            raise _AmbiguousError(
                f"{position:#x} to {member.header_offset:#x} belongs to no member"
            )
        position = _checked_member_end(file, member, name, extras)
        _parse_extra_fields(member.extra, member.orig_filename, extras)
        length += _CENTRAL + len(name) + len(member.extra)
    if position != archive.start_dir:
        raise _AmbiguousError(f"{position:#x} to {archive.start_dir:#x} belongs to no member")
    rest = file.seek(0, 2) - archive.start_dir - length
    file.seek(-_ENDS[0], 2)
    # The last record, and the zip64 record that zipfile used.
    magic, *parts, comment = struct.unpack("<4s4H2LH", file.read(_ENDS[0]))
    if archive.comment or comment or magic != b"PK\5\6" or rest not in _ENDS:
        raise _AmbiguousError("it has a comment or data around its end")
    if parts[:2] != [0, 0] or parts[2:4] != [min(len(archive.infolist()), 0xFFFF)] * 2:
        raise _AmbiguousError("its end record has a wrong number of members")


def _require_plain(member: ZipInfo) -> None:
    kind = stat.S_IFMT(member.external_attr >> 16) if member.create_system == _UNIX else 0
    if kind not in {0, stat.S_IFDIR if member.is_dir() else stat.S_IFREG}:
        raise _AmbiguousError(f"{member.orig_filename[:100]} is not a regular file")
    if member.is_dir() and member.file_size:
        raise _AmbiguousError(f"{member.orig_filename[:100]} is a directory with data")
    if member.comment or member.volume:
        raise _AmbiguousError(f"{member.orig_filename[:100]} has a comment or is on another volume")


def _checked_member_end(file: BinaryIO, member: ZipInfo, name: bytes, extras: set[str]) -> int:
    """The end of a member, whose local header must match the directory."""
    file.seek(member.header_offset)
    row = _LOCAL.unpack(file.read(_LOCAL.size))
    magic, needed, flags, method, _, _, crc, packed, size, named, extra = row
    texts = file.read(named + extra)
    stated = (member.CRC, member.compress_size, member.file_size)
    wide = _parse_extra_fields(texts[named:], member.orig_filename, extras)
    size = wide.pop(0) if size == _FULL and wide else size
    packed = wide.pop(0) if packed == _FULL and wide else packed
    later = flags & _STREAMED and not (crc or packed or size)  # stated after the member
    if not later and (crc, packed, size) != stated:
        raise _AmbiguousError(f"{member.orig_filename[:100]} has other sizes in its local header")
    same = (needed & 0xFF, flags, method) == (
        member.extract_version,
        member.flag_bits,
        member.compress_type,
    )
    if magic != b"PK\3\4" or texts[:named] != name or not same:
        raise _AmbiguousError(f"{member.orig_filename[:100]} has a different local header")
    end = member.header_offset + _LOCAL.size + int(named) + int(extra) + member.compress_size
    if not flags & _STREAMED:
        return end
    file.seek(end)
    descriptor = file.read(24)
    for kind in (struct.Struct("<4s3L"), struct.Struct("<4sL2Q")):
        if max(stated) <= _FULL and descriptor[: kind.size] == kind.pack(b"PK\7\x08", *stated):
            return end + kind.size
    raise _AmbiguousError(f"{member.orig_filename[:100]} does not end as stated")


def _parse_extra_fields(extra: bytes, name: str, extras: set[str]) -> list[int]:
    """The values of the zip64 field; other fields must be harmless."""
    numbers: list[int] = []
    while extra:
        kind, length = struct.unpack_from("<2H", extra)
        body, extra = extra[4 : 4 + length], extra[4 + length :]
        if kind == _ZIP64 and not numbers and len(body) == length and not length % 8:
            numbers = [*struct.unpack(f"<{length // 8}Q", body)]
        elif kind in _HARMLESS:
            extras.add(f"{kind:#06x}")
        else:
            raise _AmbiguousError(f"{name[:100]} has an extra field {kind:#06x}")
    return numbers
