"""Shows runs in a terminal: a table of stages, then failures. As text, never markup."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pipelines.core import units
from pipelines.core.github import escape_commands
from pipelines.core.hosttext import safe_text
from pipelines.reports.compare import Comparison, Judgement
from pipelines.reports.views import MARKS, Failure, RunView, Verdict

_STYLES: dict[Verdict, str] = {
    "passed": "bold green",
    "untested": "bold yellow",
    "unfinished": "bold yellow",
    "failed": "bold red",
}
_STATES = {"passed": "green", "failed": "red"}
_STATES |= dict.fromkeys(("running", "interrupted", "unfinished"), "yellow")
_JUDGEMENTS: dict[Judgement, str] = {"worse": "red", "better": "green", "changed": "dim"}
_FAILURES = 6
_DIFFERENCES = 60


def render(views: Sequence[RunView]) -> RenderableType:
    """Render ``views``, at least one."""
    return _render_single_run(views[0]) if len(views) == 1 else _render_run_list(views)


def _render_single_run(view: RunView) -> Group:
    title = _verdict_text(view)
    title.append(escape_commands(f"  {view.target.package} for {view.target.label}"), style="bold")
    table = Table(box=None, pad_edge=False, show_header=False)
    for stage in view.stages:
        table.add_row(
            Text(escape_commands(f"  {stage.name}")),
            Text(escape_commands(stage.state), style=_STATES.get(stage.state, "dim")),
            Text(units.format_seconds(stage.seconds), style="dim", justify="right"),
            Text(_note(view, stage.name), style="dim"),
        )
    rows: list[RenderableType] = [title, table]
    if view.verdict == "unfinished":  # there is no failure with the reason
        rows.append(Text(escape_commands(f"  … {view.headline}"), style="bold yellow"))
    elif view.tested:
        rows.append(Text(f"  {escape_commands(view.headline)}", style="yellow"))
    if view.gpu_way:
        rows.append(Text(f"  GPU: {escape_commands(view.gpu_summary)}", style="dim"))
    rows += [Text(f"  {escape_commands(caveat)}", style="yellow") for caveat in view.caveats]
    mark = MARKS["unfinished" if view.verdict == "unfinished" else "failed"]
    rows += [row for failure in view.failures[:_FAILURES] for row in _render_failure(failure, mark)]
    if (more := len(view.failures) - _FAILURES) > 0:
        rows.append(Text(f"  and {units.pluralize(more, 'more failure')}", style="red"))
    return Group(*rows)


def _verdict_text(view: RunView) -> Text:
    return Text(f"{MARKS[view.verdict]} {view.word}", style=_STYLES[view.tone])


def _render_failure(failure: Failure, mark: str) -> list[RenderableType]:
    head = Text(f"  {mark} ", style="red")
    head.append(escape_commands(failure.title), style="red")
    first = failure.message.splitlines()[:1]
    excerpt = failure.excerpt
    if excerpt is not None and excerpt.mark:
        first.append(
            f"{excerpt.source}, line {excerpt.mark}: {excerpt.lines[excerpt.mark - excerpt.first]}"
        )
    # Indented lines: a Padding would truncate them at the terminal's edge.
    rows = [Text(escape_commands(f"    {text[:300].rstrip(': ')}"), style="dim") for text in first]
    return [head, *rows]


def _note(view: RunView, stage: str) -> str:
    """A short note on a stage."""
    if stage == "build" and view.timeline is not None and view.timeline.units:
        parts = units.pluralize(len(view.timeline.units), "unit")
        busy, cost = view.timeline.busy, view.timeline.core_seconds
        if cost and busy:  # short, to fit 80 columns
            took = units.format_seconds(cost)
            return f"{parts}, cores: {took}, {units.format_percent(busy)} busy"
        return parts + (
            f", host's cores {units.format_percent(busy)} busy" if busy is not None else ""
        )
    if stage in ("collect", "prebuilt") and view.wheels:
        return units.format_size(sum(wheel.size for wheel in view.wheels))
    if stage == "audit" and view.checks:
        judged = sum(check.checked for check in view.checks)
        informational = len(view.checks) - judged
        return units.pluralize(judged, "check") + (
            f", {informational} not checked" if informational else ""
        )
    if stage == "test":
        return ", ".join(f"{count} {word}" for word, count in view.counts.items())
    return ""


def _render_run_list(views: Sequence[RunView]) -> Group:
    """Two lines for each run: its target, then figures and its name."""
    rows = []
    for view in views:
        name = f"{view.target.package} for {view.target.label}"
        what = f"{name} on {view.target.host}" if view.target.host else name
        rows.append(Text.assemble(_verdict_text(view), "  ", (escape_commands(what), "bold")))
        size = units.format_size(view.wheels[0].size) if view.wheels else ""
        figures = filter(None, (units.format_seconds(view.seconds), size, _note(view, "test")))
        rows.append(Text(escape_commands("  ".join(("", *figures, view.id))), style="dim"))
    return Group(*rows)


def render_comparison(seen: Comparison) -> Group:
    """Render a comparison; what got worse comes first."""
    rows: list[RenderableType] = [
        Text(escape_commands(f"{seen.before.id}  then"), style="bold"),
        Text(escape_commands(f"{seen.after.id}  now"), style="bold"),
        *(Text(escape_commands(f"  {note}"), style="yellow") for note in seen.notes),
    ]
    table = Table(box=None, pad_edge=False)
    for column in ("", "what", "of", "then", "now", "ratio"):
        table.add_column(column, justify="right" if column == "ratio" else "left")
    for row in seen.differences[:_DIFFERENCES]:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        values = (row.kind, row.subject, row.before, row.after, ratio)
        table.add_row(
            Text(row.judgement, style=_JUDGEMENTS[row.judgement]),
            *(Text(escape_commands(safe_text(text, 120))) for text in values),
        )
    if seen.differences:
        rows.append(table)
    if (more := len(seen.differences) - _DIFFERENCES) > 0:
        rows.append(Text(f"and {more} more differences"))
    if seen.worse:
        rows.append(Text(f"{len(seen.worse)} worse: missing or failing", style="bold red"))
    else:
        rows.append(Text("nothing is newly missing or failing", style="green"))
    return Group(*rows)
