"""Looks into what came home, on the controller, to see whether it is what was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from rich.markup import escape
from rich.table import Table

from pipelines import units
from pipelines.buildplan import BuildPlan
from pipelines.console import console, fold, say
from pipelines.errors import AuditError
from pipelines.examine.exports.obtaining import of_pinned
from pipelines.files import sha256_of
from pipelines.hosts.live import LiveSession
from pipelines.hosttext import safe
from pipelines.logs import detailed
from pipelines.provenance.sbom import judge
from pipelines.record import (
    AuditedFile,
    AuditResult,
    BuildResult,
    CheckResult,
    CollectResult,
    PrebuiltResult,
)
from pipelines.run import StageLog
from pipelines.stages.given import examine_given_wheel
from pipelines.stages.prebuilt import examine_taken
from pipelines.wheels.checks import gate, gate_library
from pipelines.wheels.imported import judge_torch_names, wanted_libraries
from pipelines.wheels.metadata import WheelFacts, inspect
from pipelines.wheels.tags import WINDOWS


def audit(session: LiveSession, plan: BuildPlan, log: StageLog) -> AuditResult:
    """Check every wheel, or the library of a crate's kernels; :class:`AuditError` if one is wrong.

    That one moves to ``rejected/``. A sandbox can build green and leave no device code, so this
    decides whether a build passed. What is looked at are the bytes that came home.
    """
    taken = log.run.result(PrebuiltResult)
    if taken is not None and taken.taken is not None and plan.given is not None:
        with fold(f"Audit {taken.taken.file}"):
            one = examine_given_wheel(plan, log, taken)
            console.print(_table([*one.checks]))
            for check in one.checks:
                if check.detail and not check.judged:
                    say(f"mind: {safe(check.detail)}", "yellow")
        return log.keep(AuditResult(files=(one,)))
    if taken is not None and taken.taken is not None:
        return log.keep(AuditResult(files=(examine_taken(plan, log.run, taken.taken),)))
    done: list[AuditedFile] = []
    built = log.run.result(BuildResult)
    known = built is not None and built.kept  # an earlier command has shown it all
    collected = log.run.result(CollectResult) or CollectResult()
    if not collected.files:
        raise AuditError("nothing came home: there is no file to look into", advice="Build again.")
    for row in collected.files:
        file = log.run.path / row.path
        with fold(f"Audit {file.name}"):
            _require_untouched(file, row.sha256)
            version, checks = _checks(session, plan, file, built)
            if known and all(check.ok for check in checks) and not detailed():
                say(f"{units.counted(len(checks), 'check')} ok")
            else:
                console.print(_table(checks))
        done.append(
            AuditedFile(
                file=file.name,
                sha256=row.sha256,
                version=version,
                archs=plan.archs.effective,
                checks=tuple(checks),
            )
        )
        log.keep(AuditResult(files=tuple(done)))
        if not all(check.ok for check in checks):
            _reject(log, file, checks)
    return AuditResult(files=tuple(done))


def _require_untouched(file: Path, sha256: str) -> None:
    found = sha256_of(file)
    if found != sha256:
        raise AuditError(
            f"{file.name} has sha256 {found}, what came home had {sha256}",
            advice="Something changed it on this machine: build again, and do not use it.",
        )


def _table(checks: list[CheckResult]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for check in checks:
        mark = "[green]ok[/green]" if check.ok else "[bold red]no[/bold red]"
        if not check.judged:
            mark = "[dim]--[/dim]"
        said = check.found if check.ok else f"{check.found} (wanted {check.wanted})"
        table.add_row(mark, check.name, escape(safe(said, 110)))
    return table


def _checks(
    session: LiveSession, plan: BuildPlan, file: Path, built: BuildResult | None
) -> tuple[str, list[CheckResult]]:
    """What the file says its version is, and how it was judged."""
    archs = plan.archs.effective
    if file.suffix != ".whl":
        return plan.target.version, gate_library(
            file.name, file.read_bytes(), archs, cuda=plan.target.cuda
        )
    facts = inspect(file)
    windows = plan.host.capabilities.windows
    machine = "" if windows else session.facts.get("machine") or "x86_64"
    checks = gate(
        facts,
        archs,
        platform=WINDOWS[0] if windows else f"linux_{machine}",
        python=plan.target.python,
        cuda=plan.target.cuda,
        tag=plan.recipe.wheel_tag,
        expects=lambda name: plan.recipe.archs_of(name, archs),
        toolset=plan.toolset,
        pure=plan.recipe.kind == "pure",
    )
    if built is not None:
        checks.append(judge(facts, built.bill))
    return str(facts.version), [*checks, *_torch_names(plan, facts)]


def _torch_names(plan: BuildPlan, facts: WheelFacts) -> Iterator[CheckResult]:
    """Whether each torch that the wheel is tested with has what it wants, where that is known here.

    So it is where the pipeline itself brings torch for the test, of which a wheel of its own stands
    in for the real one.
    """
    if not plan.recipe.torch or not plan.host.capabilities.windows or not plan.host.instead:
        return
    lock, cache = plan.cache.lock, plan.cache
    for cell in plan.tested:
        tool = lock.tool(lock.entries_for(["torch"], cell, plan.host.instead)["torch"])
        table = of_pinned(tool, cache)
        exports = table.look(wanted_libraries(facts.binaries))[0] if table else None
        yield judge_torch_names(facts, exports, cell.torch)


def _reject(log: StageLog, file: Path, checks: list[CheckResult]) -> NoReturn:
    rejected = log.run.path / "rejected"
    rejected.mkdir(exist_ok=True)
    file.replace(rejected / file.name)
    lines = [
        f"{c.name}: found {c.found}, wanted {c.wanted}" + (c.detail and f" ({c.detail})")
        for c in checks
        if not c.ok
    ]
    raise AuditError(
        f"{file.name} is not what was asked for:\n" + "\n".join(lines),
        advice=f"It was moved to {rejected}. Ask for other archs, or mend the build.",
    )
