"""Shows findings in a terminal and in JUnit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.markup import escape
from rich.table import Table

from pipelines.core.finding import Finding, Level
from pipelines.core.hosttext import safe
from pipelines.reports.model import Case, Outcome

STYLES: dict[Level, str] = {
    "error": "bold red",
    "warning": "yellow",
    "unknown": "dim",
    "skipped": "dim",
    "ok": "green",
}
MARKS: dict[Level, str] = {
    "error": "no",
    "warning": "warn",
    "unknown": "--",
    "skipped": "--",
    "ok": "ok",
}
_OUTCOMES: dict[Level, Outcome] = {"error": "failed", "unknown": "skipped", "skipped": "skipped"}
_SHORT = 180  # characters of a hint, except for errors


def table(findings: Iterable[Finding]) -> Table:
    """A table with a row for each finding, and its hint."""
    rows = Table(box=None, pad_edge=False, show_header=False)
    rows.add_column(no_wrap=True)
    rows.add_column(no_wrap=True)
    rows.add_column(overflow="fold")
    for finding in findings:
        hint = safe(finding.hint, 4 * _SHORT if finding.failed else _SHORT)
        rows.add_row(
            f"[{STYLES[finding.level]}]{MARKS[finding.level]}[/]",
            escape(safe(finding.label, 80)),
            escape(safe(finding.text, 200)) + (f"\n[dim]{escape(hint)}[/dim]" if hint else ""),
        )
    return rows


def cases(
    findings: Iterable[Finding], classname: str, file: str = "", *, warning: Outcome = "passed"
) -> Iterator[Case]:
    """A case for each finding; skipped if it was not checked or had no expectation.

    What a warning is depends on who asks; one that passes says so in its output. Names begin with
    ``file``, of a wheel with its project: the next release has the same cases.
    """
    outcomes = _OUTCOMES | {"warning": warning}
    name = file.partition("-")[0] if file.endswith(".whl") else file
    for finding in findings:
        outcome = "failed" if finding.failed else outcomes.get(finding.level, "passed")
        quiet = finding.level == "ok" or (finding.level == "warning" and warning == "passed")
        yield Case(
            name=f"{name}: {finding.label}" if file else finding.label,
            classname=classname,
            outcome=outcome,
            message="" if quiet else finding.text,
            detail="" if quiet else finding.hint,
            stdout=": ".join(filter(None, (file, finding.level, finding.text, finding.hint))),
        )
