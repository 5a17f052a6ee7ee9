"""Renders a diagnosis for the terminal, JSON and the record."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from pipelines.core.called import as_typed
from pipelines.core.github import inert
from pipelines.diagnosis.heal import Change
from pipelines.diagnosis.matcher import Diagnosis, Finding
from pipelines.record.diagnosis import DiagnosisResult, HealedResult

_OTHERS = 12  # findings besides the cause that are shown


def result(diagnosis: Diagnosis) -> DiagnosisResult:
    """The diagnosis for the run's record."""
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


def payload(diagnosis: Diagnosis | None, log: str) -> dict[str, Any]:
    """For ``--json``: ``schema`` 1; ``cause`` as recorded, null if unknown."""
    others = diagnosis.others if diagnosis else ()
    return {
        "schema": 1,
        "log": log,
        "cause": result(diagnosis).model_dump(mode="json") if diagnosis else None,
        "others": [
            {"id": other.signature.id, "line": other.line, "unit": other.unit, "text": other.text}
            for other in others
        ],
    }


def healed(change: Change) -> HealedResult:
    """A change for the run's record."""
    return HealedResult(what=change.what, why=change.why, line=change.diagnosis.cause.line)


def render(diagnosis: Diagnosis | None, log: str = "the log") -> RenderableType:
    """The diagnosis for a terminal; ``None`` means that nothing was recognised."""
    if diagnosis is None:
        return Text(f"No known failure found in {log}.", style="yellow")
    signature, cause = diagnosis.signature, diagnosis.cause
    rows: list[RenderableType] = []
    if not diagnosis.is_cause:
        rows.append(Text("No known cause found; this is the first symptom.", style="yellow"))
    headline = Text(signature.cause, style="bold red" if diagnosis.is_cause else "bold")
    headline.append(f"  ({signature.id})", style="dim")
    rows += [headline, _where(cause, log)]
    rows += [Text(f"    {inert(line)}", style="dim") for line in cause.below]
    rows.append(Text.assemble(("→ ", "yellow"), as_typed(signature.hint)))
    if signature.heals:
        rows.append(Text(as_typed("  invoke build does this automatically."), style="green"))
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
    """The other findings, one in each line, except those in the cause's own line."""
    others = [finding for finding in diagnosis.others if finding.line != diagnosis.cause.line]
    if not others:
        return []
    rows: list[RenderableType] = [Text("Also found:", style="bold")]
    for finding in others[:_OTHERS]:
        row = Text(f"  {finding.line:>7}  ", style="dim")
        row.append(f"{finding.signature.id:<18}", style="dim cyan")
        row.append(inert(finding.text[:100]), style="dim")
        rows.append(row)
    if (more := len(others) - _OTHERS) > 0:
        rows.append(Text(f"  and {more} more", style="dim"))
    return rows
