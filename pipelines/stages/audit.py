"""Looks into the wheel on the controller, to see whether it is what was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from pipelines.console import console, fold, safe
from pipelines.errors import AuditError
from pipelines.stages.work import Work
from pipelines.wheels.gate import gate
from pipelines.wheels.metadata import inspect


def audit(work: Work, wheels: list[Path], detail: dict[str, Any]) -> None:
    """Check every wheel; one that fails moves to ``rejected/`` and raises :class:`AuditError`.

    A sandbox can build green and leave no device code, so this decides whether a build passed.
    """
    platform = "win_amd64" if work.host.capabilities.windows else "linux_x86_64"
    detail["wheels"] = rows = []
    for wheel in wheels:
        with fold(f"Audit {wheel.name}"):
            facts = inspect(wheel)
            checks = gate(facts, work.archs.effective, platform=platform)
            table = Table(box=None, pad_edge=False, show_header=False)
            for check in checks:
                mark = "[green]ok[/green]" if check.ok else "[bold red]no[/bold red]"
                said = check.found if check.ok else f"{check.found} (wanted {check.wanted})"
                table.add_row(mark, check.name, escape(safe(said, 110)))
            console.print(table)
        rows.append(
            {
                "wheel": wheel.name,
                "version": str(facts.version),
                "checks": [
                    {k: getattr(c, k) for k in ("name", "ok", "found", "wanted", "detail")}
                    for c in checks
                ],
            }
        )
        failed = [check for check in checks if not check.ok]
        if failed:
            rejected = work.run.path / "rejected"
            rejected.mkdir(exist_ok=True)
            wheel.replace(rejected / wheel.name)
            lines = [
                f"{c.name}: found {c.found}, wanted {c.wanted}" + (c.detail and f" ({c.detail})")
                for c in failed
            ]
            raise AuditError(
                f"{wheel.name} is not what was asked for:\n" + "\n".join(lines),
                advice=f"It was moved to {rejected}. Ask for other archs, or mend the build.",
            )
