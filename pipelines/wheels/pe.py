"""Reads a Windows binary: its machine, toolset, exports and imports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pefile

from pipelines.wheels.fatbin import Data
from pipelines.wheels.linker import LinkInfo, read_linked
from pipelines.wheels.petables import (
    Image,
    Need,
    UnreadableError,
    read_exports,
    read_forwards,
    read_imports,
    read_late,
)
from pipelines.wheels.toolkit import cuda_runtime_dlls

X64 = 0x8664
ARM64 = 0xAA64
#: Platform tag of Windows -> the machine that its Python loads.
#: https://learn.microsoft.com/en-us/windows/win32/debug/pe-format#machine-types
MACHINES = {"win_amd64": X64, "win_arm64": ARM64, "win32": 0x14C}
_CALLED = {X64: "x64", ARM64: "ARM64", 0x14C: "x86", 0xA641: "ARM64EC", 0x1C4: "ARM"}
_EXPORT, _IMPORT, _EXCEPTION, _LATE = 0, 1, 3, 13  # the directories' places in the header
_HEADER, _SECTION, _TABLES = 24, 40, 16  # bytes of the first header, and of a section's; tables
_RAW = ~0x1FF  # Windows takes a section from a whole block of the file
_EXECUTE = 0x20000000


class Section(NamedTuple):
    """A part of a binary: its address and size in memory, its place and size in the file."""

    name: str
    address: int
    size: int
    at: int
    raw: int
    executed: bool


@dataclass(frozen=True)
class PeFacts:
    """A Windows binary: machine (0x8664 is x64), exported PyInit_* functions, imports."""

    machine: int
    inits: tuple[str, ...]
    cudarts: tuple[str, ...] = ()
    """DLLs of CUDA's runtime that it imports, such as ``cudart64_12.dll``."""
    imports: tuple[str, ...] = ()
    """Every DLL that is needed to load it."""
    linked: LinkInfo | None = None
    """How it was made."""
    exports: frozenset[str] | None = None
    """Names, and ordinals as ``#12``; ``None`` if not all of them could be read."""
    needs: tuple[Need, ...] | None = None
    """Imports: DLL in lower case with a name or ordinal; ``None`` as above."""
    late: tuple[Need, ...] | None = None
    """The same for delay-loaded imports and forwarded exports."""
    base: int = 0
    """Preferred load address."""
    sections: tuple[Section, ...] = ()
    functions: tuple[int, int] = (0, 0)
    """Address and size of its function table, ``.pdata``."""
    called: int = 0
    """Number of exports that point to code or another DLL."""


def read_pe(data: Data) -> PeFacts:
    """Read headers, exports and imports; the rest of the file is not parsed.

    Raises ``pefile.PEFormatError`` if it is not a PE file, ``UnreadableError`` if its headers are
    truncated, and for hostile files whatever pefile raises.
    """
    # Not closed: it only holds ``data``, and close() runs a full garbage collection.
    pe = pefile.PE(data=data, fast_load=True)
    image, sections = _read_image_sections(pe, data)
    libraries, needs = _collect_imports(image, _directory_address(pe, _IMPORT), read_imports)
    _, late = _collect_imports(image, _directory_address(pe, _LATE), read_late)
    exports = _exported(image, _directory_address(pe, _EXPORT))
    code = [
        (section.address, section.address + section.size)
        for section in sections
        if section.executed
    ]
    called = {
        name
        for name, at in (exports or {}).items()
        if any(start <= at < end for start, end in (*code, _directory_span(pe, _EXPORT)))
    }
    if exports and (at := _directory_address(pe, _EXPORT)):
        _, size = _data_directory(pe, _EXPORT)
        _, onward = _collect_imports(image, at, lambda image, at: read_forwards(image, at, size))
        late = None if late is None or onward is None else tuple(sorted({*late, *onward}))
    return PeFacts(
        machine=int(pe.FILE_HEADER.Machine),
        inits=tuple(sorted(name for name in called if name.startswith("PyInit_"))),
        cudarts=cuda_runtime_dlls(libraries),
        imports=tuple(sorted(libraries)),
        linked=read_linked(
            data,
            int(pe.DOS_HEADER.e_lfanew),
            (pe.OPTIONAL_HEADER.MajorLinkerVersion, pe.OPTIONAL_HEADER.MinorLinkerVersion),
            libraries,
        ),
        exports=None if exports is None else frozenset(exports),
        needs=needs,
        late=late,
        base=image.base,
        sections=sections,
        functions=_data_directory(pe, _EXCEPTION),
        called=len(called),
    )


def tables_end(head: Data) -> int:
    """Where in the file the sections end that have the tables of imports and exports.

    ``head`` has its headers; raises what :func:`read_pe` raises.
    """
    pe = pefile.PE(data=head, fast_load=True)
    tables = {_directory_address(pe, directory) for directory in (_EXPORT, _IMPORT, _LATE)} - {0}
    having = (section for section in pe.sections if any(map(section.contains_rva, tables)))
    return max((int(one.PointerToRawData + one.SizeOfRawData) for one in having), default=0)


def machine_name(machine: int) -> str:
    """``x64 (0x8664)``."""
    called = _CALLED.get(machine)
    return f"{called} ({machine:#06x})" if called else f"machine {machine:#06x}"


def exports_of(data: Data) -> frozenset[str] | None:
    """The exports of an x64 DLL; ``None`` if not all can be read or it is for another machine."""
    try:
        facts = read_pe(data)
    # pefile raises PEFormatError on purpose and, on hostile files, others by accident.
    except Exception:
        return None
    return facts.exports if facts.machine == X64 else None


def _read_image_sections(pe: pefile.PE, data: Data) -> tuple[Image, tuple[Section, ...]]:
    """Sections from headers that pefile has read.

    Raises :class:`UnreadableError` if the file ends within them: pefile takes the rest for a header
    without tables.
    """
    head = pe.OPTIONAL_HEADER
    sections = int(pe.FILE_HEADER.NumberOfSections)
    start = int(pe.DOS_HEADER.e_lfanew) + _HEADER
    own = int(pe.FILE_HEADER.SizeOfOptionalHeader)
    tables = min(int(head.NumberOfRvaAndSizes), _TABLES)
    missing = len(pe.sections) < sections or len(head.DATA_DIRECTORY) < tables
    if missing or start + own + sections * _SECTION > len(data):
        raise UnreadableError("its headers are truncated")
    found = []
    for section in pe.sections:
        at = int(section.PointerToRawData) & _RAW
        found.append(
            Section(
                name=bytes(section.Name).rstrip(b"\0").decode("ascii", "replace"),
                address=int(section.VirtualAddress),
                size=int(section.Misc_VirtualSize),
                at=at,
                raw=max(min(int(section.SizeOfRawData), len(data) - at), 0),
                executed=bool(int(section.Characteristics) & _EXECUTE),
            )
        )
    parts = [(section.address, section.raw, section.at) for section in found]
    wide = int(head.Magic) == pefile.OPTIONAL_HEADER_MAGIC_PE_PLUS
    first = (0, min(int(head.SizeOfHeaders), len(data)), 0)
    return Image(data, (first, *parts), wide, int(head.ImageBase)), tuple(found)


def _data_directory(pe: pefile.PE, directory: int) -> tuple[int, int]:
    """Address and size of one of the tables; 0: it has none."""
    tables = pe.OPTIONAL_HEADER.DATA_DIRECTORY
    if directory >= len(tables):
        return 0, 0
    return int(tables[directory].VirtualAddress), int(tables[directory].Size)


def _directory_span(pe: pefile.PE, directory: int) -> tuple[int, int]:
    address, size = _data_directory(pe, directory)
    return address, address + size


def _directory_address(pe: pefile.PE, directory: int) -> int:
    return _data_directory(pe, directory)[0]


def _collect_imports(
    image: Image, at: int, read: Callable[[Image, int], Iterator[tuple[str, tuple[Need, ...]]]]
) -> tuple[set[str], tuple[Need, ...] | None]:
    """The DLLs, even if the table cannot be read to its end, and the symbols imported from them."""
    libraries: set[str] = set()
    needs: set[Need] = set()
    try:
        for library, names in read(image, at) if at else ():
            libraries.add(library)
            needs.update(names)
    except UnreadableError:
        return libraries, None
    return libraries, tuple(sorted(needs))


def _exported(image: Image, at: int) -> dict[str, int] | None:
    try:
        return read_exports(image, at) if at else {}
    except UnreadableError:
        return None
