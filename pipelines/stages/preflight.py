"""Refuses a build that cannot work, before anything is started for it."""

from __future__ import annotations

from pipelines.buildplan import BuildPlan
from pipelines.console import bars, say
from pipelines.errors import ConfigError
from pipelines.matrix.hostfacts import HostFacts
from pipelines.matrix.judge import Ground, judge
from pipelines.recipe.sourcetree import fetch_tree, names_if_here


def refuse_unbuildable(plan: BuildPlan) -> None:
    """Judge the plan as ``invoke plan`` would, before the host is even asked.

    Whether it fits the host's memory is judged by the build stage. Raises :class:`ConfigError` with
    the first rule that rejects it, its source, and what would work; prints what is to be minded.
    The rules are Windows': elsewhere the source alone is looked at.
    """
    recipe, target = plan.recipe, plan.target
    with bars() as show:
        fetch_tree(recipe, plan.cache, show)
    names = names_if_here(recipe, plan.cache)
    if not plan.host.capabilities.windows:
        return
    ground = Ground(
        host=HostFacts(cores=1, memory=1 << 50),
        build_root=plan.layout.build_root,
        toolkits=frozenset({recipe.cuda}),  # provisioning says so if it has none
        names=names,
    )
    cell = target if recipe.kind == "wheel" else target.model_copy(update={"python": ""})
    (judged,) = judge(recipe, [cell], ground)
    for finding in judged.findings:
        if finding.error:
            raise ConfigError(
                f"{target.id} cannot be built: {finding.says} ({finding.source})",
                advice=f"{finding.cure[:1].upper()}{finding.cure[1:]}. invoke plan shows what can.",
            )
        say(f"mind: {finding.says}", style="yellow")
