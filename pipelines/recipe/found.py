"""Where what a run goes by was found: for its record and whoever reads that."""

from __future__ import annotations

import contextlib

from pipelines.core import plugins
from pipelines.core.errors import ConfigError
from pipelines.recipe.load import recipe_file
from pipelines.recipe.model import Recipe
from pipelines.recipe.suite import suite_of


def taken_from(recipe: Recipe) -> dict[str, str]:
    """Where what a run goes by was found, see :mod:`pipelines.core.plugins`."""
    found: dict[str, str] = {}
    with contextlib.suppress(ConfigError):  # of one that stands for a wheel there is no file
        found["recipe"] = recipe_file(recipe.name).says
        if recipe.smoke:
            found["smoke suite"] = suite_of(recipe).origin or recipe.smoke
    for what, name in (("resources", plugins.RESOURCES), ("signatures", plugins.SIGNATURES)):
        brought = plugins.plugin_files(name)
        found[what] = ", then ".join([*(one.says for one in brought), plugins.BUILT_IN])
    return found
