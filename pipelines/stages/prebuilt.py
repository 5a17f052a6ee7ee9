"""Takes a wheel that others have built, or skips a package, where its recipe says so.

Nothing is believed: the wheel is fetched into the run, every check is made on that very file, and
what was taken from where, or why nothing was, is in the run's record.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pipelines.console import say
from pipelines.errors import AuditError, LockError, PipelineError
from pipelines.files import disk_errors, sha256_of
from pipelines.hosttext import safe
from pipelines.prebuilt.candidates import Offer, obtain_offer, offers_of
from pipelines.prebuilt.decide import Decision, decide, examine, platforms_of, unstated
from pipelines.record import CheckResult
from pipelines.stages.audit import as_rows
from pipelines.stages.work import Work
from pipelines.target import Target


def skipped(work: Work, detail: dict[str, Any]) -> str | None:
    """With ``strategy: skip``, what is said instead of building; ``None`` with any other."""
    if work.recipe.strategy != "skip":
        return None
    statement = f"{work.recipe.name} is skipped: {work.recipe.skip}"
    detail["skipped"] = statement
    say(statement, "yellow")
    return statement


def take_prebuilt(work: Work, detail: dict[str, Any]) -> list[Path] | None:
    """A verified wheel in ``wheels/`` of the run; ``None`` when there is one to be built.

    ``detail`` gets ``origin`` (what the run's facts and reports say) and, of a wheel, ``prebuilt``:
    ``file``, ``place``, ``sha256``, ``stated``, ``unstated``; ``refused`` has wheels that were
    fetched and turned out to be wrong. Raises :class:`ConfigError` or :class:`AuditError` with
    ``strategy: prebuilt`` when none can be used.
    """
    if work.recipe.strategy == "build":
        detail["origin"] = "built"
        return None
    target, platforms = work.target, platforms_of(windows=work.host.capabilities.windows)
    look = partial(offers_of, offline=work.cache.offline)
    decision = decide(work.recipe, target, platforms=platforms, look=look)
    refused: dict[str, str] = {}
    detail["refused"] = refused
    last: PipelineError | None = None
    for offer in _offers(decision):
        try:
            wheel = _take(work, offer, target, platforms)
        except (AuditError, LockError) as error:
            say(f"not used: {error.message}", "yellow")
            refused[offer.file], last = safe(error.message, 500), error
            continue
        digest, open_ = sha256_of(wheel), unstated(offer, target)
        detail["prebuilt"] = {
            "file": offer.file,
            "place": offer.place,
            "sha256": digest,
            "stated": offer.sha256,
            "unstated": open_,
        }
        detail["origin"] = f"prebuilt {offer.place} sha256 {digest}"
        say(f"taken, not built: {offer.file} from {offer.place}, sha256 {digest}", "green")
        if open_:
            say(f"its name states no {' and no '.join(open_)}: only a test will show it", "yellow")
        return [wheel]
    if last is not None and work.recipe.strategy == "prebuilt":
        raise last
    why = decision.why
    if refused:
        why = "; ".join(f"{file} is not used: {reason}" for file, reason in refused.items())
    detail["origin"] = f"built: {why}"
    say(f"it is built: {why}", "yellow")
    return None


def audit_prebuilt(work: Work, wheels: list[Path], detail: dict[str, Any]) -> None:
    """What :func:`pipelines.stages.audit.audit` does for our own: the checks, into the record.

    Architectures beyond those that were asked for are welcome here, and PTX does for a GPU.
    """
    target, platforms = work.target, platforms_of(windows=work.host.capabilities.windows)
    rows = detail["wheels"] = []
    for wheel in wheels:
        facts, checks = examine(wheel, Offer(wheel.name, str(wheel)), target, platforms)
        told = as_rows(checks)
        rows.append({"wheel": wheel.name, "version": str(facts.version), "checks": told})
        _refuse(wheel.name, checks)


def _offers(decision: Decision) -> Iterator[Offer]:
    if decision.offer is not None:
        yield decision.offer
        yield from decision.others


def _take(work: Work, offer: Offer, target: Target, platforms: tuple[str, ...]) -> Path:
    """The wheel in the run, after every check on the very file that is kept."""
    say(f"looking into {offer.file} from {offer.place}")
    source = obtain_offer(offer, work.cache)
    waiting, folder = work.run.path / "prebuilt", work.run.path / "wheels"
    with disk_errors(work.run.path):
        waiting.mkdir(exist_ok=True)
        copy = waiting / offer.file
        shutil.copyfile(source, copy)
    try:
        _, checks = examine(copy, offer, target, platforms)
        _refuse(offer.file, checks)
        with disk_errors(folder):
            folder.mkdir(exist_ok=True)
            return copy.replace(folder / offer.file)
    finally:
        shutil.rmtree(waiting, ignore_errors=True)


def _refuse(name: str, checks: list[CheckResult]) -> None:
    if wrong := [check for check in checks if not check.ok]:
        lines = [c.detail or f"{c.name}: found {c.found}, wanted {c.wanted}" for c in wrong]
        raise AuditError(
            f"{name}: {'; '.join(lines)}",
            advice="Take another wheel, or build it: strategy: prebuilt-then-build.",
        )
