"""Looks into what came home, on the controller, to see whether it is what was asked for."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

from pipelines.core import units
from pipelines.core.console import console, log_group, say
from pipelines.core.errors import AuditError
from pipelines.core.finding import failure_lines
from pipelines.core.hosttext import safe_line
from pipelines.core.logs import is_verbose
from pipelines.hosts.live import LiveSession
from pipelines.plan.matrix.buildplan import BuildPlan
from pipelines.record.results import (
    AuditedFile,
    AuditResult,
    BuildResult,
    CollectResult,
)
from pipelines.record.run import Run, StageLog
from pipelines.reports.findings import findings_table
from pipelines.stages.hooks import AuditHooks, requested_features
from pipelines.wheels.checked import CheckedWheel, check_copy
from pipelines.wheels.checking import Kernels, Order, Policy
from pipelines.wheels.checks import OURS, check_library, check_wheel
from pipelines.wheels.exports.stored import pinned_torch_exports
from pipelines.wheels.imports import Exports, imported_libraries
from pipelines.wheels.metadata import WheelFacts, inspect_wheel, sbom_hashes
from pipelines.wheels.tags import EVERY_PYTHON, WINDOWS


def audit(session: LiveSession, plan: BuildPlan, log: StageLog) -> AuditResult:
    """Check every downloaded wheel, or a crate's library; :class:`AuditError` if one is wrong.

    It moves to ``rejected/``. A build can succeed without device code: this decides.
    """
    for one in requested_features(AuditHooks, plan):
        if (audited := one.instead(log)) is not None:
            return log.keep(AuditResult(files=(audited,)))
    done: list[AuditedFile] = []
    built = log.run.result(BuildResult)
    known = built is not None and built.kept  # an earlier command has shown it all
    collected = log.run.result(CollectResult) or CollectResult()
    if not collected.files:
        raise AuditError("no built file was downloaded", hint="Build again.")
    for row in collected.files:
        file = log.run.path / row.path
        with log_group(f"Audit {file.name}"):
            found = _audited(session, plan, file, built)
            if found.sha256 != row.sha256:
                raise AuditError(
                    f"{file.name} has sha256 {found.sha256}, but {row.sha256} was downloaded",
                    hint="It was changed on this machine. Do not use it; build again.",
                )
            wrong = failure_lines(found.checks)
            if known and not wrong and not is_verbose():
                say(f"{units.pluralize(len(found.checks), 'check')} ok")
            else:
                console.print(findings_table(found.checks))
        done.append(found)
        log.keep(AuditResult(files=tuple(done)))
        if wrong:
            _reject(log, file, wrong)
    return AuditResult(files=tuple(done))


def _audited(
    session: LiveSession, plan: BuildPlan, file: Path, built: BuildResult | None
) -> AuditedFile:
    """The findings on the very bytes whose sha256 it has."""
    archs = plan.archs.effective
    kernels = Kernels(archs, plan.target.cuda, lambda name: plan.recipe.archs_of(name, archs))
    if file.suffix != ".whl":
        data, ordered = file.read_bytes(), replace(kernels, expects=None)
        return AuditedFile(
            file=file.name,
            sha256=sha256(data).hexdigest(),
            version=plan.target.version,
            archs=archs,
            checks=check_library(file.name, data, ordered),
        )
    facts = inspect_wheel(file)
    windows = plan.host.capabilities.windows
    machine = "" if windows else session.facts.get("machine") or "x86_64"
    platform, tag = WINDOWS[0] if windows else f"linux_{machine}", plan.recipe.wheel_tag
    pure = plan.recipe.kind == "pure"
    if pure:
        platform, tag = "any", EVERY_PYTHON
    order = Order(platform, plan.target.python, tag, plan.toolset)
    checks = check_wheel(
        facts,
        order=order,
        kernels=None if pure else kernels,
        torches=_exports_by_torch(plan, facts),
    )
    if built is not None:
        for one in requested_features(AuditHooks, plan):
            checks = (*checks, *one.checks(facts, built))
    return AuditedFile(
        file=file.name,
        sha256=facts.sha256,
        version=facts.version,
        archs=archs,
        sboms=sbom_hashes(facts.sboms),
        checks=checks,
    )


def audited_wheel(
    run: Run, file: str, room: Path, policy: Policy = OURS
) -> tuple[CheckedWheel, AuditedFile]:
    """A run's wheel, checked again: whoever has recorded it, it is the file that was audited."""
    audit, path = run.result(AuditResult) or AuditResult(), run.path / "wheels" / file
    audited = next((one for one in audit.files if one.file == file), None)
    if audited is None or Path(file).name != file or not path.is_file():
        raise AuditError(
            f"run {run.id} has no audited wheel {safe_line(file, 200)}",
            hint="Build again.",
        )
    wheel = check_copy(path, room, policy)
    if wheel.sha256 != audited.sha256:
        raise AuditError(
            f"{file} has sha256 {wheel.sha256}, but the file audited in run {run.id} had "
            f"{audited.sha256}",
            hint="It was changed on this machine. Do not use it; build again.",
        )
    return wheel, audited


def _exports_by_torch(plan: BuildPlan, facts: WheelFacts) -> dict[str, Exports | None] | None:
    """What each torch that the wheel is tested with exports, if that is known here.

    It is if the pipeline installs torch for the test itself, from a wheel that replaces the real
    one.
    """
    if not plan.recipe.torch or not plan.host.capabilities.windows or not plan.host.replacements:
        return None
    lock, cache = plan.cache.lock, plan.cache
    found: dict[str, Exports | None] = {}
    for cell in plan.tested:
        tool = lock.tool(lock.entries_for(["torch"], cell, plan.host.replacements)["torch"])
        exports = pinned_torch_exports(tool, cache)
        found[cell.torch] = exports.look(imported_libraries(facts.binaries))[0] if exports else None
    return found


def _reject(log: StageLog, file: Path, wrong: list[str]) -> NoReturn:
    rejected = log.run.path / "rejected"
    rejected.mkdir(exist_ok=True)
    file.replace(rejected / file.name)
    raise AuditError(
        f"{file.name} is not what was requested:\n" + "\n".join(wrong),
        hint=f"It was moved to {rejected}. Fix the build, or request other --archs.",
    )
