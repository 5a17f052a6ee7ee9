"""Whether a zip can be read in one way only: what pip installs is then what was looked at.

Readers differ where a file says something twice: by its central directory or by its local headers,
by a name or by an extra field with another one, from the front or from the end. Of one canonical
form they all read the same: the members' headers and data tile the file from its first byte up to
the central directory, which repeats each header and ends the file.

Format: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT. Of such confusion:
https://blog.pypi.org/posts/2025-08-07-wheel-archive-confusion-attacks/
"""

from __future__ import annotations

import stat
import struct
from typing import BinaryIO, NamedTuple
from zipfile import ZipFile, ZipInfo

_LOCAL, _CENTRAL = struct.Struct("<4s5H3L2H"), 46  # of the second, bytes before its texts
_ENDS = (22, 22 + 20 + 56)  # what is behind the directory, without and with the records of zip64
_ZIP64, _STREAMED, _UTF8, _UNIX = 1, 1 << 3, 1 << 11, 3
#: NTFS' and Unix' times and owners: 4.5 and 4.6 of the format.
_HARMLESS = frozenset({0x000A, 0x5455, 0x5855, 0x7855, 0x7875})
_FULL = 0xFFFFFFFF


class Form(NamedTuple):
    """How a zip is written."""

    fault: str = ""
    """Why it can be read in more than one way; empty: it cannot."""
    extras: tuple[str, ...] = ()
    """Extra fields with times and owners, which no installer reads and no build of ours writes."""


class _OtherwiseError(ValueError):
    """It can be read in more than one way."""


def form(file: BinaryIO, archive: ZipFile) -> Form:
    """Of ``archive``, as zipfile reads the directory of ``file``; of any bytes."""
    extras: set[str] = set()
    try:
        _require_tiles(file, archive, extras)
    except (_OtherwiseError, UnicodeError, struct.error) as error:
        return Form(str(error))
    return Form(extras=tuple(sorted(extras)))


def _require_tiles(file: BinaryIO, archive: ZipFile, extras: set[str]) -> None:
    position, length = 0, 0
    for one in sorted(archive.infolist(), key=lambda one: one.header_offset):
        name = one.orig_filename.encode("utf-8" if one.flag_bits & _UTF8 else "ascii")
        _require_plain(one)
        if one.header_offset != position:  # zipfile adds what it finds in front of a zip
            raise _OtherwiseError(f"{position:#x} to {one.header_offset:#x} is of no member")
        position = _end(file, one, name, extras)
        _fields(one.extra, one.orig_filename, extras)
        length += _CENTRAL + len(name) + len(one.extra)
    if position != archive.start_dir:
        raise _OtherwiseError(f"{position:#x} to {archive.start_dir:#x} is of no member")
    rest = file.seek(0, 2) - archive.start_dir - length
    file.seek(-_ENDS[0], 2)
    # Its last record, and of the one for zip64 the same as zipfile has used.
    magic, *parts, comment = struct.unpack("<4s4H2LH", file.read(_ENDS[0]))
    if archive.comment or comment or magic != b"PK\5\6" or rest not in _ENDS:
        raise _OtherwiseError("it has a comment, or something around its end")
    if parts[:2] != [0, 0] or parts[2:4] != [min(len(archive.infolist()), 0xFFFF)] * 2:
        raise _OtherwiseError("its end does not say how many members it has")


def _require_plain(one: ZipInfo) -> None:
    kind = stat.S_IFMT(one.external_attr >> 16) if one.create_system == _UNIX else 0
    if kind not in {0, stat.S_IFDIR if one.is_dir() else stat.S_IFREG}:
        raise _OtherwiseError(f"{one.orig_filename[:100]} is no file")
    if one.is_dir() and one.file_size:
        raise _OtherwiseError(f"{one.orig_filename[:100]} is a directory with bytes")
    if one.comment or one.volume:
        raise _OtherwiseError(f"{one.orig_filename[:100]} has a comment, or is in another part")


def _end(file: BinaryIO, one: ZipInfo, name: bytes, extras: set[str]) -> int:
    """Where a member ends whose local header says the same as the directory."""
    file.seek(one.header_offset)
    row = _LOCAL.unpack(file.read(_LOCAL.size))
    magic, needed, flags, method, _, _, crc, packed, whole, named, extra = row
    texts = file.read(named + extra)
    said = (one.CRC, one.compress_size, one.file_size)
    wide = _fields(texts[named:], one.orig_filename, extras)
    whole = wide.pop(0) if whole == _FULL and wide else whole
    packed = wide.pop(0) if packed == _FULL and wide else packed
    later = flags & _STREAMED and not (crc or packed or whole)  # said behind the member
    if not later and (crc, packed, whole) != said:
        raise _OtherwiseError(f"{one.orig_filename[:100]} has other bytes at its place")
    same = (needed & 0xFF, flags, method) == (one.extract_version, one.flag_bits, one.compress_type)
    if magic != b"PK\3\4" or texts[:named] != name or not same:
        raise _OtherwiseError(f"{one.orig_filename[:100]} says something else at its place")
    end = one.header_offset + _LOCAL.size + int(named) + int(extra) + one.compress_size
    if not flags & _STREAMED:
        return end
    file.seek(end)
    found = file.read(24)
    for kind in (struct.Struct("<4s3L"), struct.Struct("<4sL2Q")):
        if max(said) <= _FULL and found[: kind.size] == kind.pack(b"PK\7\x08", *said):
            return end + kind.size
    raise _OtherwiseError(f"{one.orig_filename[:100]} does not end as it says")


def _fields(extra: bytes, name: str, extras: set[str]) -> list[int]:
    """The numbers of the field for more than 4 GiB; of others only those that say nothing here."""
    numbers: list[int] = []
    while extra:
        kind, length = struct.unpack_from("<2H", extra)
        body, extra = extra[4 : 4 + length], extra[4 + length :]
        if kind == _ZIP64 and not numbers and len(body) == length and not length % 8:
            numbers = [*struct.unpack(f"<{length // 8}Q", body)]
        elif kind in _HARMLESS:
            extras.add(f"{kind:#06x}")
        else:
            raise _OtherwiseError(f"{name[:100]} has an extra field {kind:#06x}")
    return numbers
