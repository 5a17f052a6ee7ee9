"""What people and CI systems read of a fleet: its page, JUnit XML, and a summary for GitHub.

What hosts and cells are called may come from a ledger that somebody else wrote: it is bounded and
escaped, and a run is linked only where it lies beside the fleet's own directory.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from pipelines.core import units
from pipelines.core.console import say
from pipelines.core.files import write_atomic
from pipelines.core.hosttext import block, line
from pipelines.fleet.history import (
    FleetHistory,
    HostAccount,
    host_accounts,
    numbered,
)
from pipelines.fleet.model import Span, TaskEntry, TaskState
from pipelines.reports import junit
from pipelines.reports.charts import Scale, axis, px
from pipelines.reports.html import environment
from pipelines.reports.markdown import plain
from pipelines.reports.model import Case, Outcome, Suite

REPORT, JUNIT, SUMMARY = "report.html", "junit.xml", "summary.md"
_TEMPLATES = Path(__file__).resolve().parents[1] / "reports" / "templates"
#: Rows of the tables and of the summary; the rest is counted.
_CELLS, _TROUBLES, _ROWS, _HOSTS_NAMED = 600, 60, 200, 4
_LAST_YEAR = 253_402_300_799  # the latest time that datetime takes
#: From best to worst: tone and mark of a cell whose worst task is in that state, and its JUnit.
_STATES: dict[TaskState, tuple[str, str, Outcome]] = {
    "done": ("passed", "✓", "passed"),
    "cancelled": ("idle", "○", "skipped"),
    "waiting": ("unfinished", "…", "skipped"),
    "running": ("unfinished", "…", "skipped"),
    "blocked": ("failed", "✗", "error"),
    "quarantined": ("failed", "✗", "error"),
    "failed": ("failed", "✗", "failed"),
}
_ORDER = tuple(_STATES)
_LIGHTS = {"passed": "✅", "failed": "❌"}
_KINDS = {
    "cell": ("k0", "build of a cell"),
    "shard": ("k1", "shard of one"),
    "link": ("k2", "link of shards"),
    "test": ("k3", "test"),
}
_LEGEND = (
    *_KINDS.values(),
    ("lost", "lost attempt"),
    ("failed", "failed"),
    ("starts", "host starts"),
    ("away", "host lost or set aside"),
    ("resumed", "another process resumed it"),
)


@dataclass(frozen=True)
class Cell:
    """A row of the table of cells: its shards, link, tests and attempts that were lost."""

    cell: str
    state: TaskState
    """Of its tasks the worst."""
    hosts: str
    attempts: int
    lost: int
    seconds: float
    """Of all hosts."""
    page: str
    """Link to its run's own page; empty: there is none."""


@dataclass(frozen=True)
class Failure:
    """A task that is not as it was asked for, with what is known of why."""

    key: str
    state: TaskState
    hosts: str
    message: str
    hint: str


@dataclass(frozen=True)
class Report:
    """All that is shown of a fleet."""

    history: FleetHistory
    hosts: Sequence[HostAccount]
    cells: Sequence[Cell]
    """Those with trouble first, then the longest."""
    failures: Sequence[Failure]

    @property
    def utilisation(self) -> float:
        """Of all slots over the fleet's whole time."""
        slots = sum(host.machine.slots for host in self.hosts)
        used = sum(host.utilisation * host.machine.slots for host in self.hosts)
        return used / slots if slots else 0.0

    @property
    def headline(self) -> str:
        """``All 40 cells done`` or ``38 of 40 cells done``."""
        done = sum(one.state == "done" for one in self.cells)
        if not self.cells:
            return "Nothing to do"
        counted = units.counted(len(self.cells), "cell")
        if done < len(self.cells):
            return f"{done:,} of {counted} done"
        return f"All {counted} done" if done > 1 else f"{counted} done"

    @property
    def tally(self) -> str:
        """How many tasks are in which state: ``118 done, 1 failed``."""
        counts = Counter(one.state for one in self.history.tasks)
        said = ", ".join(f"{counts[state]:,} {state}" for state in _ORDER if counts[state])
        return f"{units.counted(counts.total(), 'task')}: {said}" if counts else ""


def report_of(history: FleetHistory, folder: Path | None = None) -> Report:
    """What is shown; with ``folder``, where the page will lie, cells link their runs' pages."""
    tasks: dict[str, list[TaskEntry]] = defaultdict(list)
    for one in history.tasks:
        tasks[one.task.cell].append(one)
    spans: dict[str, list[Span]] = defaultdict(list)
    for span in history.spans:
        spans[span.key].append(span)
    cells = [_cell(history, mine, spans, folder) for mine in tasks.values()]
    cells.sort(key=lambda c: (-_ORDER.index(c.state), -c.seconds, c.cell))
    hosts = sorted(host_accounts(history), key=lambda one: numbered(one.machine.name))
    bad = [one for one in history.tasks if _STATES[one.state][0] == "failed"]
    bad.sort(key=lambda one: (-_ORDER.index(one.state), one.task.key))
    failures = [_failure(one, spans[one.task.key]) for one in bad]
    return Report(history, hosts, cells, failures)


def _cell(
    history: FleetHistory,
    tasks: Sequence[TaskEntry],
    spans: Mapping[str, Sequence[Span]],
    folder: Path | None,
) -> Cell:
    mine = [span for one in tasks for span in spans.get(one.task.key, ())]
    runs = [span.run for span in mine if span.run and span.kind in ("cell", "link")]
    return Cell(
        cell=line(tasks[0].task.cell, 200),
        state=max((one.state for one in tasks), key=_ORDER.index),
        hosts=_names(span.host for span in mine),
        attempts=len(mine),
        lost=sum(span.outcome == "lost" for span in mine),
        seconds=sum(end - begin for begin, end in map(history.interval, mine)),
        page=_page(runs[-1] if runs else "", folder),
    )


def _failure(one: TaskEntry, spans: Iterable[Span]) -> Failure:
    return Failure(
        key=line(one.task.key, 200),
        state=one.state,
        hosts=_names(span.host for span in spans if span.outcome != "done"),
        message=block(one.error.message, 600) if one.error is not None else "",
        hint=block(one.error.hint, 600) if one.error is not None else "",
    )


def _names(hosts: Iterable[str]) -> str:
    return units.few(dict.fromkeys(line(host, 60) for host in hosts), most=_HOSTS_NAMED)


def _page(run: str, folder: Path | None) -> str:
    if not run or folder is None:
        return ""
    try:
        own, out = Path(run).resolve() / REPORT, folder.resolve().parent
        if not own.is_relative_to(out) or not own.is_file():
            return ""
        return quote(os.fsencode(Path(os.path.relpath(own, folder.resolve())).as_posix()))
    except (OSError, ValueError):
        return ""


# -- the page -------------------------------------------------------------------------------------


def render(history: FleetHistory, folder: Path | None = None) -> str:
    """The page: one self-contained file; the same history gives the same one."""
    report = report_of(history, folder)
    worst = report.cells[0].state if report.cells else "cancelled"
    style = "".join((_TEMPLATES / f"{name}.css").read_text("utf-8") for name in ("report", "fleet"))
    template = environment().get_template("fleet.html.j2")
    return template.render(
        report=report,
        name=line(history.name, 100),
        began=when(history.bounds[0]),
        states=_STATES,
        worst=worst,
        chart=gantt(history),
        legend=_LEGEND,
        refused=[(line(host, 60), line(why)) for host, why in [*history.refused.items()][:200]],
        cells=report.cells[:_CELLS],
        failures=report.failures[:_TROUBLES],
        shown=lambda text: line(text, 60),
        style=Markup(style),  # noqa: S704 - our own files
        digest=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
    )


def when(moment: float) -> str:
    """``2026-09-21 22:00``, of UTC."""
    if not 0 <= moment <= _LAST_YEAR:
        return "at an unknown time"
    return datetime.datetime.fromtimestamp(moment, datetime.UTC).strftime("%Y-%m-%d %H:%M")


_LEFT, _WIDTH, _RIGHT, _TOP, _AXIS = 96.0, 900.0, 10.0, 8.0, 20.0
_LANE, _GAP, _NAME = 9.0, 4.0, 15
_STEPS = (1, 5, 10, 30, 60, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)


def gantt(history: FleetHistory) -> Markup:
    """What every host did from when to when, as inline SVG: a band each, a lane a task at a time.

    A thin line is a host that starts, a dashed one a host that was not there.
    """
    first, whole = history.bounds[0], max(history.seconds, 1.0)
    spans: dict[str, list[Span]] = defaultdict(list)
    for span in sorted(history.spans, key=lambda one: one.began):
        spans[span.host].append(span)

    def place(begin: float, end: float) -> tuple[str, str]:
        # A hairline stays between neighbours, and nothing vanishes.
        x = _LEFT + (begin - first) / whole * _WIDTH
        return px(x), px(max((end - begin) / whole * _WIDTH - 0.6, 0.6))

    parts: list[Markup] = []
    top = _TOP
    for host in sorted((one.name for one in history.machines), key=numbered):
        free: list[float] = []
        for span in spans[host]:
            begin, end = history.interval(span)
            lane = next((n for n, until in enumerate(free) if until <= begin), len(free))
            free[lane : lane + 1] = [end]
            parts.append(_box(span, place(begin, end), top + lane * _LANE, end - begin))
        bottom = top + max(1, len(free)) * _LANE
        middle = (top + bottom) / 2
        name = line(host, 60)
        short = name if len(name) <= _NAME else f"{name[:6]}…{name[7 - _NAME :]}"
        parts.append(
            Markup('<text class="name" x="{}" y="{}"><title>{}</title>{}</text>').format(
                px(_LEFT - 6), px(middle + 3.5), name, short
            )
        )
        for one in history.stretches:
            if one.host == host:
                said = f"{name} {one.status}" + (f": {line(one.why, 200)}" if one.why else "")
                kind = "starts" if one.status == "starting" else "away"
                x, width = place(*history.interval(one))
                path = Markup('<path class="{}" d="M{} {}h{}"><title>{}</title></path>')
                parts.append(path.format(kind, x, px(middle), width, said))
        top = bottom + _GAP
    for moment in history.resumed[:200]:
        path = Markup('<path class="resumed" d="M{} {}V{}"/>')
        parts.append(path.format(place(moment, moment)[0], px(_TOP - 4), px(top)))
    hosts = units.counted(len(history.machines), "host")
    attempts = units.counted(len(history.spans), "attempt")
    return Markup(
        '<svg class="gantt" role="img" aria-labelledby="gantt-t gantt-d" viewBox="0 0 {} {}">'
        '<title id="gantt-t">Hosts over time</title><desc id="gantt-d">{}</desc>{}{}</svg>'
    ).format(
        px(_LEFT + _WIDTH + _RIGHT),
        px(top + _AXIS),
        f"{hosts} over {units.seconds(history.seconds)}, {attempts}. The tables have the numbers.",
        Markup("").join(parts),
        axis(whole, top, Scale(_LEFT, _WIDTH, _STEPS, 8)),
    )


def _box(span: Span, place: tuple[str, str], y: float, seconds: float) -> Markup:
    said = f"{line(span.key, 200)}: {span.outcome or 'goes on'}, {units.seconds(seconds)}"
    said += f", attempt {span.attempt}" if span.attempt > 1 else ""
    if span.error is not None:
        said += f"; {line(span.error.message, 200)}"
    kind = span.outcome if span.outcome in ("lost", "failed") else _KINDS[span.kind][0]
    return Markup(
        '<rect class="{}" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>'
    ).format(kind, place[0], px(y), place[1], px(_LANE - 1), said)


# -- files ----------------------------------------------------------------------------------------


def write(history: FleetHistory, folder: Path) -> Path:
    """``report.html``, ``junit.xml`` and ``summary.md`` in ``folder``; the page.

    Raises ``StorageError`` when they cannot be written.
    """
    write_atomic(folder / REPORT, render(history, folder).encode())
    junit.write(folder / JUNIT, [suite(history)])
    write_atomic(folder / SUMMARY, summary(history).encode())
    return folder / REPORT


def tell_github(history: FleetHistory) -> None:
    """In a job of GitHub Actions: its summary; elsewhere nothing."""
    if step := os.environ.get("GITHUB_STEP_SUMMARY"):
        try:
            with Path(step).open("a", encoding="utf-8") as file:
                file.write(summary(history))
        except OSError as error:
            say(f"the step summary cannot be written: {error.strerror}", style="yellow")


def suite(history: FleetHistory) -> Suite:
    """A case for each task: what has not run is skipped, never passed."""
    report = report_of(history)
    spans: dict[str, list[Span]] = defaultdict(list)
    for span in history.spans:
        spans[span.key].append(span)
    began = when(history.bounds[0])
    return Suite(
        name=line(history.name, 100),
        cases=tuple(_case(history, one, spans[one.task.key]) for one in history.tasks),
        properties={
            "hosts": str(len(history.machines)),
            "utilisation": f"{report.utilisation:.3f}",
            **{f"refused.{line(host, 60)}": line(why) for host, why in history.refused.items()},
        },
        timestamp=f"{began.replace(' ', 'T')}:00" if began[:1].isdigit() else "",
    )


def _case(history: FleetHistory, one: TaskEntry, spans: Sequence[Span]) -> Case:
    outcome = _STATES[one.state][2]
    message = line(one.error.message) if one.error is not None else ""
    return Case(
        name=line(one.task.key, 200),
        classname=line(one.task.cell, 200),
        seconds=sum(end - begin for begin, end in map(history.interval, spans)),
        outcome=outcome,
        message="" if outcome == "passed" else message or one.state,
        detail=block(one.error.message) if one.error is not None else "",
        properties={"host": line(spans[-1].host, 60)} if spans else {},
    )


def summary(history: FleetHistory) -> str:
    """The summary as Markdown: what is not done first, then the longest."""
    report = report_of(history)
    hosts = units.counted(len(report.hosts), "host")
    said = f"took {units.seconds(history.seconds)} on {hosts}"
    said += f", slots busy {units.percent(report.utilisation)}"
    parts = [f"## {report.headline}", "", plain(report.tally), ""]
    parts += [plain(f"{line(history.name, 100)}: {said}."), ""]
    if report.cells:
        parts += ["| Cell | Outcome | Hosts | Attempts | Host time |", "|-|-|-|-:|-:|"]
    for cell in report.cells[:_ROWS]:
        light = f"{_LIGHTS.get(_STATES[cell.state][0], '🟡')} {cell.state}"
        parts.append(
            f"| {plain(cell.cell, 200)} | {light} | {plain(cell.hosts) or '-'} "
            f"| {cell.attempts} | {units.seconds(cell.seconds)} |"
        )
    if (more := len(report.cells) - _ROWS) > 0:
        parts += ["", f"and {more:,} more cells; the rest is in {REPORT}."]
    for one in report.failures[:20]:
        where = f" on {plain(one.hosts)}" if one.hosts else ""
        parts += ["", f"**{plain(one.key, 200)}** {one.state}{where}: {plain(one.message, 600)}"]
        parts += ["", f"→ {plain(one.hint, 600)}"] if one.hint else []
    for host, why in [*history.refused.items()][:20]:
        parts += ["", f"**{plain(line(host, 60))}** took no part: {plain(line(why))}"]
    return "\n".join(parts) + "\n"
