"""Timestamps in Windows binaries: where linkers write them, and replacing them.

The layout: https://learn.microsoft.com/windows/win32/debug/pe-format. With ``/Brepro`` a linker
writes a hash instead and marks it with a debug entry of type REPRO; such a binary is not changed.
Neither is one older than the build, which only copied it, and one that is signed.
"""

from __future__ import annotations

import array
import mmap
import struct
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

_EXPORT, _RESOURCE, _CERTIFICATE, _DEBUG = 0, 2, 4, 6
_REPRO, _CODEVIEW = 16, 2
_PE32_PLUS = 0x20B
_ENTRY = 28  # bytes of a debug entry
_CHECKSUM = 64  # where it is in the optional header
_MOST = 64  # debug entries, and levels and rows of resources times a thousand
_SLACK = 2.0  # seconds: timestamps have whole seconds
_DAY = 86400.0


class Debug(NamedTuple):
    """A debug entry: its offset in the file, its type, and the offset and size of its data."""

    at: int
    kind: int
    data: int
    size: int


class Image:
    """The parts of a binary with timestamps; ``ValueError`` if ``data`` is invalid or truncated."""

    def __init__(self, data: bytes | mmap.mmap) -> None:
        self.data = data
        try:
            (self.header,) = struct.unpack_from("<I", data, 0x3C)
            if data[:2] != b"MZ" or data[self.header : self.header + 4] != b"PE\0\0":
                raise ValueError("not a Windows binary")
            sections, optional = struct.unpack_from("<2xH12xH", data, self.header + 4)
            self.optional = self.header + 24
            (magic,) = struct.unpack_from("<H", data, self.optional)
            self._tables = self.optional + (112 if magic == _PE32_PLUS else 96)
            (self._count,) = struct.unpack_from("<I", data, self._tables - 4)
            rows = self.optional + optional
            self._sections = [
                struct.unpack_from("<IIII", data, rows + 40 * n + 8) for n in range(sections)
            ]
        except struct.error as error:
            raise ValueError(f"truncated: {error}") from None

    def table(self, number: int) -> tuple[int, int]:
        """File offset and size of a data directory; zeros: none."""
        if number >= self._count:
            return 0, 0
        at, size = struct.unpack_from("<II", self.data, self._tables + 8 * number)
        if not at or not size:
            return 0, 0
        return (at if number == _CERTIFICATE else self.offset(at)), size

    def offset(self, address: int) -> int:
        """The file offset of an address; 0 if it is not in the file."""
        for _, start, length, place in self._sections:
            if start <= address < start + length:
                return int(address - start + place)
        return 0

    def debug(self) -> list[Debug]:
        """The debug entries."""
        at, size = self.table(_DEBUG)
        if not at:
            return []
        entries = []
        for place in range(at, min(at + size, len(self.data)) - _ENTRY + 1, _ENTRY)[:_MOST]:
            kind, length, _, data = struct.unpack_from("<IIII", self.data, place + 12)
            entries.append(Debug(place, kind, data, length))
        return entries

    @property
    def signed(self) -> bool:
        """Whether it has an Authenticode signature, or space for one."""
        return self.table(_CERTIFICATE) != (0, 0)

    @property
    def repro(self) -> bool:
        """Whether its linker marks the timestamps as hashes."""
        return any(entry.kind == _REPRO for entry in self.debug())

    def stamps(self) -> Iterator[tuple[str, int]]:
        """The offset of every timestamp, with a name for it."""
        yield "header", self.header + 8
        if (at := self.table(_EXPORT)[0]) and at + 8 <= len(self.data):
            yield "exports", at + 4
        for number, entry in enumerate(self.debug()):
            yield f"debug entry {number}", entry.at + 4
        root, size = self.table(_RESOURCE)
        for number, at in enumerate(self._resources(root, min(root + size, len(self.data)))):
            yield f"resources {number}", at

    def _resources(self, root: int, end: int) -> Iterator[int]:
        """The timestamps of the resource tables: a tree, each visited once."""
        waiting, seen = [root] if root else [], set[int]()
        while waiting and len(seen) < _MOST * 1000:
            at = waiting.pop()
            if at in seen or at + 16 > end:
                continue
            seen.add(at)
            yield at + 4
            named, numbered = struct.unpack_from("<HH", self.data, at + 12)
            for place in range(at + 16, min(at + 16 + 8 * (named + numbered), end - 7), 8):
                (below,) = struct.unpack_from("<I", self.data, place + 4)
                if below >> 31:
                    waiting.append(root + (below & 0x7FFFFFFF))

    def pdb(self) -> str:
        """The file of debug information that it names; empty: none."""
        for entry in self.debug():
            if entry.kind == _CODEVIEW and self.data[entry.data : entry.data + 4] == b"RSDS":
                name = self.data[entry.data + 24 : entry.data + min(entry.size, 1024)]
                return name.partition(b"\0")[0].decode("utf-8", "replace")
        return ""


def settled(data: bytes, since: float, epoch: int) -> tuple[bytes, list[str]]:
    """``data`` with recent timestamps set to ``epoch``; the changes, or why there are none."""
    try:
        image = Image(data)
        places = [(name, at) for name, at in image.stamps() if _is_time(data, at, since)]
        pdb, repro, signed = image.pdb(), image.repro, image.signed
    except (ValueError, struct.error) as error:
        return data, [f"unchanged: {error}"]
    left = [f"names {pdb}, with its own signature: link with /DEBUG:NONE"] if pdb else []
    if repro or not places:
        return data, left if repro else []
    if signed:
        return data, ["unchanged: it is signed, and its timestamps are of this build"]
    made = bytearray(data)
    for _, at in places:
        struct.pack_into("<I", made, at, epoch)
    where = image.optional + _CHECKSUM
    if made[where : where + 4] != bytes(4):
        struct.pack_into("<I", made, where, 0)
        struct.pack_into("<I", made, where, checksum(made))
    return bytes(made), [f"timestamp of the {name} replaced" for name, _ in places] + left


def _is_time(data: bytes, at: int, since: float) -> bool:
    (stamp,) = struct.unpack_from("<I", data, at)
    return bool(since - _SLACK <= stamp <= time.time() + _DAY)


def checksum(data: bytes | bytearray) -> int:
    """The header checksum of ``data``, which has zero in its place: IMAGEHLP's algorithm."""
    words = array.array("H", bytes(data) + b"\0" * (len(data) % 2))
    if sys.byteorder == "big":
        words.byteswap()
    total = sum(words)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total + len(data)
