"""Refuses a build that cannot work, before anything is started for it."""

from __future__ import annotations

from pipelines.core.console import say, transfer_progress
from pipelines.core.errors import PipelineError, error_class
from pipelines.core.finding import Finding
from pipelines.hosts.base import HERE
from pipelines.plan.matrix.budget import plan_budget
from pipelines.plan.matrix.buildplan import BuildPlan
from pipelines.plan.matrix.hostfacts import HostFacts
from pipelines.plan.matrix.judge import Ground, judge_targets
from pipelines.plan.provisioning.resources import known_missing


def refuse_ungiven(plan: BuildPlan, *, here: bool = True) -> None:
    """Raise :class:`ConfigError` with the first thing that the host cannot provide, and what can.

    Nothing is fetched, started or asked: it is known of a kind of host, or of this machine. If
    something is missing on this machine, the finding names the class of the error; without
    ``here`` that is left out.
    """
    for finding in plan.refused():
        if finding.failed and (here or finding.source != HERE):
            raise _preflight_error(plan, finding)


def _preflight_error(plan: BuildPlan, finding: Finding) -> PipelineError:
    hint = f"{finding.hint[:1].upper()}{finding.hint[1:]}"
    if finding.raises != "ConfigError":
        return error_class(finding.raises)(f"{plan.host.name}: {finding.actual}", hint=f"{hint}.")
    done, more = ("built", " invoke plan shows what can.") if plan.given is None else ("tested", "")
    return error_class(finding.raises)(
        f"{plan.target.id} cannot be {done}: {finding.actual} ({finding.source})",
        hint=f"{hint}.{more}",
    )


def refuse_unbuildable(plan: BuildPlan, *, fetch: bool = True) -> None:
    """Judge the plan as ``invoke plan`` would, before a source is fetched or the host is asked.

    Whether it fits the memory of another machine is judged by the build stage. Raises
    :class:`ConfigError` with the first rule that rejects it, its source, and what would work;
    prints warnings. Raises :class:`LockError` for tools that the host needs and the lock has not
    pinned, and with ``offline`` for missing files. The rules are Windows': elsewhere only host and
    memory are judged. Without ``fetch`` no source is downloaded, nor are its paths judged.
    """
    refuse_ungiven(plan)
    recipe, target = plan.recipe, plan.target
    cost = recipe.cost(recipe.cuda)
    if cost is not None and (plan.host.capabilities.emulated or plan.host.existing is not None):
        plan_budget(cost, HostFacts.local(), plan.archs.effective, plan.jobs)  # it is this machine
    if fetch:
        with transfer_progress() as show:
            plan.source.fetch(show)
    names = plan.source.names()  # raises for a directory that cannot be packed
    if not plan.host.capabilities.windows:
        return
    ground = Ground(
        host=HostFacts(cores=1, memory=1 << 50),
        build_root=plan.layout.build_root,
        supply=plan.supply(),
        names=names,
        offline=lambda _: plan.offline_rules(),
    )
    cell = target if recipe.is_wheel else target.model_copy(update={"python": ""})
    (judged,) = judge_targets(recipe, [cell], ground)
    for finding in judged.findings:
        if finding.failed:
            raise _preflight_error(plan, finding)
        say(f"warning: {finding.actual}", style="yellow")
    if unpinned := known_missing(plan.wanted, plan.cache.lock):
        raise plan.cache.lock.not_pinned(unpinned)
