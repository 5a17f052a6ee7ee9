"""Shows findings in a terminal and in JUnit."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pipelines.core.called import with_pages
from pipelines.core.finding import Finding, Level
from pipelines.core.github import escape_commands
from pipelines.core.hosttext import safe_text
from pipelines.reports.model import Case, Outcome

STYLES: dict[Level, str] = {
    "error": "bold red",
    "warning": "yellow",
    "unknown": "dim",
    "skipped": "dim",
    "ok": "green",
}
MARKS: dict[Level, str] = {"error": "✗", "warning": "!", "unknown": "?", "skipped": "○", "ok": "✓"}
_OUTCOMES: dict[Level, Outcome] = {"error": "failed", "unknown": "skipped", "skipped": "skipped"}
_NAME = 34  # characters of the widest title that is not wrapped
_INDENT = 3  # of what stands below a finding
_SHORT = 180  # characters of a hint to what is in order


def findings_table(findings: Iterable[Finding], *, grouped: bool = False, values: int = 0) -> Group:
    """Mark, title and what was found; below that what to do, what to type and what it rests on.

    ``grouped``: by subject, in the order in which these come. ``values``: of what was found for
    programs, this many lines.
    """
    groups: dict[str, list[Finding]] = {}
    for one in findings:
        groups.setdefault(one.subject if grouped else "", []).append(one)
    names = [one.title if grouped else one.label for group in groups.values() for one in group]
    width = min(_NAME, max(map(len, names), default=0))
    rows: list[RenderableType] = []
    for subject, group in groups.items():
        rows += [Text(escape_commands(subject), style="bold")] if subject else []
        for one in group:
            style = STYLES[one.level]
            name = Text(one.title if grouped else one.label, style if style == "dim" else "")
            mark = Text(MARKS[one.level], style)
            rows += [
                _grid_row(
                    2,
                    (1, mark),
                    (width, name),
                    (None, Text(escape_commands(safe_text(one.text, 600)))),
                )
            ]
            rows += _finding_details(one, values)
    return Group(*rows)


def _grid_row(gap: int, *cells: tuple[int | None, Text]) -> Table:
    grid = Table.grid(padding=(0, gap, 0, 0))
    for width, _ in cells:
        grid.add_column(width=width, overflow="fold")
    grid.add_row(*(text for _, text in cells))
    return grid


def _finding_details(one: Finding, values: int) -> Iterator[RenderableType]:
    for text in one.values[:values]:
        yield _grid_row(
            1, (_INDENT - 1, Text()), (None, Text(escape_commands(safe_text(text, 400)), "dim"))
        )
    if (more := len(one.values) - values) > 0 and values:
        yield Text(f"{'':{_INDENT}}and {more} more, see --json", "dim")
    fine = one.level in ("ok", "skipped")
    if one.hint:
        hint = safe_text(one.hint, 1200)
        hint = textwrap.shorten(hint, _SHORT, placeholder=" ...") if fine else hint
        hint = with_pages(hint) + (":" if one.command else "")
        arrow = Text("→", "dim" if fine else "yellow")
        body = Text(escape_commands(hint), "dim" if fine else "")
        yield _grid_row(1, (_INDENT - 1, Text()), (1, arrow), (None, body))
    # What is copied, a command or an address, is one line: the terminal may wrap it, we may not.
    for text, style in ((one.command, ""), (one.source, "dim")):
        if text and not fine:
            line = f"{'':{_INDENT + 2}}{escape_commands(text)}"
            yield Text(line, style, no_wrap=True, overflow="ignore")


def finding_cases(
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
