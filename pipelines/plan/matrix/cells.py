"""The cells of a recipe's matrix, and those that were selected: from words to named targets.

Requested values are combined with all others, even if a rule then rejects them; an axis without a
request has only the existing values.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from pipelines.core.architectures.archs import ArchList
from pipelines.core.errors import ConfigError
from pipelines.core.model import suggest_nearest
from pipelines.core.target import Target
from pipelines.core.units import join_first
from pipelines.core.versions import minor_release, python_release, release_in_range
from pipelines.plan.matrix.torches import load_torches
from pipelines.recipe.load import RELEASE
from pipelines.recipe.model import Recipe

_SUCH = {"python": "3.12", "torch": "2.8", "cuda": "12.8"}


class Named(NamedTuple):
    """A target and its name in its matrix: ``cp312-torch2.8-cu128``.

    With several lists of architectures, the list is part of the name: ``-sm80.90``.
    """

    name: str
    target: Target


def expand_cells(
    recipe: Recipe,
    asked: Mapping[str, Iterable[str]],
    archs: Iterable[ArchList],
    *,
    host: str = "",
) -> list[Named]:
    """All cells, in order; ``asked`` has the values of the requested axes.

    Raises :class:`ConfigError` for a value that is not a version, and if there is no cell.
    """
    lists = list(archs)
    wanted = {axis: tuple(dict.fromkeys(values)) for axis, values in asked.items()}
    for axis, values in wanted.items():
        _require_axis_releases(axis, values)
    cells = []
    for torch in _selected_torches(recipe, wanted.get("torch", ())):
        axes = _axis_values(recipe, torch, wanted)
        for values in product(*axes.values()):
            plain = Target(
                host=host,
                recipe=recipe.name,
                version=recipe.version,
                archs=ArchList(()),
                **dict(zip(axes, values, strict=True)),
            )
            for each in lists:
                name = f"{plain.cell}-sm{each}".replace(";", ".") if len(lists) > 1 else plain.cell
                cells.append(Named(name, plain.model_copy(update={"archs": each})))
    if not cells:
        raise ConfigError(
            f"the matrix of {recipe.name} {recipe.version} is empty",
            hint=f"It supports Python {', '.join(recipe.pythons) or '-'}, "
            f"torch {recipe.supports.torch or '-'}, CUDA {recipe.supports.cuda or recipe.cuda}.",
        )
    return cells


def patterns_of(*globs: str) -> list[str]:
    """The parts between commas."""
    return [part for glob in globs for part in glob.replace(",", " ").split()]


def select_cells(cells: Sequence[Named], globs: Iterable[str]) -> list[Named]:
    """The cells whose names match any of ``globs`` (``cp312-torch2.8-*``); all without globs.

    Raises :class:`ConfigError` for a glob without a match, with the nearest cell.
    """
    globs = [*globs]
    patterns = patterns_of(*globs)
    if globs and not patterns:
        raise ConfigError(
            f"--select {globs[0][:40]!r} names no cell", hint="Such as 'cp312-*'; '*' is all."
        )
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(cell.name, pattern) for cell in cells):
            names = [cell.name for cell in cells]
            raise ConfigError(
                f"no cell is called '{pattern[:80]}'",
                hint=f"{suggest_nearest(pattern, names, 'The nearest is {}. ')}There are: "
                f"{join_first(names)}.",
            )
    if not patterns:
        return list(cells)
    return [cell for cell in cells if any(fnmatch.fnmatchcase(cell.name, p) for p in patterns)]


def _require_axis_releases(axis: str, values: Iterable[str]) -> None:
    for value in values:
        plain = python_release(value) if axis == "python" else value
        if not RELEASE.fullmatch(plain):  # a build would refuse the cell
            raise ConfigError(
                f"--{axis} {value[:40]}: expected MAJOR.MINOR",
                hint=f"Such as {f'{value}.0' if value.isdecimal() else _SUCH[axis]}; "
                "separate several with commas.",
            )


def _selected_torches(recipe: Recipe, asked: tuple[str, ...]) -> tuple[str, ...]:
    if recipe.torch is None:
        return ("",)
    if recipe.tested_with:  # one wheel for all
        return asked or (recipe.torch,)
    return asked or tuple(t for t in load_torches() if release_in_range(t, recipe.supports.torch))


def _axis_values(
    recipe: Recipe, torch: str, asked: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    """Every axis with its values, the slowest first: the requested ones, or all.

    A new axis gets its values here.
    """
    cudas: tuple[str, ...] = (recipe.cuda,)
    pythons = recipe.pythons
    build = load_torches().get(minor_release(torch)) if torch else None
    if build is not None:
        cudas = tuple(c for c in build.cudas if release_in_range(c, recipe.supports.cuda))
        pythons = tuple(p for p in pythons if p in build.python)
    if recipe.wheel_tag:  # one wheel for all
        pythons = pythons[:1]
    return {
        "torch": (torch,),
        "cuda": asked.get("cuda") or cudas,
        "python": (asked.get("python") or pythons) if recipe.is_wheel else ("",),
    }
