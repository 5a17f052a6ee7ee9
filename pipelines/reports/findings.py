"""Findings at a terminal and in JUnit, whoever made them."""

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
    "warning": "mind",
    "unknown": "--",
    "skipped": "--",
    "ok": "ok",
}
_OUTCOMES: dict[Level, Outcome] = {"error": "failed", "unknown": "skipped", "skipped": "skipped"}
_SHORT = 180  # characters of a hint to what is no error


def table(findings: Iterable[Finding]) -> Table:
    """A line each, and what to do."""
    rows = Table(box=None, pad_edge=False, show_header=False)
    rows.add_column(no_wrap=True)
    rows.add_column(no_wrap=True)
    rows.add_column(overflow="fold")
    for one in findings:
        hint = safe(one.hint, 4 * _SHORT if one.failed else _SHORT)
        rows.add_row(
            f"[{STYLES[one.level]}]{MARKS[one.level]}[/]",
            escape(safe(one.label, 80)),
            escape(safe(one.text, 200)) + (f"\n[dim]{escape(hint)}[/dim]" if hint else ""),
        )
    return rows


def cases(
    findings: Iterable[Finding], classname: str, file: str = "", *, warning: Outcome = "passed"
) -> Iterator[Case]:
    """A case each: what could not be looked at, or had nothing to be compared with, is skipped.

    What a warning is depends on who asks; one that passes says so in its output. Names begin with
    ``file``, of a wheel with its project: the next release has the same cases.
    """
    outcomes = _OUTCOMES | {"warning": warning}
    name = file.partition("-")[0] if file.endswith(".whl") else file
    for one in findings:
        outcome = "failed" if one.failed else outcomes.get(one.level, "passed")
        quiet = one.level == "ok" or (one.level == "warning" and warning == "passed")
        yield Case(
            name=f"{name}: {one.label}" if file else one.label,
            classname=classname,
            outcome=outcome,
            message="" if quiet else one.text,
            detail="" if quiet else one.hint,
            stdout=": ".join(filter(None, (file, one.level, one.text, one.hint))),
        )
