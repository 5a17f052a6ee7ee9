"""What is out, against what an index holds and what recipes support: the cells to build."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from pipelines.architectures import gpus
from pipelines.index.catalogue import Catalogue
from pipelines.matrix.cells import Named, expand
from pipelines.recipe.model import Recipe
from pipelines.versions import within
from pipelines.watch import held
from pipelines.watch.released import Note, Torch


@dataclass(frozen=True)
class Wanted:
    """A cell of which the index has no wheel, and why it should have one."""

    name: str
    cell: Named
    why: str


@dataclass(frozen=True)
class Watched:
    """A recipe, held against what is out."""

    recipe: Recipe
    wanted: tuple[Wanted, ...]
    """The newest torch first."""
    held: int
    """Cells of which the index has a wheel."""
    untested: int
    """Of these, with wheels that no GPU has run."""
    notes: tuple[Note, ...]


def compare(
    recipe: Recipe,
    out: Mapping[str, Torch],
    torches: Sequence[str],
    catalogue: Catalogue,
    *,
    host: str = "",
    archs: str = "",
    pythons: Iterable[str] = (),
    cudas: Iterable[str] = (),
    notes: Iterable[Note] = (),
) -> Watched:
    """One recipe beside the minor releases ``torches`` of those that are ``out``.

    ``pythons`` and ``cudas`` narrow it, if there are any. Raises :class:`ConfigError` for a recipe
    without a cell.
    """
    lists = [gpus.read(archs or recipe.archs)]
    asked = {"python": tuple(pythons), "cuda": tuple(cudas)}
    notes = [*notes]
    cells: dict[str, tuple[Named, Torch | None]] = {}
    if recipe.torch is None or recipe.tested_with:
        notes += _not_tested(recipe, torches)
        for cell in expand(recipe, {k: v for k, v in asked.items() if v}, lists, host=host):
            cells[cell.name] = cell, None
    for release in () if recipe.torch is None or recipe.tested_with else torches:
        torch = out[release]
        pairs, more = _pairs(recipe, torch, release)
        notes += more
        for cuda, python in pairs:
            if (asked["cuda"] and cuda not in asked["cuda"]) or (
                asked["python"] and python not in asked["python"]
            ):
                continue
            axes = {"torch": (release,), "cuda": (cuda,), "python": (python,)}
            (cell,) = expand(recipe, axes, lists, host=host)
            cells[cell.name] = cell, torch
    wheels = held.of(catalogue, recipe)
    wanted, there, untested = [], 0, 0
    for name, (cell, beside) in cells.items():
        found = held.fitting(wheels, cell.target)
        good = [one for one in found if one.yanked is None]
        if good:
            there += 1
            untested += all(one.smoke.verdict == "untested" for one in good)
        elif found:
            notes.append(_taken_back(recipe, name, found[0].file, found[0].yanked or ""))
        else:
            wanted.append(Wanted(name, cell, held.why(wheels, cell.target, beside)))
    notes += held.lacks_code(wheels, recipe, lists[0].sass)
    return Watched(recipe, tuple(wanted), there, untested, tuple(dict.fromkeys(notes)))


def _pairs(recipe: Recipe, torch: Torch, release: str) -> tuple[list[tuple[str, str]], list[Note]]:
    """CUDA and Python of the builds that a recipe can go with, and what it cannot."""
    pairs, notes = [], []
    where = f"See pipelines/recipes/{recipe.name}.yaml."
    fit = [cuda for cuda in torch.builds if within(cuda, recipe.supports.cuda)]
    if other := [cuda for cuda in torch.builds if cuda not in fit]:
        says = f"torch {release} is there for CUDA {', '.join(other)}"
        says += f", which {recipe.name} {recipe.version} does not support"
        notes.append(Note(recipe.name, says, where))
    strange: dict[str, None] = {}
    for cuda in fit:
        for python in torch.builds[cuda]:
            if python in recipe.pythons:
                pairs.append((cuda, python))
            else:
                strange[python] = None
    newer = [one for one in strange if _number(one) > max(map(_number, recipe.pythons))]
    if newer:
        says = f"torch {release} is there for Python {', '.join(sorted(newer, key=_number))}"
        says += f"; {recipe.name} {recipe.version} ends with {recipe.pythons[-1]}"
        notes.append(Note(recipe.name, says, where))
    if recipe.wheel_tag:  # one wheel for all
        pairs = [(cuda, python) for cuda, python in pairs if python == recipe.pythons[0]]
    return sorted(pairs, key=lambda one: (_number(one[0]), _number(one[1]))), notes


def _number(release: str) -> int:
    major, _, minor = release.partition(".")
    return int(major) * 100 + int(minor)


def _not_tested(recipe: Recipe, torches: Sequence[str]) -> list[Note]:
    """Of a wheel that is for several torches: those that its suite does not run with."""
    new = [one for one in torches if recipe.tested_with and one not in recipe.tested_with]
    if not new:
        return []
    says = f"one wheel of {recipe.name} is for every torch, and is not tested with {', '.join(new)}"
    return [Note(recipe.name, says, "Name them below tested_with in the recipe.")]


def _taken_back(recipe: Recipe, name: str, file: str, why: str) -> Note:
    says = f"{name}: {file} was yanked: {why}"
    return Note(
        recipe.name, says, "Its name is taken: build with another version or local_version."
    )


def strangers(catalogue: Catalogue, recipes: Iterable[Recipe]) -> list[Note]:
    """Projects of an index for which there is no recipe."""
    known = {canonicalize_name(recipe.distribution) for recipe in recipes}
    there = {one.name.project for one in catalogue.wheels}
    return [
        Note(str(name), f"{name} is in the index, and no recipe builds it")
        for name in sorted(there - known)
    ]
