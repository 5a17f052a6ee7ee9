"""Whether the DLLs that a wheel is loaded with export what its binaries import from them.

For a missing symbol Windows only reports "the specified procedure could not be found".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from pipelines.core.hosttext import safe_line
from pipelines.wheels.binary import Binary
from pipelines.wheels.linker import RUN_TIMES

#: DLL name in lower case -> its exports; ``None``: not read.
Exports = Mapping[str, frozenset[str] | None]

_LONGEST = 4000  # longest symbol that is demangled


@dataclass(frozen=True)
class MissingSymbol:
    """A symbol that a binary imports and a DLL does not export."""

    binary: str
    library: str
    name: str
    late: bool
    """Whether it is delay-loaded."""


@dataclass(frozen=True)
class Lookup:
    """The result of looking up symbols imported from certain DLLs."""

    present: int
    missing: tuple[MissingSymbol, ...]
    unread: tuple[str, ...]
    """DLLs whose exports, and binaries whose imports, could not be read."""


def own_exports(binaries: Iterable[Binary]) -> Exports:
    """The exports of a wheel's own DLLs.

    A DLL imported by a binary for another machine counts as not read: an ARM64X one serves both
    machines, any other one does not.
    """
    every = [*binaries]
    needed = {
        (library, binary.pe.machine)
        for binary in every
        if binary.pe
        for library, _ in (*(binary.pe.needs or ()), *(binary.pe.late or ()))
    }
    machines: dict[str, set[int]] = {}
    for library, machine in needed:
        machines.setdefault(library, set()).add(machine)
    own: dict[str, frozenset[str] | None] = {}
    for binary in every:
        name = PurePosixPath(binary.name).name.lower()
        # Of two with one name either may be loaded; the C and C++ runtime may be found elsewhere.
        unsure = name in own or name.startswith(RUN_TIMES) or binary.pe is None
        if binary.pe is None or unsure or machines.get(name, set()) - {binary.pe.machine}:
            own[name] = None
        else:
            own[name] = binary.pe.exports
    return own


def look_up(binaries: Iterable[Binary], exports: Exports) -> Lookup:
    """Look up every symbol imported from a DLL in ``exports``."""
    present, missing = 0, []
    unread: dict[str, None] = {}
    for library, name, binary, late in _needs(binaries):
        if library and library not in exports:
            continue
        exported = exports[library] if library else None
        if exported is None:
            unread[library or binary] = None
        elif name in exported:
            present += 1
        else:
            missing.append(MissingSymbol(binary, library, name, late))
    return Lookup(present, tuple(missing), tuple(unread))


def imported_libraries(binaries: Iterable[Binary]) -> frozenset[str]:
    """The DLLs that symbols are imported from, in lower case."""
    return frozenset(library for library, *_ in _needs(binaries) if library)


def _needs(binaries: Iterable[Binary]) -> Iterator[tuple[str, str, str, bool]]:
    """DLL, symbol, importing binary, whether delayed; the first two empty if not readable."""
    for binary in binaries:
        both = (binary.pe.needs, binary.pe.late) if binary.pe else (None,)
        for late, needs in enumerate(both):
            for library, name in (("", ""),) if needs is None else needs:
                yield library, name, binary.name, bool(late)


def demangle_symbol(symbol: str) -> str:
    """The C++ name; unchanged if it is not a C++ symbol, or too long, or without the extra abi."""
    if not symbol.startswith("?") or len(symbol) > _LONGEST:
        return safe_line(symbol, _LONGEST)
    try:
        import demangle  # 0.2 s, needed only for missing symbols
    except ImportError:
        return safe_line(symbol, _LONGEST)
    return safe_line(demangle.demangle(symbol), _LONGEST)
