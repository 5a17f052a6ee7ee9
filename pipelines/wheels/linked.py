"""Which compilers and linker have made a Windows binary, as the binary itself tells.

Linkers stamp their version into the optional header. Microsoft's link.exe also leaves a list of
what it was given, the Rich header: products (compiler, assembler, linker) with their builds; its
key is a checksum over the list and all that is before it. lld stamps 14.0 and leaves no list. The
layout and the products are nowhere documented by Microsoft:
https://github.com/RichHeaderResearch/RichPE, https://github.com/dishather/richprint
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pipelines.record.toolsets import MSVC, STAND_IN, ToolSet
from pipelines.wheels.fatbin import Data, find

_DANS = 0x536E6144
_LFANEW = range(0x3C, 0x40)  # not part of the checksum: it is written later
_STUB = 1 << 16
_LLD = "14.0"
_LINKER = 0x102  # these are of every Visual Studio since 2015
_COMPILERS = frozenset({0x104, 0x105, 0x108, 0x109, 0x10D, 0x10E})  # C and C++; /GL; with a profile
#: How the names of the DLLs of C's and C++'s run-time begin.
RUN_TIMES = ("api-ms-win-crt-", "ucrtbase", "msvcrt", "msvcp", "vcruntime")
#: The ucrt.lib of Microsoft's SDK names api-ms-win-crt-*.dll instead.
_UCRT = "ucrtbase.dll"
_TELLING = frozenset({_UCRT, "msvcrt.dll", "msvcp140.dll", "vcruntime140.dll"})
#: In the names of types of libc++ and nothing else: its namespace ``std::__1``.
_LIBCXX = b"@__1@std@@"


@dataclass(frozen=True)
class Rich:
    """The list that link.exe leaves."""

    products: tuple[tuple[int, int, int], ...]
    """Product, build, how many objects."""
    sound: bool
    """Whether its checksum is right: nobody has moved it here from another binary."""

    @property
    def linker(self) -> int:
        """The build of the linker; 0 where it is not listed."""
        return next((build for product, build, _ in self.products if product == _LINKER), 0)

    @property
    def compiled(self) -> bool:
        """Whether objects of the compiler are in it that came with this linker.

        Those of the start-up code, which is linked into everything, are of other builds.
        """
        return any(p in _COMPILERS and build == self.linker for p, build, _ in self.products)


@dataclass(frozen=True)
class Linked:
    """What a binary tells of its making."""

    linker: str
    """Such as 14.44, as stamped by the linker."""
    rich: Rich | None = None
    """``None``: there is no such list."""
    runtimes: tuple[str, ...] = ()
    """The DLLs of C's and C++'s run-time that it imports, in lower case."""
    libcxx: bool = False
    """Whether types of libc++ are in it."""

    @property
    def contradicts(self) -> bool:
        """Whether it has a Rich header and what no binary of MSVC's has, or a false header."""
        foreign = self.linker == _LLD or _UCRT in self.runtimes or self.libcxx
        return self.rich is not None and (foreign or not self.rich.sound)

    @property
    def maker(self) -> tuple[ToolSet | None, str]:
        """The tool set that has made it, and what shows that; ``None`` where it cannot be told."""
        marks = [name for name in self.runtimes if name in _TELLING]
        marks += ["libc++"] if self.libcxx else []
        with_, stamped = "".join(f", {mark}" for mark in marks), f"linker {self.linker}"
        if self.rich is None:
            lld = self.linker == _LLD and _UCRT in self.runtimes
            return STAND_IN if lld else None, f"{stamped}, no Rich header{with_}"
        if not self.rich.sound:
            return None, f"{stamped}, a Rich header whose checksum is wrong{with_}"
        if not self.rich.linker or not self.rich.compiled:
            return None, f"{stamped}, a Rich header without a compiler of that linker{with_}"
        if self.contradicts:
            return None, f"{stamped}, a Rich header of MSVC{with_}: these contradict each other"
        return MSVC, f"{stamped}, compiler build {self.rich.linker}{with_}"


def read_linked(
    data: Data, header: int, linker: tuple[int, int], libraries: Iterable[str]
) -> Linked:
    """Of a binary: ``header`` is where its PE header begins, ``libraries`` are what it imports."""
    lower = {name.lower() for name in libraries}
    return Linked(
        linker="{}.{}".format(*linker),
        rich=_rich(data[:header]),
        runtimes=tuple(sorted(name for name in lower if name.startswith(RUN_TIMES))),
        libcxx=find(data, _LIBCXX) >= 0,
    )


def _rich(stub: bytes) -> Rich | None:
    """The list in what precedes the PE header: words that are XORed with the key at its end."""
    end = stub.rfind(b"Rich")
    if end < 0:
        return None
    if len(stub) > _STUB:  # nobody has that much before it, and each byte would be added up
        return Rich((), sound=False)
    (key,) = struct.unpack("<I", stub[end + 4 : end + 8].ljust(4, b"\0"))
    start = stub.find(struct.pack("<I", _DANS ^ key))
    if start < 0 or (end - start) % 8:
        return Rich((), sound=False)
    words = [word ^ key for (word,) in struct.iter_unpack("<I", stub[start + 16 : end])]
    entries = list(zip(words[::2], words[1::2], strict=True))
    products = tuple((entry >> 16, entry & 0xFFFF, count) for entry, count in entries)
    return Rich(products, sound=key == _checksum(stub[:start], entries))


def _checksum(before: bytes, entries: Iterable[tuple[int, int]]) -> int:
    def parts() -> Iterator[int]:
        yield len(before)
        yield from (_rotated(byte, at) for at, byte in enumerate(before) if at not in _LFANEW)
        yield from (_rotated(entry, count) for entry, count in entries)

    return sum(parts()) & 0xFFFFFFFF


def _rotated(value: int, by: int) -> int:
    by %= 32
    return (value << by | value >> (32 - by)) & 0xFFFFFFFF
