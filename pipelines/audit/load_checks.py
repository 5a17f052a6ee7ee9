"""Findings on whether a wheel loads with each requested torch, CUDA's and MSVC's DLLs.

A torch with missing symbols is only a warning if another requested torch has all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from packaging.tags import parse_tag

from pipelines.audit.loads import OWN, Loads, look_up_imports
from pipelines.audit.lookup import cuda_exports, msvc_runtime_exports, torch_exports
from pipelines.core import units
from pipelines.core.console import say
from pipelines.core.errors import LockError
from pipelines.core.finding import Finding, Level
from pipelines.core.hosttext import safe_line
from pipelines.core.units import join_first
from pipelines.toolchain.lock import Cache
from pipelines.wheels import pythonabi
from pipelines.wheels.exports.table import ExportTable
from pipelines.wheels.imports import imported_libraries
from pipelines.wheels.libraries import library_providers
from pipelines.wheels.metadata import WheelFacts
from pipelines.wheels.pe import X64
from pipelines.wheels.tags import parsed_name

_SHOWN = 3


@dataclass(frozen=True)
class References:
    """The DLLs that imports are looked up in; picklable."""

    cache: Cache
    torches: tuple[tuple[str, str, ExportTable | str], ...] = ()
    """The request, its Python, and the exports or why there are none."""
    runtime: tuple[ExportTable, ...] = ()

    def tables(self, facts: WheelFacts) -> tuple[list[ExportTable], list[Loads]]:
        """The tables that apply to a wheel, and what could not be obtained."""
        python = python_of_tags(facts.tags)
        own = [(requested, table) for requested, of, table in self.torches if of == python]
        tables = [table for _, table in own if isinstance(table, ExportTable)]
        problems = [
            Loads(against=f"torch {requested}", unknown=(safe_line(why, 300),))
            for requested, why in own
            if isinstance(why, str)
        ]
        libraries = imported_libraries(facts.binaries)
        releases = {name: {row.cuda for row in library_providers(name)} for name in libraries}
        # CUDA versions share some names; the unambiguous ones decide.
        certain = {cuda for cudas in releases.values() if len(cudas) == 1 for cuda in cudas}
        for name, cudas in sorted(releases.items()):
            if len(cudas) > 1 and not cudas & certain:
                why = f"{name}: from CUDA {' or '.join(sorted(cudas))}, not known which"
                problems.append(Loads(against="DLLs of CUDA", unknown=(why,)))
        for cuda in sorted(certain):
            try:
                tables += cuda_exports(libraries, cuda, self.cache)
            except LockError as error:
                problems.append(
                    Loads(against=f"DLLs of CUDA {cuda}", unknown=(safe_line(error.message, 300),))
                )
        return [*tables, *self.runtime], problems


def python_of_tags(tags: Iterable[str]) -> str:
    """The Python whose torch applies to a wheel with these tags; empty: any."""
    every = (tag for text in tags for tag in parse_tag(text))
    pythons = {pythonabi.tag_python_version(tag) for tag in every if tag.abi.startswith("cp3")} - {
        ""
    }
    return pythons.pop() if len(pythons) == 1 else ""


def references_to(torches: Sequence[str], files: Iterable[str], cache: Cache) -> References:
    """What ``--torch`` names, for the Pythons of these wheels.

    Raises what :func:`torch_exports` raises if a torch is unavailable for all of them.
    """
    names = filter(None, map(parsed_name, files))
    pythons = dict.fromkeys(python_of_tags(map(str, name.tags)) for name in names)
    tables_by_torch: list[tuple[str, str, ExportTable | str]] = []
    for requested in torches:
        tables: dict[str, ExportTable | LockError] = {}
        for python in pythons or [""]:
            try:
                tables[python] = torch_exports(requested, cache, python=python)
            except LockError as error:
                tables[python] = error
        if all(isinstance(result, LockError) for result in tables.values()):
            raise next(result for result in tables.values() if isinstance(result, LockError))
        for python, result in tables.items():
            new = (
                result.message
                if isinstance(result, LockError)
                else _distinct(result, tables_by_torch)
            )
            if not any((of, old) == (python, new) for _, of, old in tables_by_torch):
                tables_by_torch.append((requested, python, new))
    try:
        runtime = (msvc_runtime_exports(cache),)
    except LockError as error:
        say(f"MSVC's runtime is not checked: {safe_line(error.message, 300)}", "yellow")
        return References(cache, tuple(tables_by_torch))
    return References(cache, tuple(tables_by_torch), runtime)


def _distinct(
    table: ExportTable, others: Iterable[tuple[str, str, ExportTable | str]]
) -> ExportTable:
    """The same table; with part of its hash in the title if another has the same title."""
    tables = [each for *_, each in others if isinstance(each, ExportTable)]
    alike = any(each.against == table.against and each.path != table.path for each in tables)
    which = (table.sha256 or table.table)[:8]
    return replace(table, against=f"{table.against} {which}") if alike else table


def loads_of(facts: WheelFacts, references: References | None) -> tuple[Loads, ...]:
    """The results; empty unless ``--torch`` was given."""
    if references is None or not facts.binaries:
        return ()
    windows = [binary for binary in facts.binaries if not binary.name.endswith(".so")]
    if not windows or any(binary.pe and binary.pe.machine != X64 for binary in windows):
        why = "its binaries are not for Windows x64"
        return tuple(
            Loads(against=f"torch {requested}", unknown=(why,))
            for requested in dict.fromkeys(requested for requested, *_ in references.torches)
        )
    tables, problems = references.tables(facts)
    return (*look_up_imports(facts.binaries, tables), *problems)


def load_findings(loads: Sequence[Loads]) -> Iterator[Finding]:
    """One for each set of DLLs."""
    torches = [row for row in loads if row.against.startswith("torch ")]
    some = any(row.checked and not row.missing for row in torches)
    for row in loads:
        if row.against == OWN:  # every wheel has a finding for it: imported names
            continue
        yield Finding(
            id="loads",
            title=row.against,
            level=_level(row, spared=some and row in torches),
            requested=row in torches and not row.checked,
            actual=_symbol_summary(row),
            hint=_detail(row),
            values=tuple(dict.fromkeys(each.symbol for each in row.missing)),
        )


def _level(loads: Loads, *, spared: bool) -> Level:
    late = all(each.delayed for each in loads.missing)
    if loads.missing:
        return "warning" if late or spared else "error"
    return "unknown" if loads.verdict == "unknown" else "ok"


def _symbol_summary(loads: Loads) -> str:
    if loads.missing:
        names = {(each.library, each.symbol) for each in loads.missing}
        late = all(each.delayed for each in loads.missing)
        when = ", needed only when called" if late else ""
        return f"{units.pluralize(len(names), 'imported symbol')} missing{when}"
    parts = [f"{units.pluralize(loads.checked, 'imported symbol')} found"]
    if loads.unknown:
        names_of = join_first((text.partition(":")[0] for text in loads.unknown), "; ", _SHOWN)
        parts = [*(parts if loads.checked else ()), f"not checked: {names_of}"]
    return "; ".join(parts)


def _detail(loads: Loads) -> str:
    missing = {(each.library, each.symbol): each.demangled for each in loads.missing}
    reasons = dict.fromkeys(text.partition(": ")[2] or text for text in loads.unknown)
    parts = [f"{library}: {name} missing" for (library, _), name in missing.items()]
    return join_first([*parts, *(f"not checked: {why}" for why in reasons)], "; ", _SHOWN)
