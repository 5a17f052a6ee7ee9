"""Findings on what a wheel is loaded beside: each torch that was named, CUDA's and MSVC's DLLs.

A torch that lacks a name is to be minded as long as another one that was named has all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from packaging.tags import parse_tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from pipelines.audit.exports.obtaining import of_cuda, of_msvc_runtime, of_torch
from pipelines.audit.exports.table import ExportTable
from pipelines.audit.loads import OWN, Loads, judge
from pipelines.core import units
from pipelines.core.console import say
from pipelines.core.errors import LockError
from pipelines.core.finding import Finding, Level
from pipelines.core.hosttext import line
from pipelines.core.units import few
from pipelines.toolchain.lock import Cache
from pipelines.wheels import pythonabi
from pipelines.wheels.imported import wanted_libraries
from pipelines.wheels.libraries import bringers
from pipelines.wheels.metadata import WheelFacts
from pipelines.wheels.pe import X64

_SHOWN = 3


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
    every = (tag for text in tags for tag in parse_tag(text))
    found = {pythonabi.python_of(tag) for tag in every if tag.abi.startswith("cp3")} - {""}
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
            id="loads",
            title=one.against,
            level=_level(one, spared=some and one in torches),
            requested=one in torches and not one.checked,
            actual=_found(one),
            hint=_detail(one),
            values=tuple(dict.fromkeys(each.symbol for each in one.missing)),
        )


def _level(one: Loads, *, spared: bool) -> Level:
    late = all(each.delayed for each in one.missing)
    if one.missing:
        return "warning" if late or spared else "error"
    return "unknown" if one.verdict == "unknown" else "ok"


def _found(one: Loads) -> str:
    if one.missing:
        names = {(each.library, each.symbol) for each in one.missing}
        late = all(each.delayed for each in one.missing)
        when = "when they are called, it" if late else "it"
        return f"{when} lacks {len(names)} of the names that are imported"
    said = [f"{units.counted(one.checked, 'name')} looked up, none is missing"]
    if one.unknown:
        names_of = few((text.partition(":")[0] for text in one.unknown), "; ", _SHOWN)
        said = [*(said if one.checked else ()), f"not checked: {names_of}"]
    return "; ".join(said)


def _detail(one: Loads) -> str:
    lacks = {(each.library, each.symbol): each.demangled for each in one.missing}
    reasons = dict.fromkeys(text.partition(": ")[2] or text for text in one.unknown)
    said = [f"{library} lacks {name}" for (library, _), name in lacks.items()]
    return few([*said, *(f"not checked: {why}" for why in reasons)], "; ", _SHOWN)
