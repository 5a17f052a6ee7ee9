"""Runs in a terminal: a table of stages, then what failed. Texts, never markup."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pipelines.core import units
from pipelines.core.github import inert
from pipelines.core.hosttext import safe
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
    """``views`` for a terminal, at least one."""
    return _one(views[0]) if len(views) == 1 else _many(views)


def _one(view: RunView) -> Group:
    title = _verdict(view)
    title.append(inert(f"  {view.target.package} for {view.target.label}"), style="bold")
    table = Table(box=None, pad_edge=False, show_header=False)
    for stage in view.stages:
        table.add_row(
            Text(inert(f"  {stage.name}")),
            Text(inert(stage.state), style=_STATES.get(stage.state, "dim")),
            Text(units.seconds(stage.seconds), style="dim", justify="right"),
            Text(_note(view, stage.name), style="dim"),
        )
    rows: list[RenderableType] = [title, table]
    if view.verdict == "unfinished":  # no failure says why
        rows.append(Text(inert(f"  … {view.headline}"), style="bold yellow"))
    elif view.tested:
        rows.append(Text(f"  {inert(view.headline)}", style="yellow"))
    if view.gpu_way:
        rows.append(Text(f"  GPU: {inert(view.gpu_told)}", style="dim"))
    rows += [Text(f"  {inert(said)}", style="yellow") for said in view.caveats]
    mark = MARKS["unfinished" if view.verdict == "unfinished" else "failed"]
    rows += [row for failure in view.failures[:_FAILURES] for row in _failure(failure, mark)]
    if (more := len(view.failures) - _FAILURES) > 0:
        rows.append(Text(f"  and {units.counted(more, 'more failure')}", style="red"))
    return Group(*rows)


def _verdict(view: RunView) -> Text:
    return Text(f"{MARKS[view.verdict]} {view.word}", style=_STYLES[view.tone])


def _failure(failure: Failure, mark: str) -> list[RenderableType]:
    head = Text(f"  {mark} ", style="red")
    head.append(inert(failure.title), style="red")
    said = failure.message.splitlines()[:1]
    found = failure.excerpt
    if found is not None and found.mark:
        said.append(f"{found.source}, line {found.mark}: {found.lines[found.mark - found.first]}")
    # Lines that begin with their indent: a Padding would cut them off at the terminal's edge.
    rows = [Text(inert(f"    {text[:300].rstrip(': ')}"), style="dim") for text in said]
    return [head, *rows]


def _note(view: RunView, stage: str) -> str:
    """What is worth knowing of a stage, in a few words."""
    if stage == "build" and view.timeline is not None and view.timeline.units:
        said = units.counted(len(view.timeline.units), "unit")
        busy, cost = view.timeline.busy, view.timeline.core_seconds
        if cost and busy:  # short: the row is to fit a terminal of 80
            return f"{said}, host's cores: {units.seconds(cost)}, {units.percent(busy)} busy"
        return said + (f", host's cores {units.percent(busy)} busy" if busy is not None else "")
    if stage in ("collect", "prebuilt") and view.wheels:
        return units.size(sum(wheel.size for wheel in view.wheels))
    if stage == "audit" and view.checks:
        judged = sum(check.checked for check in view.checks)
        told = len(view.checks) - judged
        return units.counted(judged, "check") + (f", {told} not checked" if told else "")
    if stage == "test":
        return ", ".join(f"{count} {word}" for word, count in view.counts.items())
    return ""


def _many(views: Sequence[RunView]) -> Group:
    """Two lines a run: what it is of, then its figures and its name, which is typed elsewhere."""
    rows = []
    for view in views:
        name = f"{view.target.package} for {view.target.label}"
        what = f"{name} on {view.target.host}" if view.target.host else name
        rows.append(Text.assemble(_verdict(view), "  ", (inert(what), "bold")))
        size = units.size(view.wheels[0].size) if view.wheels else ""
        figures = filter(None, (units.seconds(view.seconds), size, _note(view, "test")))
        rows.append(Text(inert("  ".join(("", *figures, view.id))), style="dim"))
    return Group(*rows)


def comparison(seen: Comparison) -> Group:
    """What differs between two runs, what got worse first."""
    rows: list[RenderableType] = [
        Text(inert(f"{seen.before.id}  then"), style="bold"),
        Text(inert(f"{seen.after.id}  now"), style="bold"),
        *(Text(inert(f"  {note}"), style="yellow") for note in seen.notes),
    ]
    table = Table(box=None, pad_edge=False)
    for column in ("", "what", "of", "then", "now", "ratio"):
        table.add_column(column, justify="right" if column == "ratio" else "left")
    for row in seen.differences[:_DIFFERENCES]:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        told = (row.kind, row.subject, row.before, row.after, ratio)
        table.add_row(
            Text(row.judgement, style=_JUDGEMENTS[row.judgement]),
            *(Text(inert(safe(text, 120))) for text in told),
        )
    if seen.differences:
        rows.append(table)
    if (more := len(seen.differences) - _DIFFERENCES) > 0:
        rows.append(Text(f"and {more} more differences"))
    if seen.worse:
        rows.append(Text(f"{len(seen.worse)} worse: missing or failing", style="bold red"))
    else:
        rows.append(Text("nothing is missing or fails that did not before", style="green"))
    return Group(*rows)
