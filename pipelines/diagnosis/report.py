"""Renders a diagnosis for the terminal, JSON and the record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from pipelines.core.called import as_typed
from pipelines.core.errors import LIKELY, UNKNOWN
from pipelines.core.github import escape_commands
from pipelines.diagnosis.heal import Change
from pipelines.diagnosis.judge import Diagnosis, Finding
from pipelines.record.diagnosis import DiagnosisResult, HealedResult

_OTHERS = 12  # findings besides the cause that are shown


def diagnosis_result(diagnosis: Diagnosis) -> DiagnosisResult:
    """The diagnosis for the run's record."""
    signature, cause = diagnosis.signature, diagnosis.cause
    return DiagnosisResult(
        id=signature.id,
        is_cause=diagnosis.is_cause,
        cause=cause.cause,
        hint=cause.hint,
        links=signature.evidence,
        line=cause.line,
        text=cause.text,
        unit=cause.unit,
        confidence=cause.confidence,
    )


def diagnosis_payload(diagnosis: Diagnosis | None, log: str) -> dict[str, Any]:
    """For ``--json``: ``schema`` 1; ``cause`` as recorded, null if unknown."""
    others = diagnosis.others if diagnosis else ()
    ended = diagnosis.ended if diagnosis else None
    return {
        "schema": 1,
        "log": log,
        "cause": diagnosis_result(diagnosis).model_dump(mode="json") if diagnosis else None,
        "ended": _finding_fields(ended) if ended else None,
        "facts": dict(diagnosis.facts) if diagnosis else {},
        "others": [_finding_fields(other) for other in others],
    }


def _finding_fields(finding: Finding) -> dict[str, Any]:
    row = {"id": finding.signature.id, "line": finding.line, "unit": finding.unit}
    return {**row, "text": finding.text, "confidence": finding.confidence}


def exit_code(diagnosis: Diagnosis | None) -> int:
    """0 for a certain cause, else :data:`LIKELY` or :data:`UNKNOWN`."""
    if diagnosis is None or diagnosis.cause.confidence == "possible":
        return UNKNOWN
    return 0 if diagnosis.cause.confidence == "certain" else LIKELY


def healed_result(change: Change) -> HealedResult:
    """A change for the run's record."""
    return HealedResult(what=change.what, why=change.why, line=change.diagnosis.cause.line)


def render_diagnosis(
    diagnosis: Diagnosis | None, log: str = "the log", lines: Sequence[str] = ()
) -> RenderableType:
    """The diagnosis for a terminal; ``None`` means that nothing in the log is an error.

    ``lines`` are shown where the cause is not known: those around the first symptom, or the last.
    """
    around = [Text(f"    {escape_commands(line)}", style="dim") for line in lines]
    if diagnosis is None:
        said = Text(f"No known failure found in {log}; it ends with:", style="yellow")
        return Group(said, *around)
    signature, cause = diagnosis.signature, diagnosis.cause
    rows: list[RenderableType] = []
    known = cause.confidence != "possible"
    if not known:
        rows.append(Text("No known cause found; this is what the log says.", style="yellow"))
    headline = Text(escape_commands(cause.cause), style="bold red" if known else "bold")
    headline.append(f"  ({signature.id}, {cause.confidence})", style="dim")
    rows += [headline, _cause_location(cause, log)]
    rows += around or [Text(f"    {escape_commands(line)}", style="dim") for line in cause.below]
    rows.append(Text.assemble(("→ ", "yellow"), as_typed(escape_commands(cause.hint))))
    if signature.heals:
        rows.append(Text(as_typed("  invoke build does this automatically."), style="green"))
    if ended := diagnosis.ended:
        rows.append(
            Text(
                f"The job ended at line {ended.line}: {escape_commands(ended.cause)}", style="bold"
            )
        )
        rows.append(Text.assemble(("→ ", "yellow"), as_typed(escape_commands(ended.hint))))
    rows += [Text(f"  {link}", style="dim") for link in signature.evidence]
    if signature.evidence_note:
        rows.append(Text(f"  {signature.evidence_note}", style="dim"))
    return Group(*rows, *_besides(diagnosis))


def _cause_location(finding: Finding, log: str) -> RenderableType:
    unit = f", unit {escape_commands(finding.unit)}" if finding.unit else ""
    command = (
        [Text(f"    of the command {escape_commands(finding.command)}")] if finding.command else []
    )
    return Group(
        Text(f"  {log}, line {finding.line}{unit}", style="cyan"),
        *command,
        Text(f"    {escape_commands(finding.text)}"),
    )


def _besides(diagnosis: Diagnosis) -> list[RenderableType]:
    """The other findings, one in each line, except those in the cause's own line."""
    shown = {diagnosis.cause.line, diagnosis.ended.line if diagnosis.ended else 0}
    others = [finding for finding in diagnosis.others if finding.line not in shown]
    if not others:
        return []
    rows: list[RenderableType] = [Text("Also found:", style="bold")]
    for finding in others[:_OTHERS]:
        row = Text(f"  {finding.line:>7}  ", style="dim")
        row.append(f"{finding.signature.id:<18}", style="dim cyan")
        row.append(escape_commands(finding.text[:100]), style="dim")
        rows.append(row)
    if (more := len(others) - _OTHERS) > 0:
        rows.append(Text(f"  and {more} more", style="dim"))
    return rows
