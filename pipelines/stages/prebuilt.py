"""Uses a prebuilt wheel, or skips a package, if its recipe says so.

The wheel is downloaded into the run and that file is checked; the run's record has its origin, or
why there was none.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from pipelines.core.console import say
from pipelines.core.errors import AuditError, LockError, PipelineError
from pipelines.core.files import disk_errors, sha256_of
from pipelines.core.hosttext import safe_text
from pipelines.hosts.live import LiveSession
from pipelines.plan.matrix.buildplan import BuildPlan
from pipelines.plan.prebuilt.candidates import Offer, list_wheel_offers, obtain_offer
from pipelines.plan.prebuilt.decide import (
    Decision,
    apply_strategy,
    audit_prebuilt_wheel,
    platforms_of,
    unstated_versions,
)
from pipelines.record.prebuilt import PrebuiltFile
from pipelines.record.results import AuditedFile, PrebuiltResult, SkipResult, StageResult
from pipelines.record.run import Run, StageLog
from pipelines.stages.hooks import AuditHooks, RunHooks, Stage
from pipelines.stages.line import AUDIT
from pipelines.stages.preflight import refuse_unbuildable


class Taking(RunHooks):
    """What a recipe's strategy puts in place of the build."""

    def instead(self, do: Callable[[Stage], StageResult]) -> bool:
        """Skip the package, or take a wheel and audit it; else it is built, if it can be."""
        if self.plan.recipe.strategy == "skip":
            do(SKIP)
            return True
        taken = do(TAKE)
        if isinstance(taken, PrebuiltResult) and taken.taken is not None:
            do(AUDIT)
            return True
        refuse_unbuildable(self.plan)
        return False


class AuditTaken(AuditHooks):
    """The checks of a wheel that was taken."""

    def instead(self, log: StageLog) -> AuditedFile | None:
        """Once more; :class:`AuditError` if it is wrong."""
        taken = log.run.result(PrebuiltResult)
        if taken is None or taken.taken is None:
            return None
        wheel = log.run.path / "wheels" / taken.taken.file
        stated = Offer(taken.taken.file, str(wheel), taken.taken.sha256)
        return audit_prebuilt_wheel(
            wheel, stated, self.plan.target, _prebuilt_platform_tags(self.plan)
        )


def skip_build(_: LiveSession, plan: BuildPlan, log: StageLog) -> SkipResult:
    """With ``strategy: skip``: what is said instead of building."""
    statement = f"{plan.recipe.name} is skipped: {plan.recipe.skip}"
    say(statement, "yellow")
    log.run.note(origin=statement)
    return log.keep(SkipResult(skipped=statement))


def take_prebuilt(_: LiveSession, plan: BuildPlan, log: StageLog) -> PrebuiltResult:
    """Put a verified wheel into ``wheels/`` of the run, or say why one must be built.

    With ``strategy: prebuilt``: :class:`ConfigError` or :class:`AuditError` if there is none.
    """
    look = partial(list_wheel_offers, offline=plan.cache.offline)
    decision = apply_strategy(
        plan.recipe, plan.target, platforms=_prebuilt_platform_tags(plan), look=look
    )
    refused: dict[str, str] = {}
    last: PipelineError | None = None
    for offer in _iter_decision_offers(decision):
        try:
            wheel = _adopt_prebuilt_wheel(plan, log.run, offer)
        except (AuditError, LockError) as error:
            say(f"not used: {error.message}", "yellow")
            refused[offer.file], last = safe_text(error.message, 500), error
            log.keep(PrebuiltResult(refused=refused))
            continue
        return _taken(plan, log, offer, wheel, refused)
    if last is not None and plan.recipe.strategy == "prebuilt":
        raise last
    why = decision.why
    if refused:
        why = "; ".join(f"{file} is not used: {reason}" for file, reason in refused.items())
    say(f"building instead: {why}", "yellow")
    log.run.note(origin=f"built: {why}")
    return log.keep(PrebuiltResult(origin=f"built: {why}", refused=refused))


def _taken(
    plan: BuildPlan, log: StageLog, offer: Offer, wheel: Path, refused: dict[str, str]
) -> PrebuiltResult:
    digest, open_ = sha256_of(wheel), unstated_versions(offer, plan.target)
    origin = f"prebuilt {offer.place} sha256 {digest}"
    say(f"using, not building: {offer.file} from {offer.place}, sha256 {digest}", "green")
    if open_:
        say(f"its name states no {' and no '.join(open_)}: only a test can show it", "yellow")
    log.run.note(origin=origin)
    taken = PrebuiltFile(
        file=offer.file,
        place=offer.place,
        sha256=digest,
        stated=offer.sha256,
        unstated=tuple(open_),
    )
    return log.keep(PrebuiltResult(origin=origin, taken=taken, refused=refused))


def _prebuilt_platform_tags(plan: BuildPlan) -> tuple[str, ...]:
    return platforms_of(windows=plan.host.capabilities.windows)


def _iter_decision_offers(decision: Decision) -> Iterator[Offer]:
    if decision.offer is not None:
        yield decision.offer
        yield from decision.others


def _adopt_prebuilt_wheel(plan: BuildPlan, run: Run, offer: Offer) -> Path:
    """The wheel in the run, after every check on the very file that is kept."""
    say(f"checking {offer.file} from {offer.place}")
    source = obtain_offer(offer, plan.cache)
    waiting, folder = run.path / "prebuilt", run.path / "wheels"
    with disk_errors(run.path):
        waiting.mkdir(exist_ok=True)
        fetched = waiting / offer.file
        shutil.copyfile(source, fetched)
    try:
        audit_prebuilt_wheel(fetched, offer, plan.target, _prebuilt_platform_tags(plan))
        with disk_errors(folder):
            folder.mkdir(exist_ok=True)
            return fetched.replace(folder / offer.file)
    finally:
        shutil.rmtree(waiting, ignore_errors=True)


SKIP, TAKE = Stage("skip", skip_build), Stage("prebuilt", take_prebuilt)
