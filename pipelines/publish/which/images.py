"""What of a Windows binary decides whether it can be loaded: its machine, and if it is whole."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pipelines.wheels.fatbin import Data, Inventory, find_bytes, inventory
from pipelines.wheels.petables import (
    Image,
    Need,
    UnreadableError,
    read_exports,
    read_imports,
    read_late,
)

MACHINES = {0x8664: "x64", 0x14C: "32-bit x86", 0xAA64: "ARM64"}
_PE = struct.Struct("<4sHH12xHH")  # signature, machine, sections, bytes of the next header
_DIRECTORIES = {0x20B: 112, 0x10B: 96}  # where they begin in the optional header
_DIRECTORY = struct.Struct("<II")
_PART = struct.Struct("<8x4I")  # size, address, bytes in the file, and where
_EXPORTS, _IMPORTS, _LATES = 0, 1, 13
_BLOCK = ~0x1FF
_FIXED = b"\xbd\x04\xef\xfe"  # of VS_FIXEDFILEINFO
_MOST_PARTS, _MOST_TABLES = 96, 16


@dataclass(frozen=True)
class Loaded:
    """What a DLL imports from other DLLs, and what it exports."""

    machine: int
    whole: bool
    """Whether the file has all the bytes that its headers announce."""
    needs: tuple[Need, ...] = ()
    """DLLs in lower case, with a name or a number as ``#12``."""
    late: tuple[Need, ...] = ()
    """Those that are looked for when they are first called."""
    exports: frozenset[str] = frozenset()
    libraries: tuple[str, ...] = ()
    """Every DLL that must be there before it can be loaded, in lower case."""
    linker: tuple[int, int] = (0, 0)
    """The version of the linker; of MSVC's also that of the toolset."""


@contextmanager
def open_mapped(path: str) -> Iterator[Data]:
    """A file, mapped into memory; ``OSError`` where it cannot be read."""
    with open(path, "rb") as stream:
        try:
            data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # an empty one
            yield b""
            return
        with data:
            yield data


def read_image(path: str) -> Loaded:
    """Headers, imports and exports.

    Raises :class:`UnreadableError` for what is no Windows binary, or says what cannot be;
    ``OSError`` for one that cannot be read.
    """
    with open_mapped(path) as data:
        start = int.from_bytes(data[0x3C:0x40], "little")
        try:
            machine, whole, image, tables = _headers(data)
        except struct.error:
            raise UnreadableError("its headers are truncated") from None
        if not whole:
            return Loaded(machine, False)
        imported = [*read_imports(image, tables[_IMPORTS])] if tables[_IMPORTS] else []
        late = [*read_late(image, tables[_LATES])] if tables[_LATES] else []
        exports = read_exports(image, tables[_EXPORTS]) if tables[_EXPORTS] else {}
        return Loaded(
            machine,
            True,
            tuple(need for _, needs in imported for need in needs),
            tuple(need for _, needs in late for need in needs),
            frozenset(exports),
            tuple(dict.fromkeys(name.lower() for name, _ in imported)),
            (data[start + 26], data[start + 27]),
        )


def _headers(data: Data) -> tuple[int, bool, Image, list[int]]:
    if data[:2] != b"MZ":
        raise UnreadableError("it is not a Windows binary")
    start = int.from_bytes(data[0x3C:0x40], "little")
    signature, machine, count, size, _ = _PE.unpack_from(data, start)
    first = start + 24
    kind = int.from_bytes(data[first : first + 2], "little")
    if signature != b"PE\0\0" or kind not in _DIRECTORIES or count > _MOST_PARTS:
        raise UnreadableError("it is not a Windows binary")
    wide = kind == 0x20B  # noqa: PLR2004 - PE32+
    at = first + _DIRECTORIES[kind]
    tables = [0] * _MOST_TABLES
    for number in range(min(int.from_bytes(data[at - 4 : at], "little"), _MOST_TABLES)):
        tables[number] = _DIRECTORY.unpack_from(data, at + number * _DIRECTORY.size)[0]
    base_at = first + (24 if wide else 28)
    base = int.from_bytes(data[base_at : base_at + (8 if wide else 4)], "little")
    heads = int.from_bytes(data[first + 60 : first + 64], "little")
    parts, whole = [(0, min(heads, len(data)), 0)], True
    for number in range(count):
        _, address, size_of, raw = _PART.unpack_from(data, first + size + number * 40)
        whole = whole and raw + size_of <= len(data)
        begin = raw & _BLOCK
        parts.append((address, min(size_of, max(len(data) - begin, 0)), begin))
    return machine, whole, Image(data, tuple(parts), wide, base), tables


def file_version(path: str) -> str:
    """The version in a DLL's resources, such as ``14.44.35211.0``; empty: it says none."""
    try:
        with open_mapped(path) as data:
            at = find_bytes(data, _FIXED)
            words = struct.unpack_from("<4H", data, at + 8) if at >= 0 else ()
    except (OSError, struct.error):
        return ""
    return "{1}.{0}.{3}.{2}".format(*words) if words else ""


def read_device_code(path: str) -> Inventory:
    """The machine code and PTX for GPUs in a file."""
    with open_mapped(path) as data:
        return inventory(data)
