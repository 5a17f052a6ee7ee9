"""Whether device code can run: each entry of a binary's containers is read, not just its label.

The formats are not documented. Each rule here holds for every kernel in xformers 0.0.30, xgboost
3.0.0, spconv-cu120 2.3.6, cupy-cuda12x 13.4.1, bitsandbytes 0.46.0 for Windows and of our own
wheels: 43,000 kernels for sm_50 to sm_120, of CUDA 11.8 to 13.0. What an ELF file's header says
of CUDA is in LLVM's ``BinaryFormat/ELF.h`` (``EF_CUDA_*``).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import lz4.block

from pipelines.wheels.fatbin import (
    ELF,
    FLAG_LZ4,
    FLAG_ZSTD,
    PTX,
    ZSTD,
    Container,
    Data,
    Entry,
    Inventory,
    container_entries,
    release_mapped_pages,
)

#: Bytes of one entry, unpacked, and of one section: more is not read. flash-attn's have 2 MiB.
_MOST = 64 << 20
_LONGEST = 8191  # bytes of a name
_SHOWN = 20  # faults of one binary that are kept
_PADDED = 8  # most bytes of padding after a compressed payload
_MACHINE, _RELOCATABLE = 190, 1  # EM_CUDA, ET_REL
_SECTION, _SYMBOL = struct.Struct("<II8x8xQQII8x8x"), struct.Struct("<IBBHQQ")
_NEWER_ABI = 8  # from CUDA 13 on: the architecture is shifted by 8 bits
#: Types of section that have no bytes in the file: NOBITS, CUDA_GLOBAL, CUDA_SHARED.
_WITHOUT_BYTES = frozenset({0, 8, 0x70000007, 0x7000000A})
_SYMBOLS, _FUNCTION, _GLOBAL, _KERNEL = 2, 2, 1, 0x10
#: From sm_70 on an instruction has 16 bytes; before, 8. Its lowest 12 bits say which it is.
_VOLTA = 70
_ENDS = frozenset({0x94D, 0x950, 0x95C})  # EXIT, RET, and BPT where a GPU is too old
_LAST = frozenset({0x918, 0x947})  # NOP, BRA
_FOR = re.compile(rb"-arch[ =]sm_(\d{1,4}[af]?)(?![\w])")  # what ptxas of 13 was called with
_ACCELERATED = 0x800  # EF_CUDA_ACCELERATORS_V1: sm_90a, up to CUDA 12
_VERSION = re.compile(rb"^[ \t]*\.version[ \t]+(\S{1,20})", re.MULTILINE)
_TARGET = re.compile(rb"^[ \t]*\.target[ \t]+sm_(\d{1,4}[af]?)", re.MULTILINE)
#: Of PTX, without what is neither a brace nor a control character: a fast look for both.
_TEXT = bytes({*range(256)} - {*b"{}"} - {*range(9), *range(14, 32), 127})


class DamagedError(ValueError):
    """Device code that no GPU or driver accepts."""


class UnreadError(ValueError):
    """Device code that is too large or of a kind that is not read here."""


@dataclass(frozen=True)
class Reading:
    """The result of reading each entry: where and why."""

    damaged: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    kernels: frozenset[bytes] = frozenset()
    """Kernels that host code calls by name."""
    read: int = 0
    """Number of entries read."""
    links: frozenset[int] = frozenset()
    """Offsets of containers without PTX because they are device links or have no kernel."""


def read_code(data: Data, code: Inventory) -> Reading:
    """Read every entry of ``code`` in ``data``; never raises on any bytes."""
    damaged: list[str] = []
    unread: list[str] = []
    kernels: set[bytes] = set()
    coded: set[int] = set()
    empty: set[int] = set()
    read, relocatable = 0, False
    for unit in code.containers:
        own: dict[str, _Kernels] = {}
        for entry in container_entries(data, unit):
            try:
                own[entry.name] = _read_entry_kernels(entry, _decompress_entry(data, entry))
                read += 1
            except DamagedError as error:
                damaged.append(f"{entry.name} at {entry.start:#x}: {error}")
            except UnreadError as error:
                unread.append(f"{entry.name} at {entry.start:#x}: {error}")
        damaged += _find_unrelated_sass(unit, own)
        kernels.update(*(names.called for names in own.values()))
        (coded if any(names.every for names in own.values()) else empty).add(unit.offset)
        relocatable = relocatable or any(names.relocatable for names in own.values())
        release_mapped_pages(data)
        if max(len(damaged), len(unread)) > _SHOWN:  # hostile files may have any number
            unread.append("the rest")
            break
    links = frozenset(empty | coded if relocatable else empty)
    return Reading(tuple(damaged), tuple(unread), frozenset(kernels), read, links)


def read_device_code_file(name: str, data: Data) -> Reading:
    """A file of device code without a container: ``.cubin`` or ``.ptx`` by its name."""
    try:
        if name.lower().endswith(".ptx"):
            _read_ptx(_slice_within_limit(data, 0, len(data)), "", "")
        else:
            _read_cubin(_slice_within_limit(data, 0, len(data)), "")
    except DamagedError as error:
        return Reading(damaged=(str(error),))
    except UnreadError as error:
        return Reading(unread=(str(error),))
    return Reading(read=1)


def _find_unrelated_sass(unit: Container, kernels: dict[str, _Kernels]) -> Iterator[str]:
    """SASS from another source than the rest of its unit: no function names in common."""
    having = {
        arch: functions.every for arch, functions in kernels.items() if arch.startswith("sm_")
    }
    every = frozenset().union(*having.values())
    for arch, names in having.items():
        others = [functions for other, functions in having.items() if other != arch and functions]
        if every and others and not any(names & functions for functions in others):
            yield f"{arch} at {unit.offset:#x}: no kernel in common with the other architectures"


class _Kernels(NamedTuple):
    """Names of the functions in one entry; not read from PTX."""

    called: frozenset[bytes] = frozenset()
    every: frozenset[bytes] = frozenset()
    relocatable: bool = False


def _read_entry_kernels(entry: Entry, body: bytes) -> _Kernels:
    """Read one entry, unpacked."""
    if entry.kind == ELF:
        return _read_cubin(body, entry.arch)
    _read_ptx(body, entry.arch, entry.made)
    return _Kernels()


def _slice_within_limit(data: Data, start: int, end: int) -> bytes:
    if end - start > _MOST:
        raise UnreadError(f"{end - start} bytes, more than {_MOST}")
    return data[start:end]


def _decompress_entry(data: Data, entry: Entry) -> bytes:
    if entry.kind not in {ELF, PTX}:  # LTO, which nvcc also scrambles
        raise UnreadError("unsupported kind of code")
    packed = entry.flags & (FLAG_LZ4 | FLAG_ZSTD)
    if not packed:
        return _slice_within_limit(data, entry.body, entry.end)
    padding = entry.end - entry.body - entry.packed
    if not 0 <= padding < _PADDED:
        raise DamagedError(f"{entry.packed} compressed bytes in {entry.end - entry.body}")
    if entry.unpacked > _MOST:
        raise UnreadError(f"it decompresses to {entry.unpacked} bytes, more than {_MOST}")
    piece = _slice_within_limit(data, entry.body, entry.body + entry.packed)
    size, intact = entry.unpacked, True
    try:
        if packed & FLAG_LZ4:
            body = lz4.block.decompress(piece, uncompressed_size=size)
        else:
            unpacker = ZSTD.ZstdDecompressor()
            body = unpacker.decompress(piece, size + 1)
            intact = unpacker.eof and not unpacker.unused_data
    except (lz4.block.LZ4BlockError, ZSTD.ZstdError, ValueError) as error:
        raise DamagedError(f"it cannot be decompressed: {error}") from error
    if not intact or len(body) != size:
        raise DamagedError(f"it decompresses to {len(body)} bytes, its header says {size}")
    return bytes(body)


def _read_ptx(body: bytes, arch: str, isa: str) -> None:
    """``arch`` and ``isa`` are as in its entry; empty: unknown."""
    text = body.rstrip(b"\0")
    special = text.translate(None, _TEXT)
    opened, closed = special.count(b"{"), special.count(b"}")
    if opened + closed != len(special):
        raise DamagedError("PTX that is not text")
    version, target = _VERSION.search(text), _TARGET.search(text)
    if not version or not target:
        raise DamagedError("PTX without .version and .target")
    actual = version[1].decode(errors="replace"), target[1].decode()
    if (isa and actual[0] != isa) or (arch and actual[1] != arch):
        raise DamagedError(f"PTX {actual[0]} for sm_{actual[1]}, labelled {isa} for {arch}")
    if opened != closed:
        raise DamagedError("truncated PTX")


def _read_cubin(body: bytes, arch: str) -> _Kernels:
    """``arch`` is as in its entry; empty: unknown."""
    try:
        return _Cubin(body, arch).kernels()
    except (struct.error, ValueError, OverflowError) as error:  # a table that is not in the file
        message = (
            str(error) if isinstance(error, DamagedError) else "its tables are outside the file"
        )
        raise DamagedError(message) from error


class _Cubin:
    """An ELF file with the machine code of one architecture."""

    def __init__(self, body: bytes, arch: str) -> None:
        self.body = body
        if body[:6] != b"\x7fELF\2\1" or struct.unpack_from("<H", body, 18) != (_MACHINE,):
            raise DamagedError("not GPU machine code")
        (flags,) = struct.unpack_from("<I", body, 48)
        newer = body[8] >= _NEWER_ABI
        own = flags >> 8 & 0xFF if newer else flags & 0xFF
        if arch and str(own) != arch.rstrip("af"):
            raise DamagedError(f"machine code for sm_{own}")
        if arch and not newer and bool(flags & _ACCELERATED) != arch.endswith("a"):
            raise DamagedError(f"machine code for sm_{own} with other features than sm_{arch}")
        self.arch = arch
        self.relocatable = struct.unpack_from("<H", body, 16) == (_RELOCATABLE,)
        self.width = 16 if own >= _VOLTA else 8
        (at,) = struct.unpack_from("<Q", body, 40)
        size, count, names = struct.unpack_from("<3H", body, 58)
        if size != _SECTION.size:
            raise DamagedError("it has no section table")
        (_, _, _, many, _, _) = _SECTION.unpack_from(body, at)
        count = count or many  # from 65,280 on
        rows = list(_SECTION.iter_unpack(self._piece(at, count * size)))
        if names >= len(rows):
            raise DamagedError("its sections have no names")
        texts = bytes(self._section(rows[names]))
        self.sections = [(_string_table_entry(texts, row[0]), row) for row in rows]
        self.names = {name for name, _ in self.sections}

    def _piece(self, at: int, size: int) -> memoryview:
        if at + size > len(self.body):
            raise DamagedError("its tables are outside the file")
        return memoryview(self.body)[at : at + size]

    def _section(self, row: tuple[int, ...]) -> memoryview:
        _, kind, at, size, _, _ = row
        return memoryview(b"") if kind in _WITHOUT_BYTES else self._piece(at, size)

    def kernels(self) -> _Kernels:
        """Check every section and function."""
        bodies = [self._section(row) for _, row in self.sections]
        kernels: set[bytes] = set()
        functions: set[tuple[int, bytes]] = set()
        for (_, row), body in zip(self.sections, bodies, strict=True):
            if row[1] != _SYMBOLS or row[4] >= len(bodies):
                continue
            texts = bytes(bodies[row[4]])
            for name, info, other, section, start, size in _SYMBOL.iter_unpack(body):
                if info & 15 != _FUNCTION:
                    continue
                called = _string_table_entry(texts, name)
                functions.add((section, called))
                if section < len(bodies) and start + size > self.sections[section][1][3]:
                    raise DamagedError(f"{_printable_symbol_name(called)} ends outside its section")
                if info >> 4 == _GLOBAL and other & _KERNEL:
                    kernels.add(called)
        for number, ((name, _), body) in enumerate(zip(self.sections, bodies, strict=True)):
            own = name.removeprefix(b".text.")
            made = _FOR.search(body) if name == b".note.nv.tkinfo" else None
            if made and self.arch and made[1].decode() != self.arch:
                raise DamagedError(f"machine code for sm_{made[1].decode()}")
            if name.startswith(b".nv.info") and not any(body):
                raise DamagedError(f"{_printable_symbol_name(name)} is empty")
            if own != name:
                if (number, own) not in functions or b".nv.info." + own not in self.names:
                    raise DamagedError(f"{_printable_symbol_name(own)} is not one of its functions")
                self._require_code(own, bytes(body))
        every = frozenset(name for _, name in functions)
        return _Kernels(frozenset(kernels), every, self.relocatable)

    def _require_code(self, name: bytes, code: bytes) -> None:
        """Require instructions that are not overwritten and have an end."""
        width, why = self.width, ""
        if not code or len(code) % width:
            why = f"{len(code)} bytes of code"
        elif any(_has_filler_instruction(code, byte, width) for byte in (b"\0", b"\xff")):
            why = "overwritten code"
        elif width == 16:  # noqa: PLR2004
            ends = _opcodes(code, _ENDS)
            last = int.from_bytes(code[-width:][:2], "little") & 0xFFF
            why = "" if ends and last in _LAST else "code without an end"
        if why:
            raise DamagedError(f"{_printable_symbol_name(name)}: {why}")


def _printable_symbol_name(name: bytes) -> str:
    return name[:60].decode(errors="replace")


def _string_table_entry(texts: bytes, at: int) -> bytes:
    return texts[at : texts.index(b"\0", at, at + _LONGEST + 1)]


def _has_filler_instruction(code: bytes, byte: bytes, width: int) -> bool:
    """Whether one of the instructions consists of that byte only."""
    pattern, at = byte * width, code.find(byte * width)
    while at >= 0:
        first = -(-at // width) * width
        if code[first : first + width] == pattern:
            return True
        at = code.find(pattern, first + 1)
    return False


def _opcodes(code: bytes, codes: frozenset[int]) -> bool:
    """Whether one of these instructions occurs."""
    low, high = code[::16], code[1::16]
    for opcode in codes:
        at = low.find(opcode & 0xFF)
        while at >= 0:
            if high[at] & 0xF == opcode >> 8:
                return True
            at = low.find(opcode & 0xFF, at + 1)
    return False
