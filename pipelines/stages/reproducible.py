"""``reproducible: true``: the variables of such a build, and what it has of the compile cache."""

from __future__ import annotations

from pipelines.recipe.reproducible import reproducible_environment, with_cache
from pipelines.remote import compilecache
from pipelines.stages.hooks import SpecHooks


class Reproducible(SpecHooks):
    """The same bytes wherever it is built."""

    def environment(self, variables: dict[str, str]) -> dict[str, str]:
        """With the options of compilers and linkers for that."""
        plan = self.plan
        return reproducible_environment(variables, plan.toolset.name, plan.recipe.cuda, plan.places)

    def cache(self, spec: compilecache.Spec) -> compilecache.Spec | None:
        """Without the flags that it does not know; the build stands at a fixed place as it is."""
        without = with_cache(self.plan.toolset.name)
        if without is None:
            return None
        words = {name: text.split() for name, text in without.items()}
        return {**spec, "place": "", "packages": "", "without": words}
