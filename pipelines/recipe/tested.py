"""The cells in whose environments a wheel is tested, where one wheel is for several."""

from __future__ import annotations

from pipelines.recipe.model import Recipe
from pipelines.target import Target


def cells_of_tests(recipe: Recipe, target: Target, *, existing: bool) -> tuple[Target, ...]:
    """The target with each torch of ``tested_with``; itself where the recipe says nothing of it.

    An environment that is used as it is (``existing``) has one torch, the target's.
    """
    releases = () if existing else recipe.tested_with
    return tuple(target.model_copy(update={"torch": r}) for r in releases) or (target,)
