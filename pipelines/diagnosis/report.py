"""A diagnosis as people read it and as the record keeps it: pure functions of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from pipelines.diagnosis.heal import Change
from pipelines.diagnosis.matcher import Diagnosis, Finding
from pipelines.github import inert

_OTHERS = 12  # findings besides the cause that are shown


def summary(diagnosis: Diagnosis) -> str:
    """One line: ``line 1203: cause (oom-edg)``, for error messages and JUnit."""
    signature = diagnosis.signature
    said = "" if diagnosis.is_cause else "no known cause: "
    return f"line {diagnosis.cause.line}: {said}{signature.cause} ({signature.id})"


def story(tried: Sequence[Change]) -> list[str]:
    """What was healed, a line a change: for the build's log and JUnit."""
    return [
        f"healed {number} of {len(tried)}: {change.what} - because of line "
        f"{change.diagnosis.cause.line}, {change.why}"
        for number, change in enumerate(tried, 1)
    ]


def render(diagnosis: Diagnosis | None, log: str = "the log") -> RenderableType:
    """The diagnosis for a terminal; ``None`` says that nothing was recognised."""
    if diagnosis is None:
        return Text(f"Nothing in {log} is known to mean a failure.", style="yellow")
    signature, cause = diagnosis.signature, diagnosis.cause
    rows: list[RenderableType] = []
    if not diagnosis.is_cause:
        rows.append(
            Text("No known cause was found; this is the first sign of one.", style="yellow")
        )
    headline = Text(signature.cause, style="bold red" if diagnosis.is_cause else "bold")
    headline.append(f"  ({signature.id})", style="dim")
    rows += [headline, _where(cause, log)]
    rows += [Text(f"    {inert(line)}", style="dim") for line in cause.below]
    rows.append(Text.assemble(("→ ", "yellow"), signature.cure))
    if signature.heals:
        rows.append(Text("  invoke build tries this by itself.", style="green"))
    rows += [Text(f"  {link}", style="dim") for link in signature.evidence]
    if signature.evidence_note:
        rows.append(Text(f"  {signature.evidence_note}", style="dim"))
    return Group(*rows, *_besides(diagnosis))


def _where(finding: Finding, log: str) -> RenderableType:
    unit = f", unit {inert(finding.unit)}" if finding.unit else ""
    return Group(
        Text(f"  {log}, line {finding.line}{unit}", style="cyan"),
        Text(f"    {inert(finding.text)}"),
    )


def _besides(diagnosis: Diagnosis) -> list[RenderableType]:
    """The other findings, a line each."""
    if not diagnosis.others:
        return []
    rows: list[RenderableType] = [Text("Also in it:", style="bold")]
    for finding in diagnosis.others[:_OTHERS]:
        row = Text(f"  {finding.line:>7}  ", style="dim")
        row.append(f"{finding.signature.id:<18}", style="dim cyan")
        row.append(inert(finding.text[:100]), style="dim")
        rows.append(row)
    if (more := len(diagnosis.others) - _OTHERS) > 0:
        rows.append(Text(f"  and {more} more", style="dim"))
    return rows


def record(diagnosis: Diagnosis) -> dict[str, Any]:
    """The diagnosis as builtins, for the run's record and JSON."""
    signature = diagnosis.signature
    return {
        "id": signature.id,
        "kind": signature.kind,
        "cause": signature.cause,
        "cure": signature.cure,
        "evidence": list(signature.evidence),
        "evidence_note": signature.evidence_note,
        "heals_itself": bool(signature.heals),
        **_place(diagnosis.cause),
        "below": list(diagnosis.cause.below),
        "lines": diagnosis.lines,
        "others": [{"id": f.signature.id, **_place(f)} for f in diagnosis.others],
    }


def _place(finding: Finding) -> dict[str, Any]:
    return {"line": finding.line, "text": finding.text, "unit": finding.unit}


def record_changes(tried: Sequence[Change]) -> list[dict[str, Any]]:
    """The changes as builtins, each with the line that it answers."""
    return [
        {
            "what": change.what,
            "why": change.why,
            "id": change.diagnosis.signature.id,
            "line": change.diagnosis.cause.line,
            "jobs": change.settings.jobs,
            "nvcc_threads": change.settings.nvcc_threads,
            "toolset": change.settings.toolset,
            "build_root": change.settings.build_root,
            "environment": _changed(change),
        }
        for change in tried
    ]


def _changed(change: Change) -> dict[str, str]:
    """Only the variables that the change has touched."""
    before = change.before.environment
    return {k: v for k, v in change.settings.environment.items() if before.get(k) != v}
