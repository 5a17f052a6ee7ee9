"""Findings on what a wheel is loaded beside: each torch that was named, CUDA's and MSVC's DLLs.

A torch that lacks a name is to be minded as long as another one that was named has all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from packaging.tags import parse_tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from pipelines import units
from pipelines.console import say
from pipelines.errors import LockError
from pipelines.examine.exports.obtaining import of_cuda, of_msvc_runtime, of_torch
from pipelines.examine.exports.table import ExportTable
from pipelines.examine.findings import Finding, Level
from pipelines.examine.loads import OWN, Loads, judge
from pipelines.examine.packaging import requirements
from pipelines.examine.stable import Stable
from pipelines.hosttext import line
from pipelines.toolchain.lock import Cache
from pipelines.wheels.imported import wanted_libraries
from pipelines.wheels.libraries import bringers
from pipelines.wheels.metadata import WheelFacts
from pipelines.wheels.pe import X64

_SHOWN = 3
_CPYTHON = re.compile(r"cp3(\d{1,2})")


@dataclass(frozen=True)
class Beside:
    """What wheels are held against; to be sent to other processes."""

    cache: Cache
    torches: tuple[tuple[str, str, ExportTable | str], ...] = ()
    """As it was named, for which Python, and its exports or why there are none."""
    runtime: tuple[ExportTable, ...] = ()

    def tables(self, facts: WheelFacts) -> tuple[list[ExportTable], list[Loads]]:
        """Those that a wheel is held against, and what could not be had."""
        python = python_of(facts.tags)
        own = [(asked, one) for asked, of, one in self.torches if of == python]
        tables = [one for _, one in own if isinstance(one, ExportTable)]
        problems = [
            Loads(against=f"torch {asked}", unknown=(line(why, 300),))
            for asked, why in own
            if isinstance(why, str)
        ]
        wanted = wanted_libraries(facts.binaries)
        releases = {name: {row.cuda for row in bringers(name)} for name in wanted}
        # Releases share some names: whose these are, the others say.
        certain = {one for cudas in releases.values() if len(cudas) == 1 for one in cudas}
        for name, cudas in sorted(releases.items()):
            if len(cudas) > 1 and not cudas & certain:
                why = f"{name}: of CUDA {', '.join(sorted(cudas))}: nothing says which"
                problems.append(Loads(against="DLLs of CUDA", unknown=(why,)))
        for cuda in sorted(certain):
            try:
                tables += of_cuda(wanted, cuda, self.cache)
            except LockError as error:
                problems.append(
                    Loads(against=f"DLLs of CUDA {cuda}", unknown=(line(error.message, 300),))
                )
        return [*tables, *self.runtime], problems


def python_of(tags: Iterable[str]) -> str:
    """The Python whose torch a wheel with these tags is held against; empty: any."""
    found = {
        f"3.{one[1]}{'t' * tag.abi.endswith('t')}"
        for text in tags
        for tag in parse_tag(text)
        if tag.abi.startswith("cp3") and (one := _CPYTHON.fullmatch(tag.interpreter))
    }
    return found.pop() if len(found) == 1 else ""


def beside(torches: Sequence[str], files: Iterable[str], cache: Cache) -> Beside:
    """What is named by ``--torch``, for the Pythons of these wheels.

    Raises what :func:`of_torch` raises for one that cannot be had for any of them.
    """
    pythons: dict[str, None] = {}
    for file in files:
        try:
            pythons[python_of(map(str, parse_wheel_filename(file)[3]))] = None
        except InvalidWheelFilename:
            continue
    found: list[tuple[str, str, ExportTable | str]] = []
    for asked in torches:
        tables: dict[str, ExportTable | LockError] = {}
        for python in pythons or {"": None}:
            try:
                tables[python] = of_torch(asked, cache, python=python)
            except LockError as error:
                tables[python] = error
        if all(isinstance(one, LockError) for one in tables.values()):
            raise next(one for one in tables.values() if isinstance(one, LockError))
        for python, one in tables.items():
            new = one.message if isinstance(one, LockError) else _distinct(one, found)
            if not any((of, old) == (python, new) for _, of, old in found):
                found.append((asked, python, new))
    try:
        runtime = (of_msvc_runtime(cache),)
    except LockError as error:
        say(f"MSVC's run-time is not looked at: {line(error.message, 300)}", "yellow")
        return Beside(cache, tuple(found))
    return Beside(cache, tuple(found), runtime)


def _distinct(
    one: ExportTable, others: Iterable[tuple[str, str, ExportTable | str]]
) -> ExportTable:
    """The same; of two wheels or directories that are called alike it says which it is."""
    tables = [each for *_, each in others if isinstance(each, ExportTable)]
    alike = any(each.against == one.against and each.path != one.path for each in tables)
    which = (one.sha256 or one.table)[:8]
    return replace(one, against=f"{one.against} {which}") if alike else one


def loads_of(facts: WheelFacts, given: Beside | None) -> tuple[Loads, ...]:
    """What comes of it; without a torch that is named nothing is judged."""
    if given is None or not facts.binaries:
        return ()
    windows = [one for one in facts.binaries if not one.name.endswith(".so")]
    if not windows or any(one.pe and one.pe.machine != X64 for one in windows):
        why = "its binaries are not of Windows on x64"
        return tuple(
            Loads(against=f"torch {asked}", unknown=(why,))
            for asked in dict.fromkeys(asked for asked, *_ in given.torches)
        )
    tables, problems = given.tables(facts)
    return (*judge(facts.binaries, tables), *problems)


def load_findings(loads: Sequence[Loads]) -> Iterator[Finding]:
    """One for each set of DLLs."""
    torches = [one for one in loads if one.against.startswith("torch ")]
    some = any(one.checked and not one.missing for one in torches)
    for one in loads:
        if one.against == OWN:  # which is a finding of every wheel: imported names
            continue
        yield Finding(
            check=one.against,
            level=_level(one, spared=some and one in torches),
            asked=one in torches and not one.checked,
            found=_found(one),
            detail=_detail(one),
            values=tuple(dict.fromkeys(each.symbol for each in one.missing)),
        )


def _level(one: Loads, *, spared: bool) -> Level:
    late = all(each.delayed for each in one.missing)
    if one.missing:
        return "mind" if late or spared else "problem"
    return one.verdict


def _found(one: Loads) -> str:
    if one.missing:
        names = {(each.library, each.symbol) for each in one.missing}
        late = all(each.delayed for each in one.missing)
        when = "when they are called, it" if late else "it"
        return f"{when} lacks {len(names)} of the names that are imported"
    said = [f"{units.counted(one.checked, 'name')} looked up, none is missing"]
    if one.unknown:
        names_of = _list([text.partition(":")[0] for text in one.unknown])
        said = [*(said if one.checked else ()), f"not checked: {names_of}"]
    return "; ".join(said)


def _detail(one: Loads) -> str:
    lacks = {(each.library, each.symbol): each.demangled for each in one.missing}
    reasons = dict.fromkeys(text.partition(": ")[2] or text for text in one.unknown)
    said = [f"{library} lacks {name}" for (library, _), name in lacks.items()]
    return _list([*said, *(f"not checked: {why}" for why in reasons)])


def _list(texts: Sequence[str]) -> str:
    more = len(texts) - _SHOWN
    return "; ".join(texts[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")


def stable_findings(facts: WheelFacts, stable: Stable) -> Iterator[Finding]:
    """Whether it keeps to what its tags and its METADATA promise."""
    tag, older = _tag(facts, stable), _older(facts, stable)
    torches = {
        "none": "nothing of torch",
        "stable": f"torch's stable ABI, {stable.least_torch} or later",
        "unstable": "more of torch than its stable ABI: for one release alone",
        "unknown": "torch's not checked",
    }
    pythons = {
        "none": "nothing of Python",
        "limited": f"Python's limited API, {stable.least_python or '3.2'} or later",
        "bound": f"Python {', '.join(stable.bound_to)} alone",
        "unknown": "Python's not checked",
    }
    unknown = "unknown" in (stable.torch, stable.python)
    yield Finding(
        check="stable ABI",
        level="problem" if tag else "mind" if older else "unknown" if unknown else "ok",
        found=f"{torches[stable.torch]}; {pythons[stable.python]}",
        detail="; ".join(filter(None, (tag, older)))
        or _list([*stable.beyond_python, *stable.beyond_torch] if unknown else []),
    )


def _tag(facts: WheelFacts, stable: Stable) -> str:
    """In what a tag for many Pythons promises too much."""
    tags = [tag for text in facts.tags for tag in parse_tag(text)]
    numbers = [int(one[1]) for tag in tags if (one := _CPYTHON.fullmatch(tag.interpreter))]
    if {tag.abi for tag in tags} != {"abi3"} or not numbers:
        return ""
    if stable.python == "bound":
        return f"its tag says abi3, and it imports from the DLL of {', '.join(stable.bound_to)}"
    least = int(stable.least_python.partition(".")[2] or 0)
    said = min(numbers)
    return f"its tag says Python 3.{said}, it wants {stable.least_python}" if least > said else ""


def _older(facts: WheelFacts, stable: Stable) -> str:
    """The oldest torch that its METADATA names although it has not all of the shim.

    Plain ``torch`` names none: a bound would have pip replace a CUDA build by the index's.
    """
    if stable.torch != "stable":
        return ""
    minor = int(stable.least_torch.split(".")[1])
    for one in requirements(facts):
        old = [f"2.{n}.0" for n in range(minor) if one.specifier.contains(f"2.{n}.0")]
        if one.name.lower() == "torch" and one.specifier and one.marker is None and old:
            return f"it takes torch {old[0]} ('{line(one, 80)}'), and wants {stable.least_torch}"
    return ""
