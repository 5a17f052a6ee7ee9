"""What a Windows binary says of itself: its machine, its maker, what it exports and imports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pefile

from pipelines.wheels.fatbin import Data
from pipelines.wheels.linked import Linked, read_linked
from pipelines.wheels.toolkit import cudarts

X64 = 0x8664
_MAX_SYMBOLS = 200_000  # pefile stops at 8,192 otherwise and may miss PyInit
# pefile cuts names at 512 characters otherwise; torch has some of 3,199, MSVC's are up to 4,096.
_LONGEST = 8192
_ROW = 20  # bytes of a DLL in the table of imports, which ends with zeros
pefile.MAX_SYMBOL_NAME_LENGTH = pefile.MAX_IMPORT_NAME_LENGTH = _LONGEST
pefile.MAX_IMPORT_SYMBOLS = _MAX_SYMBOLS


@dataclass(frozen=True)
class PeFacts:
    """Of a Windows binary: machine (0x8664 is x64), the PyInit_* it exports, CUDA's DLLs."""

    machine: int
    inits: tuple[str, ...]
    cudarts: tuple[str, ...] = ()
    """Those of CUDA's run-time that it imports, such as ``cudart64_12.dll``."""
    imports: tuple[str, ...] = ()
    """Every DLL that must be there before it can be loaded."""
    linked: Linked | None = None
    """What it tells of its making."""
    exports: frozenset[str] | None = None
    """Names, and numbers as ``#12``; ``None`` where not all of them could be read."""
    needs: tuple[tuple[str, str], ...] | None = None
    """DLLs that it imports, in lower case, each with a name or number; ``None`` as above."""


def read_pe(data: Data) -> PeFacts:
    """Headers, exports and imports, with the rest of the file left unparsed.

    Raises ``pefile.PEFormatError`` for what is none, on hostile files whatever pefile then does.
    """
    # Not closed: there is only ``data`` to let go, and close() runs a full garbage collection.
    pe = pefile.PE(
        data=data,
        fast_load=True,
        max_symbol_exports=_MAX_SYMBOLS,
        max_repeated_symbol=_MAX_SYMBOLS,
    )
    pe.parse_data_directories(
        [pefile.DIRECTORY_ENTRY[f"IMAGE_DIRECTORY_ENTRY_{name}"] for name in ("EXPORT", "IMPORT")]
    )
    imported = getattr(pe, "DIRECTORY_ENTRY_IMPORT", ())
    exports = getattr(pe, "DIRECTORY_ENTRY_EXPORT", None)
    libraries = {one.dll.decode("ascii", "replace") for one in imported if one.dll}
    names = [symbol.name or b"" for symbol in exports.symbols] if exports else []
    return PeFacts(
        machine=int(pe.FILE_HEADER.Machine),
        inits=tuple(sorted(name.decode("ascii") for name in names if name.startswith(b"PyInit_"))),
        cudarts=cudarts(libraries),
        imports=tuple(sorted(libraries)),
        linked=read_linked(
            data,
            int(pe.DOS_HEADER.e_lfanew),
            (pe.OPTIONAL_HEADER.MajorLinkerVersion, pe.OPTIONAL_HEADER.MinorLinkerVersion),
            libraries,
        ),
        exports=_exports(exports),
        needs=_needs(imported) if imported or not _has_imports(pe) else None,
    )


def read_exports(data: bytes) -> frozenset[str] | None:
    """What a DLL exports; ``None`` where not all of it can be read."""
    try:
        return read_pe(data).exports
    except Exception:
        return None


def _exports(found: Any) -> frozenset[str] | None:
    """What pefile has read of a table of exports, if that is all that it says it has."""
    if found is None:
        return frozenset()
    names = {one.name.decode("ascii", "replace") for one in found.symbols if one.name}
    if len(names) < found.struct.NumberOfNames or any(len(name) >= _LONGEST for name in names):
        return None
    return frozenset({*names, *(f"#{one.ordinal}" for one in found.symbols)})


def _has_imports(pe: pefile.PE) -> bool:
    """Whether it names a table of them with something in it: of a broken one pefile gives none."""
    tables = {one.name: one.VirtualAddress for one in pe.OPTIONAL_HEADER.DATA_DIRECTORY}
    at = tables.get("IMAGE_DIRECTORY_ENTRY_IMPORT", 0)
    try:
        return bool(at) and any(pe.get_data(at, _ROW))
    except pefile.PEFormatError:
        return True


def _needs(imported: Any) -> tuple[tuple[str, str], ...] | None:
    found = set()
    for library in imported:
        for one in library.imports:
            name = f"#{one.ordinal}" if one.import_by_ordinal else (one.name or b"").decode("ascii")
            if name in ("", "*invalid*") or len(name) >= _LONGEST:
                return None
            found.add((library.dll.decode("ascii", "replace").lower(), name))
    return tuple(sorted(found))
