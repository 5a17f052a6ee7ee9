"""Looks into what came home, on the controller, to see whether it is what was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

from rich.markup import escape
from rich.table import Table

from pipelines.console import console, fold
from pipelines.errors import AuditError
from pipelines.hosttext import safe
from pipelines.record import CheckResult
from pipelines.stages.work import Work
from pipelines.wheels.checks import gate, gate_library
from pipelines.wheels.metadata import inspect


def audit(work: Work, files: list[Path], detail: dict[str, Any]) -> None:
    """Check every wheel, or the library of a crate's kernels; :class:`AuditError` if one is wrong.

    That one moves to ``rejected/``. A sandbox can build green and leave no device code, so this
    decides whether a build passed.
    """
    detail["wheels"] = rows = []
    for file in files:
        with fold(f"Audit {file.name}"):
            version, checks = _checks(work, file)
            table = Table(box=None, pad_edge=False, show_header=False)
            for check in checks:
                mark = "[green]ok[/green]" if check.ok else "[bold red]no[/bold red]"
                said = check.found if check.ok else f"{check.found} (wanted {check.wanted})"
                table.add_row(mark, check.name, escape(safe(said, 110)))
            console.print(table)
        rows.append({"wheel": file.name, "version": version, "checks": as_rows(checks)})
        if not all(check.ok for check in checks):
            _reject(work, file, checks)


def as_rows(checks: list[CheckResult]) -> list[dict[str, Any]]:
    """The checks as the record keeps them."""
    return [{k: getattr(c, k) for k in ("name", "ok", "found", "wanted", "detail")} for c in checks]


def _checks(work: Work, file: Path) -> tuple[str, list[CheckResult]]:
    """What the file says its version is, and how it was judged."""
    archs = work.archs.effective
    if file.suffix != ".whl":
        return work.order.version, gate_library(file.name, file.read_bytes(), archs)
    facts = inspect(file)
    linux = f"linux_{work.facts.get('machine') or 'x86_64'}"
    platform = "win_amd64" if work.host.capabilities.windows else linux
    return str(facts.version), gate(
        facts,
        archs,
        platform=platform,
        expects=lambda name: work.recipe.archs_of(name, archs),
    )


def _reject(work: Work, file: Path, checks: list[CheckResult]) -> NoReturn:
    rejected = work.run.path / "rejected"
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
