"""Whether the DLLs that a wheel is loaded with export what its binaries import from them.

Of one that lacks a name Windows says no more than "the specified procedure could not be found".
"""

from __future__ import annotations

import zipfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath

from pipelines.record import CheckResult
from pipelines.wheels.linked import RUN_TIMES
from pipelines.wheels.metadata import WheelFacts
from pipelines.wheels.pe import exports_of

#: DLLs by their names in lower case -> what they export; ``None``: that was not read.
Exports = Mapping[str, frozenset[str] | None]

_LONGEST, _SHOWN = 120, 5  # characters of a name, names


def judge_own_names(facts: WheelFacts) -> CheckResult:
    """The check of the wheel's own DLLs."""
    own: dict[str, frozenset[str] | None] = {}
    for binary in facts.binaries:
        name = PurePosixPath(binary.name).name.lower()
        # Of two nobody knows which is loaded; the run-time of C and C++ may be found elsewhere.
        unsure = name in own or name.startswith(RUN_TIMES) or binary.pe is None
        own[name] = None if unsure or binary.pe is None else binary.pe.exports
    return _judge("imported names", facts, own, "exported by the wheel's own DLLs")


def judge_torch_names(facts: WheelFacts, torch: Path | None, release: str) -> CheckResult:
    """The check of torch's DLLs, in the wheel ``torch`` of that release; ``None``: it is not here.

    Those that are not in it, as CUDA's are not in a CPU build, are not looked at; where there are
    no others nothing has passed.
    """
    name, wanted = f"names of torch {release}", f"exported by torch {release}"
    if torch is None:
        found = "not read: its wheel is not in the download cache"
        return CheckResult(name=name, ok=True, found=found, wanted=wanted, judged=False)
    needed = {library for b in facts.binaries if b.pe for library, _ in b.pe.needs or ()}
    exports = _exports_of(torch, needed)
    absent = sorted(one for one in needed if one.startswith(("torch", "c10")))
    if absent and not exports:
        found = f"not read: it has no {_list(absent)}"
        return CheckResult(name=name, ok=True, found=found, wanted=wanted, judged=False)
    return _judge(name, facts, exports, wanted)


def _exports_of(torch: Path, needed: Collection[str]) -> Exports:
    with zipfile.ZipFile(torch) as archive:
        return {
            path.name.lower(): exports_of(archive.read(str(path)))
            for path in map(PurePosixPath, archive.namelist())
            if path.parent == PurePosixPath("torch/lib") and path.name.lower() in needed
        }


def _judge(check: str, facts: WheelFacts, exports: Exports, wanted: str) -> CheckResult:
    lacking, unread, looked = [], [], 0
    for library, name, binary in _needs(facts):
        if library and library not in exports:
            continue
        there = exports[library] if library else None
        if there is None:
            unread.append(library or binary)
        elif name in there:
            looked += 1
        else:
            lacking.append(f"{binary} wants {name[:_LONGEST]} of {library}")
    found = f"{looked} exported" if looked else "none is imported"
    if unread:
        found = f"not read: {_list(unread)}"
    return CheckResult(
        name=check,
        ok=not lacking,
        found=_list(lacking) or found,
        wanted=wanted,
        judged=bool(lacking) or not unread,
    )


def _needs(facts: WheelFacts) -> Iterator[tuple[str, str, str]]:
    """DLL, name, who wants it; without the first two where it was not read what a binary wants."""
    for binary in facts.binaries:
        needs = binary.pe.needs if binary.pe else None
        for library, name in (("", ""),) if needs is None else needs:
            yield library, name, binary.name


def _list(texts: list[str]) -> str:
    every = list(dict.fromkeys(texts))
    more = len(every) - _SHOWN
    return "; ".join(every[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
