"""What is out, against what an index holds and what recipes support: the cells to build."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from packaging.version import Version

from pipelines.core.architectures import gpus
from pipelines.core.errors import ConfigError
from pipelines.core.finding import Finding
from pipelines.core.hosttext import safe_line
from pipelines.core.target import Target
from pipelines.core.versions import python_order, release_in_range
from pipelines.plan.matrix.cells import Named, expand_cells
from pipelines.publish.index.catalogue import Catalogue
from pipelines.publish.watch import held
from pipelines.publish.watch.released import Torch, release_warning
from pipelines.recipe.load import shown_file
from pipelines.recipe.model import Recipe

State = Literal["build", "later", "pin", "no"]


@dataclass(frozen=True)
class Cell:
    """A cell that has no wheel in the index, and what is done about it."""

    name: str
    target: Target
    why: str
    """Why the index should have one."""
    state: State = "no"
    missing: tuple[str, ...] = ()
    """Tools that the lock has not, or has not pinned, for it."""
    errors: tuple[Finding, ...] = ()
    """Why it cannot be built."""
    seconds: float | None = None
    """That its build takes, as far as is known."""


@dataclass(frozen=True)
class Watched:
    """A recipe, held against what is out."""

    recipe: Recipe
    cells: tuple[Cell, ...]
    """The newest torch first."""
    held: int
    """Cells that have a wheel in the index."""
    untested: int
    """Of these, with wheels that no GPU has run."""
    notes: tuple[Finding, ...]

    def of(self, *states: State) -> list[Cell]:
        """Those of these states."""
        return [one for one in self.cells if one.state in states]


def compare_recipe(
    recipe: Recipe,
    out: Mapping[str, Torch],
    torches: Sequence[str],
    catalogue: Catalogue,
    *,
    host: str = "",
    archs: str = "",
    pythons: Iterable[str] = (),
    cudas: Iterable[str] = (),
    notes: Iterable[Finding] = (),
) -> Watched:
    """One recipe and the minor releases ``torches`` of those that are ``out``.

    ``pythons`` and ``cudas`` narrow it, if there are any. Raises :class:`ConfigError` for a recipe
    without a cell, and for one of these that no build of torch is for.
    """
    lists = [gpus.parse_gpu_archs(archs or recipe.archs)]
    one = 1 if recipe.wheel_tag else None  # wheel for all Pythons
    asked = {"python": tuple(pythons)[:one], "cuda": tuple(cudas)}
    notes = [*notes]
    cells: dict[str, tuple[Named, Torch | None]] = {}
    if recipe.torch is None or recipe.tested_with:
        notes += _not_tested(recipe, torches)
        for cell in expand_cells(recipe, {k: v for k, v in asked.items() if v}, lists, host=host):
            cells[cell.name] = cell, None
    else:
        _require_out({release: out[release] for release in torches}, asked)
        notes += _unsupported_axis_findings(recipe, {release: out[release] for release in torches})
        for release in torches:
            for cuda, python in _pairs(recipe, out[release]):
                if cuda in (asked["cuda"] or (cuda,)) and python in (asked["python"] or (python,)):
                    axes = {"torch": (release,), "cuda": (cuda,), "python": (python,)}
                    (cell,) = expand_cells(recipe, axes, lists, host=host)
                    cells[cell.name] = cell, out[release]
        if torches and not cells:
            words = (f" --{axis} {','.join(values)}" for axis, values in asked.items() if values)
            says = f"{recipe.name} supports no build of torch {', '.join(torches)}"
            notes.append(
                release_warning("torch-unsupported", recipe.name, f"{says}{''.join(words)}")
            )
    wheels = held.wheels_of_recipe(catalogue, recipe)
    wanted, there, untested = [], 0, 0
    for name, (cell, torch) in cells.items():
        found = held.wheels_for_cell(wheels, cell.target)
        good = [one for one in found if one.yanked is None]
        if good:
            there += 1
            untested += all(one.smoke.verdict == "untested" for one in good)
        elif found:
            says = f"{name}: {found[0].file} was yanked: {found[0].yanked}"
            notes.append(release_warning("wheel-yanked", recipe.name, says, held.TAKEN))
        else:
            wanted.append(Cell(name, cell.target, held.reason_to_build(wheels, cell.target, torch)))
    notes += held.no_code(wheels, recipe, lists[0].sass)
    return Watched(recipe, tuple(wanted), there, untested, tuple(dict.fromkeys(notes)))


def _pairs(recipe: Recipe, torch: Torch) -> list[tuple[str, str]]:
    """CUDA and Python of the builds that a recipe can go with, the oldest first."""
    pairs = [
        (cuda, python)
        for cuda, wheels in torch.builds.items()
        for python in wheels
        if release_in_range(cuda, recipe.supports.cuda) and python in recipe.pythons
    ]
    if recipe.wheel_tag:  # one wheel for all
        pairs = [(cuda, python) for cuda, python in pairs if python == recipe.pythons[0]]
    return sorted(pairs, key=lambda one: (Version(one[0]), python_order(one[1])))


def _require_out(torches: Mapping[str, Torch], asked: Mapping[str, Sequence[str]]) -> None:
    """A value that was named and is nowhere would look as if nothing were new."""
    there = {
        "cuda": {cuda for torch in torches.values() for cuda in torch.builds},
        "python": {python for torch in torches.values() for python in torch.pythons},
    }
    for axis, values in asked.items():
        missing = [value for value in values if value not in there[axis]]
        if missing and torches:
            raise ConfigError(
                f"--{axis} {safe_line(missing[0], 40)}: torch {', '.join(torches)} has no build "
                "for it",
                hint=f"Available: {', '.join(sorted(there[axis], key=python_order))}.",
            )


def _unsupported_axis_findings(recipe: Recipe, torches: Mapping[str, Torch]) -> list[Finding]:
    """What of these releases of torch a recipe does not support."""
    last = max(recipe.pythons, key=python_order)
    found: dict[str, dict[str, list[str]]] = {"CUDA": {}, "Python": {}}
    for release, torch in torches.items():
        for cuda in torch.builds:
            if not release_in_range(cuda, recipe.supports.cuda):
                found["CUDA"].setdefault(cuda, []).append(release)
        for python in torch.pythons:
            if python_order(python)[:2] > python_order(last)[:2]:
                found["Python"].setdefault(python, []).append(release)
    notes = []
    for word, why in ("CUDA", f"supports {recipe.supports.cuda}"), ("Python", f"ends with {last}"):
        if each := found[word]:
            ordered = sorted(each, key=python_order)
            there = (f"{one} (torch {', '.join(each[one])})" for one in ordered)
            says = f"torch is out for {word} {', '.join(there)}; {recipe.name} {why}"
            where = shown_file(recipe.name)
            notes.append(
                release_warning(f"{word.lower()}-unsupported", recipe.name, says, f"See {where}.")
            )
    return notes


def _not_tested(recipe: Recipe, torches: Sequence[str]) -> list[Finding]:
    """Of a wheel that is for several torches: those that its suite does not run with."""
    new = [one for one in torches if recipe.tested_with and one not in recipe.tested_with]
    if not new:
        return []
    says = f"{recipe.name}: its one wheel for every torch is not tested with {', '.join(new)}"
    hint = "Add them to tested_with in the recipe."
    return [release_warning("torch-untested", recipe.name, says, hint)]


def index_ahead_findings(catalogue: Catalogue, out: Mapping[str, Torch]) -> list[Finding]:
    """Whether an index has wheels for a torch that is newer than all that are out."""
    held = {one.torch for one in catalogue.wheels if one.torch and one.yanked is None}
    newer = sorted(held, key=Version)[-1:]
    newest = [*out][-1:]
    if not newer or not newest or Version(newer[0]) <= Version(newest[0]):
        return []
    says = f"the index has wheels for torch {newer[0]}, but the newest release is {newest[0]}"
    hint = "A page is outdated, or the wheels are for a pre-release (--pre)."
    return [release_warning("index-ahead", "torch", says, hint)]
