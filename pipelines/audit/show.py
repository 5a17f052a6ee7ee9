"""What was found in wheels, for people at a terminal, for programs and for CI."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from pipelines.audit.findings import SCHEMA, WORDS, Card, Examined, held_against
from pipelines.audit.listing import Listing
from pipelines.core import units
from pipelines.core.console import console, say, units_progress
from pipelines.core.finding import LEVELS, Finding, Level, failures
from pipelines.core.hosttext import safe
from pipelines.reports import junit as xml
from pipelines.reports.findings import MARKS, STYLES, cases, table
from pipelines.reports.model import Suite
from pipelines.wheels.fatbin import compact

#: How ``--json`` calls levels, where it has another word.
JSON: dict[Level, str] = {"error": "problem", "warning": "mind"}
#: How a card's fate is shown.
RUNS = {
    "native": "runs",
    "jit": "by JIT",
    "partly": "in part",
    "no": "no",
    "unknown": "not checked",
}
_RUN_STYLES = {"native": "green", "jit": "yellow", "partly": "red", "no": "red", "unknown": "dim"}
_NAME = 34  # columns of a wheel's name in a list of many
_MANY = 3  # wheels from which a line each is shown


@contextmanager
def progress(total: int) -> Iterator[Callable[[Examined], object]]:
    """A bar for many wheels: call it with each that is done."""
    with units_progress() as bar:
        task = bar.add_task("look into", total=total, left="", unit="", visible=total >= _MANY)
        yield lambda one: bar.update(task, advance=1, unit=safe(one.file, 60))


def listed(listing: Listing) -> None:
    """What is taken of a page of an index and what is not, before it is fetched."""
    size = f"; {units.size(listing.size)} to have" if listing.size else ""
    say(f"{listing.said}{size}", style="dim" if listing.whole else "yellow")


def told(examined: Sequence[Examined], listings: Sequence[Listing] = ()) -> dict[str, Any]:
    """What ``--json`` prints."""
    return {
        "schema": SCHEMA,
        "listings": [one.model_dump(mode="json") | {"whole": one.whole} for one in listings],
        "wheels": [
            one.model_dump(mode="json")
            | {"findings": [*map(_finding, one.findings)], "level": JSON.get(one.worst, one.worst)}
            for one in examined
        ],
    }


def _finding(one: Finding) -> dict[str, Any]:
    return {
        "id": one.id,
        "check": one.label,
        "level": JSON.get(one.level, one.level),
        "found": one.text,
        "asked": one.requested,
        "detail": one.hint,
        "values": one.values,
    }


def show(examined: Sequence[Examined]) -> None:
    """Each of a few wheels in full, of many a line each and what is wrong."""
    if len(examined) >= _MANY:
        _overview(examined)
    else:
        for one in examined:
            _one(one)
    for against, which in held_against(examined).items():
        if against.startswith("torch "):
            say(f"{safe(against, 160)}: {which}", style="dim")
    if len(examined) > 1:
        say(_tally(examined), style="bold")


def _tally(examined: Sequence[Examined]) -> str:
    counts = {level: sum(one.worst == level for one in examined) for level in LEVELS}
    parts = [f"{WORDS[level]} {count}" for level, count in counts.items() if count]
    return f"{units.counted(len(examined), 'wheel')}: {', '.join(parts)}"


def _one(one: Examined) -> None:
    console.print(f"[bold]{escape(safe(one.file))}[/bold]")
    if one.sha256:
        say(f"{units.size(one.size)}, sha256 {one.sha256}", style="dim")
    if one.gpus.binaries and not any(each.id == "gpu" for each in one.findings):
        console.print(_cards(one.gpus.cards))
    console.print(table(one.findings))


def _cards(cards: Iterable[Card]) -> Table:
    rows = Table(box=None, pad_edge=False, show_header=True, header_style="dim")
    for title in ("", "GPU", "", "driver"):
        rows.add_column(title)
    for card in cards:
        some = f" {card.native + card.jit} of {card.units}" if card.runs == "partly" else ""
        rows.add_row(
            card.capability,
            escape(safe(", ".join(card.names), 60)),
            f"[{_RUN_STYLES[card.runs]}]{RUNS[card.runs]}[/]{some}",
            card.driver or "-",
        )
    return rows


def _overview(examined: Sequence[Examined]) -> None:
    rows = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("", "wheel", "CUDA", "SASS", "PTX"):
        rows.add_column(title, overflow="fold", min_width=_NAME if title == "wheel" else None)
    for one in examined:
        rows.add_row(
            f"[{STYLES[one.worst]}]{MARKS[one.worst]}[/]",
            escape(safe(one.file.removesuffix(".whl"), 90)),
            ", ".join(one.gpus.cuda) or "-",
            compact(one.gpus.sass) if one.gpus.sass else "-",
            compact(one.gpus.ptx) if one.gpus.ptx else "-",
        )
    console.print(rows)
    for one in examined:
        for problem in failures(one.of("error")):
            console.print(f"[bold red]no[/] {escape(safe(f'{one.file}: {problem}', 500))}")


def junit(path: Path, examined: Sequence[Examined]) -> None:
    """The report for CI: a suite a wheel, a case a finding; ``StorageError`` for a full disk."""
    xml.write(path, [_suite(one) for one in examined])


def _suite(one: Examined) -> Suite:
    found = tuple(cases(one.findings, f"audit.{one.name or one.file}"))
    return Suite(
        name=one.file, cases=found, properties={"sha256": one.sha256, **held_against([one])}
    )
