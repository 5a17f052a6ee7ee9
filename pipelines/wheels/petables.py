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
    """A table that says what cannot be, or more than any linker makes."""


@dataclass
class Image:
    """A binary as it lies in memory: where its file has what is at an address."""

    data: Data
    parts: tuple[tuple[int, int, int], ...]
    """Address, size and place in the file of each section."""
    wide: bool
    """Whether its addresses have 64 bits."""
    base: int
    left: int = _TEXT
    """Characters of names that it may still have."""
    symbols: int = _MOST
    """Names that it may still want: many tables can be one and the same."""

    def place(self, address: int, size: int) -> int:
        """Where the file has ``size`` bytes of that address."""
        for start, length, at in self.parts:
            if start <= address and address + size <= start + length:
                return at + address - start
        raise UnreadableError(f"nothing of the file is at {address:#x}")

    def rows(self, kind: struct.Struct, address: int) -> Iterator[tuple[int, ...]]:
        """The rows of a table, of which nothing says how long it is."""
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
        """A name; printable characters alone are taken for one."""
        at = self.place(address, 1)
        end = self.data.find(b"\0", at, at + _LONGEST + 1)
        found = self.data[at : max(end, at)]
        self.left -= len(found)
        if not found or self.left < 0 or not _PRINTED.issuperset(found):
            raise UnreadableError(f"no name at {address:#x}")
        return found.decode("ascii")


def read_imports(image: Image, address: int) -> Iterator[tuple[str, tuple[Need, ...]]]:
    """Each DLL as it is written there, with what is wanted of it.

    Raises :class:`UnreadableError`, perhaps after the first ones.
    """
    for names, library, addresses in image.rows(_IMPORT, address):
        if not library or not addresses:  # by either Windows knows the end
            return
        yield _wanted(image, library, names or addresses, 0)


def read_late(image: Image, address: int) -> Iterator[tuple[str, tuple[Need, ...]]]:
    """As :func:`read_imports`, of what is looked for when it is first called."""
    for attributes, library, names in image.rows(_LATE, address):
        if not library:
            return
        # Before Visual C++ 7 these were addresses in memory, as the linker expected it.
        base = 0 if attributes & _BY_RVA else image.base
        yield _wanted(image, library - base, names - base, base)


def _wanted(image: Image, library: int, names: int, base: int) -> tuple[str, tuple[Need, ...]]:
    written = image.text(library)
    kind, numbered = (
        (struct.Struct("<Q"), 1 << 63) if image.wide else (struct.Struct("<I"), 1 << 31)
    )
    found = []
    for (one,) in image.rows(kind, names):
        if not one:
            break
        image.symbols -= 1
        if image.symbols < 0:
            raise UnreadableError("too many names")
        number = f"#{one & 0xFFFF}"
        found.append(number if one & numbered else image.text(one - base + 2))
    return written, tuple((written.lower(), name) for name in found)


def read_exports(image: Image, address: int) -> dict[str, int]:
    """Names, and numbers as ``#12``, with their addresses; raises :class:`UnreadableError`."""
    head = _EXPORT.unpack_from(image.data, image.place(address, _EXPORT.size))
    base, count, named, functions, names, ordinals = head
    there = image.numbers("I", count, functions)
    found = [image.text(one) for one in image.numbers("I", named, names)]
    numbers = image.numbers("H", named, ordinals)
    if any(one >= count or not there[one] for one in numbers):
        raise UnreadableError("a name of nothing")
    if any(one >= found[at] for at, one in enumerate(found[:-1], 1)):
        raise UnreadableError("names out of order: Windows looks them up by halving")
    addresses = {f"#{base + at}": one for at, one in enumerate(there) if one}
    return addresses | {name: there[at] for name, at in zip(found, numbers, strict=True)}


def read_forwards(image: Image, address: int, size: int) -> Iterator[tuple[str, tuple[Need, ...]]]:
    """As :func:`read_late`, of exports that lead on to another DLL: an address in the table."""
    _, count, _, functions, _, _ = _EXPORT.unpack_from(
        image.data, image.place(address, _EXPORT.size)
    )
    for one in image.numbers("I", count, functions):
        if address <= one < address + size:
            library, _, name = image.text(one).rpartition(".")
            yield f"{library}.dll", ((f"{library}.dll".lower(), name),)
