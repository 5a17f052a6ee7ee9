"""The matrix of a recipe: every cell with its verdict, what it costs and what is there already.

A cell is rejected by a rule that has a name and a source, with the nearest thing that would work;
nothing is started for any cell before the whole matrix has been judged.
"""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import product

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from pipelines.architectures.archs import ArchList, capability, check
from pipelines.errors import ConfigError
from pipelines.matrix import compat, torches
from pipelines.matrix.budget import Budget, plan_budget
from pipelines.matrix.hostfacts import HostFacts
from pipelines.matrix.paths import MAX_PATH, Longest, longest_path
from pipelines.recipe.archmap import Translated, translate
from pipelines.recipe.model import Recipe
from pipelines.recipe.naming import local_version, wheel_name
from pipelines.versions import known

#: (CUDA, torch, arch) -> the rules that they break.
Lookup = Callable[[str, str, str], tuple[compat.Rule, ...]]

_TORCH = "https://github.com/pytorch/pytorch/blob/main/RELEASE.md"


@dataclass(frozen=True)
class Finding:
    """Why a cell is rejected, or what to mind: the rule's name, its words, its source, a cure."""

    rule: str
    says: str
    source: str
    cure: str = ""
    error: bool = True


@dataclass(frozen=True)
class Cell:
    """One combination. ``python`` and ``torch`` are empty for packages without."""

    id: str
    python: str
    torch: str
    cuda: str
    archs: ArchList


@dataclass(frozen=True)
class Judged:
    """A cell and everything that is known of it before it is built."""

    cell: Cell
    findings: tuple[Finding, ...] = ()
    archs: Translated | None = None
    budget: Budget | None = None
    longest: Longest | None = None
    local: str = ""
    wheel: str = ""

    @property
    def buildable(self) -> bool:
        """Whether no rule rejects it."""
        return not any(finding.error for finding in self.findings)


@dataclass(frozen=True)
class Ground:
    """What cells are judged on, besides themselves."""

    host: HostFacts
    build_root: str
    toolkits: frozenset[str]
    """CUDA releases that can be provisioned."""
    lacking: Callable[[Cell], Sequence[str]] = lambda _: ()
    """Tools that a cell needs and the lock does not have for it, or has not pinned."""
    names: Sequence[str] | None = None
    """The files of the source tree; ``None`` when it is not here yet."""
    jobs: int | None = None
    stamp: str = ""
    rules: tuple[compat.Rule, ...] = field(default_factory=compat.load_rules)


def expand(
    recipe: Recipe,
    *,
    python: Iterable[str] = (),
    torch: Iterable[str] = (),
    cuda: Iterable[str] = (),
    archs: Iterable[ArchList],
) -> list[Cell]:
    """All cells, in order. An axis that is empty takes everything that the recipe supports.

    What is named is crossed with the rest even where it cannot work, so that a rule says so; what
    is filled in is only what there is. Raises :class:`ConfigError` when that leaves no cell.
    """
    arch_lists = list(archs)
    _versions("python", asked_python := tuple(dict.fromkeys(python)))
    _versions("torch", asked_torch := tuple(dict.fromkeys(torch)))
    _versions("cuda", asked_cuda := tuple(dict.fromkeys(cuda)))
    table = torches.load_torches()
    cells = []
    for release in _torches(recipe, asked_torch):
        build = table.get(torches.minor(release)) if release else None
        cudas = asked_cuda or (
            tuple(c for c in build.cuda if _within(c, recipe.supports.cuda))
            if build
            else (recipe.cuda,)
        )
        pythons = asked_python or tuple(
            p for p in recipe.pythons if build is None or p in build.python
        )
        for toolkit, minor, wanted in product(
            cudas, pythons if recipe.kind == "wheel" else ("",), arch_lists
        ):
            name = _id(minor, release, toolkit, wanted if len(arch_lists) > 1 else None)
            cells.append(Cell(name, minor, release, toolkit, wanted))
    if not cells:
        raise ConfigError(
            f"the matrix of {recipe.name} {recipe.version} is empty",
            advice=f"It supports Python {', '.join(recipe.pythons) or '-'}, "
            f"torch {recipe.supports.torch or '-'}, CUDA {recipe.supports.cuda or recipe.cuda}.",
        )
    return cells


def select(cells: Sequence[Cell], globs: Iterable[str]) -> list[Cell]:
    """The cells that any of ``globs`` (``cp312-torch2.8-*``) fits, in order; all without globs.

    Raises :class:`ConfigError` for a glob that fits none, with the nearest cell.
    """
    patterns = [part for glob in globs for part in glob.replace(",", " ").split()]
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(cell.id, pattern) for cell in cells):
            ids = [cell.id for cell in cells]
            near = difflib.get_close_matches(pattern.replace("*", ""), ids, n=1, cutoff=0.0)
            raise ConfigError(
                f"no cell is called '{pattern[:80]}'", advice=f"The nearest is {near[0]}."
            )
    if not patterns:
        return list(cells)
    return [cell for cell in cells if any(fnmatch.fnmatchcase(cell.id, p) for p in patterns)]


def judge(recipe: Recipe, cells: Iterable[Cell], ground: Ground) -> list[Judged]:
    """Every cell with its findings, errors first."""
    broken = _lookup(ground.rules, ground.host.msvc)
    longest: dict[str, Longest | None] = {}
    judged = []
    for cell in cells:
        if cell.python not in longest:
            longest[cell.python] = (
                longest_path(recipe, ground.names, cell.python, ground.build_root)
                if ground.names is not None
                else None
            )
        judged.append(_judge(recipe, cell, ground, longest[cell.python], broken))
    return judged


def _judge(
    recipe: Recipe, cell: Cell, ground: Ground, longest: Longest | None, broken: Lookup
) -> Judged:
    findings = [*_recipe_rules(recipe, cell), *_torch_rules(cell)]
    if cell.cuda not in ground.toolkits:
        near = _nearest(cell.cuda, ground.toolkits)
        findings.append(
            Finding(
                "toolkit-not-pinned",
                f"toolchain.lock.yaml has no CUDA {cell.cuda}",
                "toolchain.lock.yaml",
                f"the nearest is {near}" if near else "add its archives to toolchain.yaml",
            )
        )
    for name in ground.lacking(cell):
        findings.append(
            Finding(
                "tool-not-pinned",
                f"toolchain.lock.yaml has no {name} with sha256 and size for this cell",
                "toolchain.lock.yaml",
                "add it to toolchain.yaml: invoke build refuses to start without it",
                error=False,
            )
        )
    findings += _compat(broken, cell)
    archs = budget = None
    try:
        check(cell.archs, cell.cuda)
        archs = translate(recipe.arch_map, cell.archs, cell.cuda, recipe.name)
        findings += [Finding("archs", note, "the recipe", error=False) for note in archs.notes]
    except ConfigError as error:
        findings.append(Finding("archs", error.message, "pipelines/recipes", error.advice))
    cost = recipe.cost(cell.cuda)
    if archs is not None and cost is not None:
        try:
            budget = plan_budget(cost, ground.host, archs.effective, ground.jobs)
        except ConfigError as error:
            findings.append(Finding("host-too-small", error.message, cost.basis, error.advice))
    if longest is not None and not longest.fits:
        findings.append(
            Finding(
                "path-too-long",
                f"{len(longest.path)} characters, {MAX_PATH} are possible: {longest.path}",
                "https://github.com/ninja-build/ninja/issues/2400",
                f"a build root of at most {longest.root_at_most} characters, "
                "or leave the part out with 'exclude' in the recipe",
            )
        )
    local = wheel = ""
    if recipe.kind == "wheel":
        local = local_version(recipe, cell.cuda, cell.torch or None, ground.stamp)
        wheel = wheel_name(recipe, local, cell.python)
    findings.sort(key=lambda finding: not finding.error)
    return Judged(cell, tuple(findings), archs, budget, longest, local, wheel)


def _recipe_rules(recipe: Recipe, cell: Cell) -> Iterable[Finding]:
    where = f"pipelines/recipes/{recipe.name}.yaml"
    if recipe.kind == "wheel" and cell.python not in recipe.pythons:
        near = _nearest(cell.python, recipe.pythons)
        says = f"{recipe.name} {recipe.version} is not for Python {cell.python}"
        yield Finding("recipe-python", says, where, f"the nearest is {near}")
    for name, value, range_ in (
        ("torch", cell.torch, recipe.supports.torch),
        ("cuda", cell.cuda, recipe.supports.cuda),
    ):
        if value and not _within(value, range_):
            says = f"{recipe.name} {recipe.version} supports {name} {range_}, not {value}"
            yield Finding(f"recipe-{name}", says, where, f"--{name} in that range")


def _torch_rules(cell: Cell) -> Iterable[Finding]:
    if not cell.torch:
        return
    table = torches.load_torches()
    build = table.get(torches.minor(cell.torch))
    if build is None:
        says = (
            f"torch {cell.torch} is not in the table, which ends with {[*table][-1]}: not checked"
        )
        yield Finding("torch-unknown", says, _TORCH, "see that there are wheels", error=False)
        return
    if cell.cuda not in build.cuda:
        says = f"there is no torch {cell.torch} for CUDA {cell.cuda} on Windows"
        yield Finding(
            "torch-cuda", says, _TORCH, f"the nearest is {_nearest(cell.cuda, build.cuda)}"
        )
    if cell.python not in build.python:
        says = f"there is no torch {cell.torch} for Python {cell.python} on Windows"
        near = _nearest(cell.python, build.python)
        yield Finding("torch-python", says, _TORCH, f"the nearest is {near}")


def _compat(broken: Lookup, cell: Cell) -> list[Finding]:
    found: dict[str, compat.Rule] = {}
    for arch in dict.fromkeys((*cell.archs.sass, *cell.archs.ptx)):
        for rule in broken(cell.cuda, cell.torch, arch):
            found.setdefault(rule.id, rule)
    return [
        Finding(rule.id, rule.says, rule.source, rule.cure, error=rule.verdict == "error")
        for rule in found.values()
    ]


def _lookup(rules: tuple[compat.Rule, ...], msvc: str | None) -> Lookup:
    """The rules that (CUDA, torch, arch) breaks; a matrix asks for the same few again and again."""

    @cache
    def broken(cuda: str, torch: str, arch: str) -> tuple[compat.Rule, ...]:
        facts = {"cuda": cuda, "torch": torch, "arch": capability(arch), "msvc": msvc or ""}
        return tuple(compat.broken(rules, {k: v for k, v in facts.items() if v}))

    return broken


def _torches(recipe: Recipe, asked: tuple[str, ...]) -> tuple[str, ...]:
    if recipe.torch is None:
        return ("",)
    return asked or tuple(t for t in torches.load_torches() if _within(t, recipe.supports.torch))


def _versions(axis: str, values: tuple[str, ...]) -> None:
    for value in values:
        if known(value) is None or "." not in value:
            raise ConfigError(
                f"--{axis} {value[:40]}: expected a version such as 3.12",
                advice="Separate several with commas.",
            )


@lru_cache(maxsize=4096)
def _within(value: str, range_: str | None) -> bool:
    return range_ is None or SpecifierSet(range_).contains(value, prereleases=True)


def _nearest(value: str, known: Iterable[str]) -> str:
    def away(other: str) -> int:
        try:
            one, two = Version(value), Version(other)
        except InvalidVersion:
            return 1 << 20
        return abs(one.major * 100 + one.minor - two.major * 100 - two.minor)  # 12.9, then 13.0

    return min(sorted(known), key=away, default="")


def _id(python: str, torch: str, cuda: str, archs: ArchList | None) -> str:
    parts = [f"cp{python.replace('.', '')}"] if python else []
    parts += [f"torch{torches.minor(torch)}"] if torch else []
    parts.append(f"cu{cuda.replace('.', '')}")
    if archs is not None:
        parts.append("sm" + str(archs).replace(";", "."))
    return "-".join(parts)
