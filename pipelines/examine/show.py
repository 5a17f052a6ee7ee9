"""What was found in wheels, for people at a terminal, for programs and for CI."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from pipelines import units
from pipelines.console import console, say, units_progress
from pipelines.examine.findings import (
    LEVELS,
    SCHEMA,
    WORDS,
    Card,
    Examined,
    Finding,
    Level,
    held_against,
)
from pipelines.examine.listing import Listing
from pipelines.hosttext import safe
from pipelines.reports import junit as xml
from pipelines.reports.model import Case, Outcome, Suite
from pipelines.wheels.fatbin import compact

_STYLES: dict[Level, str] = {
    "problem": "bold red",
    "mind": "yellow",
    "unknown": "dim",
    "ok": "green",
}
_MARKS: dict[Level, str] = {"problem": "no", "mind": "mind", "unknown": "--", "ok": "ok"}
#: How a card's fate is shown.
RUNS = {
    "native": "runs",
    "jit": "by JIT",
    "partly": "in part",
    "no": "no",
    "unknown": "not checked",
}
_RUN_STYLES = {"native": "green", "jit": "yellow", "partly": "red", "no": "red", "unknown": "dim"}
_OUTCOMES: dict[Level, Outcome] = {
    "problem": "failed",
    "mind": "passed",
    "unknown": "skipped",
    "ok": "passed",
}
_LONGEST = 180  # characters of a detail that is no problem
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
        "wheels": [one.model_dump(mode="json") | {"level": one.worst} for one in examined],
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
    if one.gpus.binaries and not any(each.check.startswith("GPU ") for each in one.findings):
        console.print(_cards(one.gpus.cards))
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in one.findings:
        detail = safe(finding.detail, _LONGEST if finding.level != "problem" else 4 * _LONGEST)
        table.add_row(
            f"[{_STYLES[finding.level]}]{_MARKS[finding.level]}[/]",
            escape(safe(finding.check, 80)),
            escape(safe(finding.found, 200)) + (f"\n[dim]{escape(detail)}[/dim]" if detail else ""),
        )
    console.print(table)


def _said(finding: Finding) -> str:
    return f"{finding.found}: {finding.detail}" if finding.detail else finding.found


def _cards(cards: Iterable[Card]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=True, header_style="dim")
    for title in ("", "GPU", "", "driver"):
        table.add_column(title)
    for card in cards:
        some = f" {card.native + card.jit} of {card.units}" if card.runs == "partly" else ""
        table.add_row(
            card.capability,
            escape(safe(", ".join(card.names), 60)),
            f"[{_RUN_STYLES[card.runs]}]{RUNS[card.runs]}[/]{some}",
            card.driver or "-",
        )
    return table


def _overview(examined: Sequence[Examined]) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("", "wheel", "CUDA", "SASS", "PTX"):
        table.add_column(title, overflow="fold", min_width=_NAME if title == "wheel" else None)
    for one in examined:
        table.add_row(
            f"[{_STYLES[one.worst]}]{_MARKS[one.worst]}[/]",
            escape(safe(one.file.removesuffix(".whl"), 90)),
            ", ".join(one.gpus.cuda) or "-",
            compact(one.gpus.sass) if one.gpus.sass else "-",
            compact(one.gpus.ptx) if one.gpus.ptx else "-",
        )
    console.print(table)
    for one in examined:
        for finding in one.of("problem"):
            text = escape(safe(f"{one.file}: {finding.check}: {_said(finding)}", 500))
            console.print(f"[bold red]no[/] {text}")


def junit(path: Path, examined: Sequence[Examined]) -> None:
    """The report for CI: a suite a wheel, a case a finding; ``StorageError`` for a full disk.

    A finding of level ``mind`` passes and says so in its output, one that nobody has looked at is
    skipped; it has failed where somebody asked for just that, as the command has.
    """
    xml.write(path, [_suite(one) for one in examined])


def _suite(one: Examined) -> Suite:
    cases = tuple(
        Case(
            name=finding.check,
            classname=f"audit.{one.name or one.file}",
            outcome="failed" if finding.failed else _OUTCOMES[finding.level],
            message="" if finding.level in ("ok", "mind") else _said(finding),
            stdout=f"{WORDS[finding.level]}: {_said(finding)}",
        )
        for finding in one.findings
    )
    return Suite(
        name=one.file, cases=cases, properties={"sha256": one.sha256, **held_against([one])}
    )
