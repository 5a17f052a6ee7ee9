"""Whether the DLLs that a wheel is loaded with export what its binaries import from them.

Of one that lacks a name Windows says no more than "the specified procedure could not be found".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from pipelines.record import CheckResult
from pipelines.units import few
from pipelines.wheels.binary import Binary
from pipelines.wheels.linked import RUN_TIMES
from pipelines.wheels.metadata import WheelFacts

#: DLLs by their names in lower case -> what they export; ``None``: that was not read.
Exports = Mapping[str, frozenset[str] | None]

_LONGEST = 120  # characters of a name


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


def judge_own_names(facts: WheelFacts) -> CheckResult:
    """The check of the wheel's own DLLs."""
    exports, wanted = own_exports(facts.binaries), "exported by the wheel's own DLLs"
    return _judge("imported names", facts, exports, wanted)


def judge_torch_names(facts: WheelFacts, exports: Exports | None, release: str) -> CheckResult:
    """The check of torch's DLLs; ``None``: its wheel is not here.

    Those that are not among them, as CUDA's are not in a CPU build, are not looked at: then not all
    has passed.
    """
    name, wanted = f"names of torch {release}", f"exported by torch {release}"
    if exports is None:
        found = "not read: its wheel is not in the download cache"
        return CheckResult(name=name, ok=True, found=found, wanted=wanted, judged=False)
    return _judge(name, facts, exports, wanted)


def _judge(check: str, facts: WheelFacts, exports: Exports, wanted: str) -> CheckResult:
    looked = look_up(facts.binaries, exports)
    lacking = [
        f"{one.binary} wants {one.name[:_LONGEST]} of {one.library}"
        + (" when it is first called" if one.late else "")
        for one in looked.lacking
    ]
    found = f"{looked.there} exported" if looked.there else "none is imported"
    if looked.unread:
        some = f"{found}; " if looked.there else ""
        found = f"{some}not read: {_list([*looked.unread])}"
    return CheckResult(
        name=check,
        ok=not lacking,
        found=_list(lacking) or found,
        wanted=wanted,
        judged=bool(lacking) or not looked.unread,
    )


def _needs(binaries: Iterable[Binary]) -> Iterator[tuple[str, str, str, bool]]:
    """DLL, name, who wants it, if late; without the first two where that was not read."""
    for binary in binaries:
        both = (binary.pe.needs, binary.pe.late) if binary.pe else (None,)
        for late, needs in enumerate(both):
            for library, name in (("", ""),) if needs is None else needs:
                yield library, name, binary.name, bool(late)


def _list(texts: list[str]) -> str:
    return few(dict.fromkeys(texts), "; ")
