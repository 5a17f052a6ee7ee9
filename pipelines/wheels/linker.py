"""Which compilers and linker made a Windows binary, as the binary itself states.

Linkers write their version into the optional header. Microsoft's link.exe also writes a list of its
inputs, the Rich header: products (compiler, assembler, linker) with their builds; its key is a
checksum over the list and everything before it. lld writes 14.0 and no list. Microsoft documents
neither the layout nor the products:
https://github.com/RichHeaderResearch/RichPE, https://github.com/dishather/richprint
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pipelines.core.toolsets import MSVC, STUB, Toolset
from pipelines.wheels.fatbin import Data, find_bytes

_DANS = 0x536E6144
_LFANEW = range(0x3C, 0x40)  # not part of the checksum: it is written later
_STUB = 1 << 16
_LLD = "14.0"
_LINKER = 0x102  # the same in every Visual Studio since 2015
_COMPILERS = frozenset({0x104, 0x105, 0x108, 0x109, 0x10D, 0x10E})  # C and C++; /GL; with a profile
#: Prefixes of the DLLs of the C and C++ runtime.
RUN_TIMES = ("api-ms-win-crt-", "ucrtbase", "msvcrt", "msvcp", "vcruntime")
#: The ucrt.lib of Microsoft's SDK names api-ms-win-crt-*.dll instead.
_UCRT = "ucrtbase.dll"
_TELLING = frozenset({_UCRT, "msvcrt.dll", "msvcp140.dll", "vcruntime140.dll"})
#: In the names of types of libc++ and nothing else: its namespace ``std::__1``.
_LIBCXX = b"@__1@std@@"


@dataclass(frozen=True)
class Rich:
    """The Rich header."""

    products: tuple[tuple[int, int, int], ...]
    """Product, build, how many objects."""
    sound: bool
    """Whether its checksum is right: it was not copied from another binary."""

    @property
    def linker(self) -> int:
        """The build of the linker; 0 if it is not listed."""
        return next((build for product, build, _ in self.products if product == _LINKER), 0)

    @property
    def compiled(self) -> bool:
        """Whether it has objects from the compiler of this linker's build.

        Objects of the startup code, which is in every binary, are from other builds.
        """
        return any(p in _COMPILERS and build == self.linker for p, build, _ in self.products)


@dataclass(frozen=True)
class LinkInfo:
    """How a binary was made."""

    linker: str
    """Such as 14.44, as stamped by the linker."""
    rich: Rich | None = None
    """``None``: there is no such list."""
    runtimes: tuple[str, ...] = ()
    """The DLLs of the C and C++ runtime that it imports, in lower case."""
    libcxx: bool = False
    """Whether it has types of libc++."""

    @property
    def contradicts(self) -> bool:
        """Whether its Rich header is invalid, or contradicted by other marks."""
        foreign = self.linker == _LLD or _UCRT in self.runtimes or self.libcxx
        return self.rich is not None and (foreign or not self.rich.sound)

    @property
    def maker(self) -> tuple[Toolset | None, str]:
        """The toolset that made it, or ``None`` if unknown, and the evidence."""
        marks = [name for name in self.runtimes if name in _TELLING]
        marks += ["libc++"] if self.libcxx else []
        with_, stamped = "".join(f", {mark}" for mark in marks), f"linker {self.linker}"
        if self.rich is None:
            lld = self.linker == _LLD and _UCRT in self.runtimes
            return STUB if lld else None, f"{stamped}, no Rich header{with_}"
        if not self.rich.sound:
            return None, f"{stamped}, a Rich header with a wrong checksum{with_}"
        if not self.rich.linker or not self.rich.compiled:
            return None, f"{stamped}, a Rich header without that linker's compiler{with_}"
        if self.contradicts:
            return None, f"{stamped}, an MSVC Rich header{with_}: contradictory"
        return MSVC, f"{stamped}, compiler build {self.rich.linker}{with_}"


def read_linked(
    data: Data, header: int, linker: tuple[int, int], libraries: Iterable[str]
) -> LinkInfo:
    """``header`` is the offset of the PE header, ``libraries`` are the imported DLLs."""
    lower = {name.lower() for name in libraries}
    return LinkInfo(
        linker="{}.{}".format(*linker),
        rich=_rich(data[:header]),
        runtimes=tuple(sorted(name for name in lower if name.startswith(RUN_TIMES))),
        libcxx=find_bytes(data, _LIBCXX) >= 0,
    )


def _rich(stub: bytes) -> Rich | None:
    """The Rich header before the PE header: words XORed with the key at its end."""
    end = stub.rfind(b"Rich")
    if end < 0:
        return None
    if len(stub) > _STUB:  # no linker writes that much, and every byte would be summed
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
