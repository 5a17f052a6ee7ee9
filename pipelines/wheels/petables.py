"""The tables by which Windows loads a binary: what it imports, at once and late, and exports.

A table is read whole or not at all: pefile leaves out what it cannot read, so that what is missing
would look like what is not wanted, and takes seconds for torch's 60,000 names. Layout:
https://learn.microsoft.com/windows/win32/debug/pe-format and, of late imports, Microsoft's
``delayimp.h``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from pipelines.wheels.fatbin import Data

_LONGEST = 8191  # characters; torch has names of 3,199, MSVC cuts its own at 4,096
_MOST = 200_000  # symbols of one binary: torch_cpu.dll exports 60,513
_TEXT = 64 << 20  # characters of all its names
_IMPORT = struct.Struct("<I8xII")  # names, the DLL's own name, addresses
_LATE = struct.Struct("<II8xI12x")  # attributes, the DLL's own name, names
_EXPORT = struct.Struct("<16xIIIIII")  # base, how many, how many names, and where the three are
_BY_RVA = 1
_PRINTED = frozenset(range(0x21, 0x7F))

#: DLL in lower case, and a name or a number as ``#12``.
Need = tuple[str, str]


class UnreadableError(ValueError):
    """An invalid table, or one larger than any linker writes."""


@dataclass
class Image:
    """A binary's memory layout: maps addresses to file offsets."""

    data: Data
    parts: tuple[tuple[int, int, int], ...]
    """Address, size and place in the file of each section."""
    wide: bool
    """Whether its addresses have 64 bits."""
    base: int
    left: int = _TEXT
    """Remaining budget of characters of names."""
    symbols: int = _MOST
    """Remaining budget of names: many tables can share the same bytes."""

    def place(self, address: int, size: int) -> int:
        """The file offset of ``size`` bytes at that address."""
        for start, length, at in self.parts:
            if start <= address and address + size <= start + length:
                return at + address - start
        raise UnreadableError(f"address {address:#x} is outside the file")

    def rows(self, kind: struct.Struct, address: int) -> Iterator[tuple[int, ...]]:
        """The rows of a table of unknown length."""
        for number in range(_MOST + 1):
            row = address + number * kind.size
            yield kind.unpack_from(self.data, self.place(row, kind.size))
        raise UnreadableError(f"the table at {address:#x} has no end")

    def numbers(self, code: str, count: int, address: int) -> tuple[int, ...]:
        """A table whose length is known."""
        if count > _MOST:
            raise UnreadableError(f"{count} symbols")
        kind = struct.Struct(f"<{count}{code}")
        return kind.unpack_from(self.data, self.place(address, kind.size)) if count else ()

    def text(self, address: int) -> str:
        """A name of printable characters."""
        at = self.place(address, 1)
        end = self.data.find(b"\0", at, at + _LONGEST + 1)
        text = self.data[at : max(end, at)]
        self.left -= len(text)
        if not text or self.left < 0 or not _PRINTED.issuperset(text):
            raise UnreadableError(f"no name at {address:#x}")
        return text.decode("ascii")


def read_imports(image: Image, address: int) -> Iterator[tuple[str, tuple[Need, ...]]]:
    """Each DLL as written, with the symbols imported from it.

    Raises :class:`UnreadableError`, perhaps after the first ones.
    """
    for names, library, addresses in image.rows(_IMPORT, address):
        if not library or not addresses:  # either ends the table
            return
        yield _imports_of(image, library, names or addresses, 0)


def read_late(image: Image, address: int) -> Iterator[tuple[str, tuple[Need, ...]]]:
    """Like :func:`read_imports`, for delay-loaded DLLs."""
    for attributes, library, names in image.rows(_LATE, address):
        if not library:
            return
        # Before Visual C++ 7 these were absolute addresses.
        base = 0 if attributes & _BY_RVA else image.base
        yield _imports_of(image, library - base, names - base, base)


def _imports_of(image: Image, library: int, names: int, base: int) -> tuple[str, tuple[Need, ...]]:
    written = image.text(library)
    kind, numbered = (
        (struct.Struct("<Q"), 1 << 63) if image.wide else (struct.Struct("<I"), 1 << 31)
    )
    symbols = []
    for (value,) in image.rows(kind, names):
        if not value:
            break
        image.symbols -= 1
        if image.symbols < 0:
            raise UnreadableError("too many names")
        number = f"#{value & 0xFFFF}"
        symbols.append(number if value & numbered else image.text(value - base + 2))
    return written, tuple((written.lower(), name) for name in symbols)


def read_exports(image: Image, address: int) -> dict[str, int]:
    """Names, and ordinals as ``#12``, with their addresses; raises :class:`UnreadableError`."""
    head = _EXPORT.unpack_from(image.data, image.place(address, _EXPORT.size))
    base, count, named, functions, names, ordinals = head
    there = image.numbers("I", count, functions)
    labels = [image.text(rva) for rva in image.numbers("I", named, names)]
    numbers = image.numbers("H", named, ordinals)
    if any(number >= count or not there[number] for number in numbers):
        raise UnreadableError("a name without an address")
    if any(label >= labels[at] for at, label in enumerate(labels[:-1], 1)):
        raise UnreadableError("names out of order: Windows uses binary search")
    addresses = {f"#{base + at}": rva for at, rva in enumerate(there) if rva}
    return addresses | {name: there[at] for name, at in zip(labels, numbers, strict=True)}


def read_forwards(image: Image, address: int, size: int) -> Iterator[tuple[str, tuple[Need, ...]]]:
    """Like :func:`read_late`, for exports forwarded to another DLL."""
    _, count, _, functions, _, _ = _EXPORT.unpack_from(
        image.data, image.place(address, _EXPORT.size)
    )
    for forward in image.numbers("I", count, functions):
        if address <= forward < address + size:
            library, _, name = image.text(forward).rpartition(".")
            yield f"{library}.dll", ((f"{library}.dll".lower(), name),)
