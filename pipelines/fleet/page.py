"""The page of a fleet: one self-contained file, made from its history and nothing else.

What hosts and cells are called may come from a ledger that somebody else wrote: it is bounded and
escaped, and a run is linked only where it lies beside the fleet's own directory.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from pipelines import units
from pipelines.fleet.accounts import Accounts, CellAccount, account
from pipelines.fleet.gantt import gantt
from pipelines.fleet.model import Finished, FleetHistory, Stand
from pipelines.fleet.view import numbered
from pipelines.hosttext import block, line
from pipelines.reports.html import environment

_TEMPLATES = Path(__file__).resolve().parents[1] / "reports" / "templates"
#: Rows of the tables; the rest is counted.
_CELLS, _TROUBLES, _HOSTS_NAMED = 600, 60, 4
_LAST_YEAR = 253_402_300_799  # the latest time that datetime takes
_KINDS = (
    ("k0", "build of a cell"),
    ("k1", "share of one"),
    ("k2", "link of shares"),
    ("k3", "test"),
    ("lost", "lost attempt"),
    ("failed", "failed"),
    ("starts", "host starts"),
    ("away", "host lost or set aside"),
    ("resumed", "another process went on"),
)
#: From best to worst: tone, mark and word of a cell whose worst work stands so.
STANDS: dict[Stand, tuple[str, str, str]] = {
    "done": ("passed", "✓", "done"),
    "cancelled": ("idle", "○", "cancelled"),
    "waiting": ("unfinished", "…", "waiting"),
    "running": ("unfinished", "…", "running"),
    "blocked": ("failed", "✗", "cannot begin"),
    "quarantined": ("failed", "✗", "quarantined"),
    "failed": ("failed", "✗", "failed"),
}
_ORDER = tuple(STANDS)
_NONE: Stand = "cancelled"


@dataclass(frozen=True, slots=True)
class Cell:
    """A row of the table of cells."""

    cell: str
    stand: Stand
    hosts: str
    account: CellAccount
    page: str
    """Link to its run's own page; empty: there is none."""

    @property
    def tone(self) -> str:
        """Class of its colour."""
        return STANDS[self.stand][0]

    @property
    def mark(self) -> str:
        """Symbol beside its word."""
        return STANDS[self.stand][1]

    @property
    def word(self) -> str:
        """Of its outcome."""
        return STANDS[self.stand][2]


@dataclass(frozen=True, slots=True)
class Trouble:
    """A work that is not as it was asked for, with what is known of why."""

    key: str
    word: str
    hosts: str
    message: str
    advice: str


def render(history: FleetHistory, folder: Path | None = None) -> str:
    """The page; the same history gives the same one.

    With ``folder``, where the page will lie, cells link the pages of their runs that are there.
    """
    accounts = account(history)
    every = cells(accounts, folder)
    worst = max((one.stand for one in every), key=_ORDER.index, default=_NONE)
    done = sum(one.stand == "done" for one in every)
    # Those with trouble are never the ones that are left out.
    shown = sorted(every, key=lambda c: (-_ORDER.index(c.stand), -c.account.host_seconds, c.cell))
    wrong = [*troubles(history)]
    style = "".join((_TEMPLATES / f"{name}.css").read_text("utf-8") for name in ("report", "fleet"))
    return (
        environment()
        .get_template("fleet.html.j2")
        .render(
            a=accounts,
            name=line(history.name, 100),
            began=when(accounts.began),
            tone=STANDS[worst][0],
            mark=STANDS[worst][1],
            headline=headline(every),
            said=tally(history.works),
            chart=gantt(accounts),
            kinds=_kinds(history),
            hosts=sorted(accounts.hosts, key=lambda host: numbered(host.machine.name)),
            refused=[(line(host, 60), line(why)) for host, why in [*history.refused.items()][:200]],
            cells=shown[:_CELLS],
            more_cells=max(0, len(shown) - _CELLS),
            troubles=wrong[:_TROUBLES],
            more_troubles=max(0, len(wrong) - _TROUBLES),
            works_done=done,
            shown=lambda text: line(text, 60),
            style=Markup(style),  # noqa: S704 - our own files
            digest=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        )
    )


def headline(every: Sequence[Cell]) -> str:
    """``All 40 cells done`` or ``38 of 40 cells done``."""
    done = sum(one.stand == "done" for one in every)
    if not every:
        return "Nothing to do"
    counted = units.counted(len(every), "cell")
    if done < len(every):
        return f"{done:,} of {counted} done"
    return f"All {counted} done" if done > 1 else f"{counted} done"


def tally(works: Iterable[Finished]) -> str:
    """How many works stand how: ``118 done, 1 failed``."""
    counts = Counter(one.stand for one in works)
    said = (f"{counts[stand]:,} {STANDS[stand][2]}" for stand in _ORDER if counts[stand])
    return f"{units.counted(counts.total(), 'work')}: {', '.join(said)}" if counts else ""


def when(moment: float) -> str:
    """``2026-09-21 22:00``, of UTC."""
    if not 0 <= moment <= _LAST_YEAR:
        return "at an unknown time"
    return datetime.datetime.fromtimestamp(moment, datetime.UTC).strftime("%Y-%m-%d %H:%M")


def cells(accounts: Accounts, folder: Path | None = None) -> list[Cell]:
    """Every cell with what became of it: of its works the one that stands worst."""
    stands: dict[str, Stand] = {}
    for one in accounts.history.works:
        now = stands.get(one.work.cell, one.stand)
        stands[one.work.cell] = max(now, one.stand, key=_ORDER.index)
    runs: dict[str, str] = {}
    of = {one.work.key: one.work for one in accounts.history.works}
    for span in accounts.history.spans:
        work = of.get(span.key)
        if work is not None and span.run and span.kind in ("cell", "link"):
            runs[work.cell] = span.run
    return [
        Cell(
            cell=line(one.cell, 200),
            stand=stands[one.cell],
            hosts=units.few((line(host, 60) for host in one.hosts), most=_HOSTS_NAMED),
            account=one,
            page=_page(runs.get(one.cell, ""), folder),
        )
        for one in accounts.cells
        if one.cell in stands
    ]


def troubles(history: FleetHistory) -> Iterable[Trouble]:
    """Works that failed, hurt hosts or could not begin: the worst first."""
    hosts: dict[str, list[str]] = defaultdict(list)
    for span in history.spans:
        if span.outcome != "done":
            hosts[span.key].append(span.host)
    bad = (one for one in history.works if STANDS[one.stand][0] == "failed")
    for one in sorted(bad, key=lambda one: (-_ORDER.index(one.stand), one.work.key)):
        where = dict.fromkeys(line(host, 60) for host in hosts[one.work.key])
        why = line(one.why)
        message = [why if why.endswith(".") or one.error is None else f"{why}."] if why else []
        if one.error is not None:
            message.append(block(one.error.message, 600))
        yield Trouble(
            key=line(one.work.key, 200),
            word=STANDS[one.stand][2],
            hosts=units.few(where, most=_HOSTS_NAMED),
            message=" ".join(message),
            advice=block(one.error.advice, 600) if one.error is not None else "",
        )


def _kinds(history: FleetHistory) -> list[tuple[str, str]]:
    """The part of the legend that the chart has need of."""
    there = {
        {"cell": "k0", "shard": "k1", "link": "k2", "test": "k3"}[s.kind] for s in history.spans
    }
    there |= {str(span.outcome) for span in history.spans}
    there |= {"starts" if s.standing == "starting" else "away" for s in history.stretches}
    there |= {"resumed"} if history.resumed else set()
    return [(kind, word) for kind, word in _KINDS if kind in there]


def _page(run: str, folder: Path | None) -> str:
    if not run or folder is None:
        return ""
    try:
        own, out = Path(run).resolve() / "report.html", folder.resolve().parent
        if not own.is_relative_to(out) or not own.is_file():
            return ""
        return quote(os.fsencode(Path(os.path.relpath(own, folder.resolve())).as_posix()))
    except (OSError, ValueError):
        return ""
