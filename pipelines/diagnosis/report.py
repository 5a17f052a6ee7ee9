"""A diagnosis as people read it and as the record keeps it: pure functions of it."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from pipelines.core.called import as_typed
from pipelines.core.github import inert
from pipelines.diagnosis.heal import Change
from pipelines.diagnosis.matcher import Diagnosis, Finding
from pipelines.record.diagnosed import DiagnosisResult, HealedResult

_OTHERS = 12  # findings besides the cause that are shown


def result(diagnosis: Diagnosis) -> DiagnosisResult:
    """What the run's record keeps of it; its ``summary`` is for messages."""
    signature, cause = diagnosis.signature, diagnosis.cause
    return DiagnosisResult(
        id=signature.id,
        is_cause=diagnosis.is_cause,
        cause=signature.cause,
        hint=signature.hint,
        links=signature.evidence,
        line=cause.line,
        text=cause.text,
        unit=cause.unit,
    )


def told(diagnosis: Diagnosis | None, log: str) -> dict[str, Any]:
    """For programs: ``schema`` 1; ``cause`` as the record keeps it, null when nothing is known."""
    others = diagnosis.others if diagnosis else ()
    return {
        "schema": 1,
        "log": log,
        "cause": result(diagnosis).model_dump(mode="json") if diagnosis else None,
        "others": [
            {"id": one.signature.id, "line": one.line, "unit": one.unit, "text": one.text}
            for one in others
        ],
    }


def healed(change: Change) -> HealedResult:
    """What the run's record keeps of a change."""
    return HealedResult(what=change.what, why=change.why, line=change.diagnosis.cause.line)


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
    rows.append(Text.assemble(("→ ", "yellow"), as_typed(signature.hint)))
    if signature.heals:
        rows.append(Text(as_typed("  invoke build tries this by itself."), style="green"))
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
    """The other findings, a line each; what matches the cause's own line says nothing new."""
    others = [finding for finding in diagnosis.others if finding.line != diagnosis.cause.line]
    if not others:
        return []
    rows: list[RenderableType] = [Text("Also in it:", style="bold")]
    for finding in others[:_OTHERS]:
        row = Text(f"  {finding.line:>7}  ", style="dim")
        row.append(f"{finding.signature.id:<18}", style="dim cyan")
        row.append(inert(finding.text[:100]), style="dim")
        rows.append(row)
    if (more := len(others) - _OTHERS) > 0:
        rows.append(Text(f"  and {more} more", style="dim"))
    return rows
