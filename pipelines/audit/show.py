"""Audit results for the terminal, as JSON and as JUnit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from pipelines.audit.findings import SCHEMA, Card, WheelReport, references_of
from pipelines.audit.listing import Listing
from pipelines.core import units
from pipelines.core.console import console, say, units_progress
from pipelines.core.finding import LEVELS, failure_lines
from pipelines.core.hosttext import safe_text
from pipelines.reports import junit as xml
from pipelines.reports.findings import MARKS, STYLES, finding_cases, findings_table
from pipelines.reports.model import Suite
from pipelines.wheels.fatbin import format_archs

#: How a card's result is shown.
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
def progress(total: int) -> Iterator[Callable[[WheelReport], object]]:
    """A progress bar for many wheels: call it with each finished report."""
    with units_progress() as bar:
        task = bar.add_task("audit", total=total, left="", unit="", visible=total >= _MANY)
        yield lambda wheel: bar.update(task, advance=1, unit=safe_text(wheel.file, 60))


def print_listing(listing: Listing) -> None:
    """Show what is used of an index page and what is left out, before anything is fetched."""
    size = f"; {units.format_size(listing.size)} to download" if listing.size else ""
    say(f"{listing.summary}{size}", style="dim" if listing.complete else "yellow")


def json_payload(
    examined: Sequence[WheelReport], listings: Sequence[Listing] = ()
) -> dict[str, Any]:
    """What ``--json`` prints."""
    return {
        "schema": SCHEMA,
        "listings": [
            listing.model_dump(mode="json") | {"whole": listing.complete} for listing in listings
        ],
        "wheels": [wheel.model_dump(mode="json") | {"level": wheel.worst} for wheel in examined],
    }


def show(examined: Sequence[WheelReport]) -> None:
    """Show a few wheels in full; many as a table with their problems."""
    if len(examined) >= _MANY:
        _overview(examined)
    else:
        for wheel in examined:
            _print_wheel_report(wheel)
    for against, which in references_of(examined).items():
        if against.startswith("torch "):
            say(f"{safe_text(against, 160)}: {which}", style="dim")
    if len(examined) > 1:
        say(_tally(examined), style="bold")


def _tally(examined: Sequence[WheelReport]) -> str:
    counts = {level: sum(wheel.worst == level for wheel in examined) for level in LEVELS}
    parts = [f"{count} {level}" for level, count in counts.items() if count]
    return f"{units.pluralize(len(examined), 'wheel')}: {', '.join(parts)}"


def _print_wheel_report(wheel: WheelReport) -> None:
    console.print(f"[bold]{escape(safe_text(wheel.file))}[/bold]")
    if wheel.sha256:
        say(f"{units.format_size(wheel.size)}, sha256 {wheel.sha256}", style="dim")
    if wheel.gpus.binaries and not any(each.id == "gpu" for each in wheel.findings):
        console.print(_cards(wheel.gpus.cards))
    console.print(findings_table(wheel.findings))


def _cards(cards: Iterable[Card]) -> Table:
    rows = Table(box=None, pad_edge=False, show_header=True, header_style="dim")
    for title in ("", "GPU", "", "driver"):
        rows.add_column(title)
    for card in cards:
        some = f" {card.native + card.jit} of {card.units}" if card.runs == "partly" else ""
        rows.add_row(
            card.capability,
            escape(safe_text(", ".join(card.names), 60)),
            f"[{_RUN_STYLES[card.runs]}]{RUNS[card.runs]}[/]{some}",
            card.driver or "-",
        )
    return rows


def _overview(examined: Sequence[WheelReport]) -> None:
    rows = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("", "wheel", "CUDA", "SASS", "PTX"):
        rows.add_column(title, overflow="fold", min_width=_NAME if title == "wheel" else None)
    for wheel in examined:
        none = "?" if wheel.partial or not wheel.gpus.cards else "-"
        rows.add_row(
            f"[{STYLES[wheel.worst]}]{MARKS[wheel.worst]}[/]",
            escape(safe_text(wheel.file.removesuffix(".whl"), 90)),
            ", ".join(wheel.gpus.cuda) or none,
            format_archs(wheel.gpus.sass) if wheel.gpus.sass else none,
            format_archs(wheel.gpus.ptx) if wheel.gpus.ptx else none,
        )
    console.print(rows)
    for wheel in examined:
        for problem in failure_lines(wheel.of("error")):
            console.print(f"[bold red]✗[/] {escape(safe_text(f'{wheel.file}: {problem}', 500))}")


def write_audit_junit(path: Path, examined: Sequence[WheelReport]) -> None:
    """The report for CI, a suite for each wheel and a case for each finding."""
    xml.write_junit_file(path, [_wheel_suite(wheel) for wheel in examined])


def _wheel_suite(wheel: WheelReport) -> Suite:
    results = tuple(finding_cases(wheel.findings, f"audit.{wheel.name or wheel.file}"))
    return Suite(
        name=wheel.file,
        cases=results,
        properties={"sha256": wheel.sha256, **references_of([wheel])},
    )
