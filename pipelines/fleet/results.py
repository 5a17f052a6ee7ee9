"""What people and CI systems read of a fleet: its page, JUnit XML, and a summary for GitHub."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable
from pathlib import Path

from pipelines import units
from pipelines.console import say
from pipelines.files import write_atomic
from pipelines.fleet import page
from pipelines.fleet.accounts import Accounts, account
from pipelines.fleet.model import Finished, FleetHistory, Stand
from pipelines.hosttext import block, line
from pipelines.reports import junit
from pipelines.reports.markdown import plain
from pipelines.reports.model import Case, Outcome, Suite

REPORT, JUNIT, SUMMARY = "report.html", "junit.xml", "summary.md"
#: Rows of a summary, of which GitHub shows 1 MiB, and bytes that it never has more of.
_ROWS, _MOST = 200, 900 << 10
_OUTCOMES: dict[Stand, Outcome] = {
    "done": "passed",
    "failed": "failed",
    "quarantined": "error",
    "blocked": "error",
    "running": "skipped",
    "waiting": "skipped",
    "cancelled": "skipped",
}
_LIGHTS: dict[Stand, str] = {"done": "✅", "failed": "❌", "quarantined": "❌", "blocked": "❌"}


def write(history: FleetHistory, folder: Path) -> Path:
    """``report.html``, ``junit.xml`` and ``summary.md`` in ``folder``; the page.

    Raises ``StorageError`` when they cannot be written.
    """
    made = folder / REPORT
    write_atomic(made, page.render(history, folder).encode())
    junit.write(folder / JUNIT, [suite(history)])
    write_atomic(folder / SUMMARY, summary(history).encode())
    return made


def tell_github(history: FleetHistory) -> None:
    """In a job of GitHub Actions: its summary; elsewhere nothing."""
    if step := os.environ.get("GITHUB_STEP_SUMMARY"):
        try:
            with Path(step).open("a", encoding="utf-8") as file:
                file.write(summary(history))
        except OSError as error:
            say(f"the step summary cannot be written: {error.strerror}", style="yellow")


def suite(history: FleetHistory) -> Suite:
    """A case for each work: what has not run is skipped, never passed."""
    accounts = account(history)
    seconds: dict[str, float] = {}
    hosts: dict[str, str] = {}
    for span in history.spans:
        end = accounts.ended if span.ended is None else span.ended
        seconds[span.key] = seconds.get(span.key, 0.0) + max(0.0, end - span.began)
        hosts[span.key] = span.host
    return Suite(
        name=line(history.name, 100),
        cases=tuple(
            _case(one, seconds.get(one.work.key, 0.0), hosts.get(one.work.key, ""))
            for one in history.works
        ),
        properties={
            "hosts": str(len(history.machines)),
            "utilisation": f"{accounts.utilisation:.3f}",
            **({"cost": _money(accounts, accounts.cost)} if accounts.priced else {}),
            **{f"refused.{line(host, 60)}": line(why) for host, why in history.refused.items()},
        },
        timestamp=_iso(accounts.began),
    )


def _case(one: Finished, seconds: float, host: str) -> Case:
    outcome = _OUTCOMES[one.stand]
    why = line(one.why) or (line(one.error.message) if one.error is not None else "")
    return Case(
        name=line(one.work.key, 200),
        classname=line(one.work.cell, 200),
        seconds=seconds,
        outcome=outcome,
        message="" if outcome == "passed" else why or one.stand,
        detail=block(one.error.message) if one.error is not None else "",
        properties={"host": line(host, 60)} if host else {},
    )


def summary(history: FleetHistory) -> str:
    """The summary as Markdown: what is not done first, then the longest."""
    accounts = account(history)
    cells = page.cells(accounts)
    said = [
        f"took {units.seconds(accounts.seconds)} on {units.counted(len(accounts.hosts), 'host')}"
    ]
    said.append(f"slots busy {units.percent(accounts.utilisation)}")
    if accounts.priced:
        said.append(f"cost {_money(accounts, accounts.cost)}")
    parts = [f"## {page.headline(cells)}", "", plain(page.tally(history.works)), ""]
    parts += [plain(f"{line(history.name, 100)}: {', '.join(said)}."), ""]
    if cells:
        parts += ["| Cell | Outcome | Hosts | Attempts | Host time |", "|-|-|-|-:|-:|"]
    order = {stand: number for number, stand in enumerate(reversed(page.STANDS))}
    ranked = sorted(cells, key=lambda c: (order[c.stand], -c.account.host_seconds, c.cell))
    for cell in ranked[:_ROWS]:
        light = f"{_LIGHTS.get(cell.stand, '🟡')} {cell.word}"
        parts.append(
            f"| {plain(cell.cell, 200)} | {light} | {plain(cell.hosts) or '-'} "
            f"| {cell.account.attempts} | {units.seconds(cell.account.host_seconds)} |"
        )
    if more := len(ranked) - len(ranked[:_ROWS]):
        parts += ["", f"and {more:,} more cells; the rest is in report.html."]
    return _bounded("\n".join([*parts, *_troubles(history)]) + "\n")


def _troubles(history: FleetHistory) -> Iterable[str]:
    for one in [*page.troubles(history)][:20]:
        where = f" on {one.hosts}" if one.hosts else ""
        yield ""
        yield f"**{plain(one.key, 200)}** {one.word}{plain(where)}: {plain(one.message, 600)}"
        if one.advice:
            yield ""
            yield f"→ {plain(one.advice, 600)}"
    for host, why in [*history.refused.items()][:20]:
        yield ""
        yield f"**{plain(line(host, 60))}** took no part: {plain(line(why))}"


def _bounded(text: str) -> str:
    data = text.encode()
    return text if len(data) <= _MOST else data[:_MOST].decode(errors="ignore") + "\n"


def _money(accounts: Accounts, value: float) -> str:
    return f"{value:.2f} {line(accounts.history.currency, 10)}"


def _iso(moment: float) -> str:
    said = page.when(moment)
    if not said[:1].isdigit():
        return ""
    return datetime.datetime.fromtimestamp(moment, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S")
