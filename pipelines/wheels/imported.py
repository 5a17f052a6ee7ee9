"""Whether the DLLs that a wheel is loaded with export what its binaries import from them.

Of one that lacks a name Windows says no more than "the specified procedure could not be found".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from pipelines.core.hosttext import line
from pipelines.wheels.binary import Binary
from pipelines.wheels.linked import RUN_TIMES

#: DLLs by their names in lower case -> what they export; ``None``: that was not read.
Exports = Mapping[str, frozenset[str] | None]

_LONGEST = 4000  # characters that are still demangled


@dataclass(frozen=True)
class Lack:
    """A name that a binary wants and a DLL does not export."""

    binary: str
    library: str
    name: str
    late: bool
    """Not before it is first called."""


@dataclass(frozen=True)
class Looked:
    """What came of looking up the names that are wanted of certain DLLs."""

    there: int
    lacking: tuple[Lack, ...]
    unread: tuple[str, ...]
    """DLLs that were not read, and binaries of which it was not read what they want."""


def own_exports(binaries: Iterable[Binary]) -> Exports:
    """Of a wheel's own DLLs.

    One that is wanted by a binary for another machine counts as not read: of ARM64X both may load
    it, of others neither.
    """
    every = [*binaries]
    wanted = {
        (library, one.pe.machine)
        for one in every
        if one.pe
        for library, _ in (*(one.pe.needs or ()), *(one.pe.late or ()))
    }
    machines: dict[str, set[int]] = {}
    for library, machine in wanted:
        machines.setdefault(library, set()).add(machine)
    own: dict[str, frozenset[str] | None] = {}
    for binary in every:
        name = PurePosixPath(binary.name).name.lower()
        # Of two nobody knows which is loaded; the run-time of C and C++ may be found elsewhere.
        unsure = name in own or name.startswith(RUN_TIMES) or binary.pe is None
        if binary.pe is None or unsure or machines.get(name, set()) - {binary.pe.machine}:
            own[name] = None
        else:
            own[name] = binary.pe.exports
    return own


def look_up(binaries: Iterable[Binary], exports: Exports) -> Looked:
    """Every name that is wanted of a DLL in ``exports``; the others are not looked at."""
    there, lacking = 0, []
    unread: dict[str, None] = {}
    for library, name, binary, late in _needs(binaries):
        if library and library not in exports:
            continue
        exported = exports[library] if library else None
        if exported is None:
            unread[library or binary] = None
        elif name in exported:
            there += 1
        else:
            lacking.append(Lack(binary, library, name, late))
    return Looked(there, tuple(lacking), tuple(unread))


def wanted_libraries(binaries: Iterable[Binary]) -> frozenset[str]:
    """The DLLs of which names are wanted, in lower case."""
    return frozenset(library for library, *_ in _needs(binaries) if library)


def _needs(binaries: Iterable[Binary]) -> Iterator[tuple[str, str, str, bool]]:
    """DLL, name, who wants it, if late; without the first two where that was not read."""
    for binary in binaries:
        both = (binary.pe.needs, binary.pe.late) if binary.pe else (None,)
        for late, needs in enumerate(both):
            for library, name in (("", ""),) if needs is None else needs:
                yield library, name, binary.name, bool(late)


def demangled(symbol: str) -> str:
    """As C++ has it; as it stands where it is none of C++'s, or too long."""
    if not symbol.startswith("?") or len(symbol) > _LONGEST:
        return line(symbol, _LONGEST)
    import demangle  # 0.2 s, and only for what is missing

    return line(demangle.demangle(symbol), _LONGEST)
