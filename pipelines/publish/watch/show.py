"""What was found, for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape

from pipelines.core import units
from pipelines.core.console import console, say
from pipelines.core.finding import Finding
from pipelines.core.hosttext import safe_line, shown_url
from pipelines.core.tables import print_columns
from pipelines.plan.matrix.judge import NOT_PINNED
from pipelines.publish.watch.cells import Watched
from pipelines.publish.watch.released import Torch
from pipelines.reports.findings import findings_table

_MARKS = {
    "build": "[green]build[/green]",
    "later": "[yellow]later[/yellow]",
    "pin": "[yellow]no pin[/yellow]",
    "no": "[red]no[/red]",
}


def show(orders: Sequence[Watched], notes: Sequence[Finding]) -> None:
    """A table for each recipe, then what no cell comes of, then how many are to be built."""
    for order in orders:
        _print_watched_recipe(order)
    console.print(findings_table(notes, grouped=True))
    if hosts := {one.target.host for order in orders for one in order.cells}:
        say(f"Whether a cell can be built was judged for host {units.join_first(hosts)}.", "dim")
    now = sum(len(order.of("build")) for order in orders)
    waiting = sum(len(order.of("later")) for order in orders)
    stuck = sum(len(order.of("pin", "no")) for order in orders)
    said = f"{units.pluralize(now, 'cell')} to build"
    said += f", {waiting} more after these (--most)" if waiting else ""
    said += f", {stuck} that need attention" if stuck else ""
    style = "green" if not waiting + stuck else "yellow"
    say(said if now + waiting + stuck else "nothing to build", style)


def _print_watched_recipe(watched: Watched) -> None:
    title = " ".join(filter(None, (watched.recipe.name, watched.recipe.version)))
    untested = f", {watched.untested} of them not tested on a GPU" if watched.untested else ""
    held = units.pluralize(watched.held, "cell")
    say(f"{title}: {held} in the index{untested}, {len(watched.cells)} not", "bold")
    lines = [
        {
            "cell": escape(one.name),
            "": _MARKS[one.state],
            "time": units.format_estimate(one.seconds) if one.seconds else "?",
            "why": escape(safe_line(one.why, 200)),
        }
        for one in watched.cells
    ]
    if lines:
        print_columns(console, lines, wrap=["why"], spare=("time",))
    console.print(findings_table(_blocking_findings(watched), grouped=True))


def _blocking_findings(order: Watched) -> list[Finding]:
    """What keeps cells from being built, each once, with the cells."""
    found: dict[Finding, list[str]] = {}
    for one in order.of("pin"):
        others = [name for name in one.missing if name != "torch"]
        hint = "--pins FILE writes them, see docs/watch.md"
        if others:
            hint = f"invoke lock (if toolchain.yaml names {units.join_first(others)})"
        says = f"the lock has no pin for {units.join_first(one.missing)}"
        why = Finding(id=NOT_PINNED, level="warning", actual=says, hint=hint)
        found.setdefault(why, []).append(one.name)
    for one in order.of("no"):
        for error in one.errors[:1]:
            found.setdefault(error, []).append(one.name)
    return [
        finding.model_copy(update={"subject": units.join_first(cells, most=3)})
        for finding, cells in found.items()
    ]


def as_json(
    index: str,
    generation: int,
    out: Mapping[str, Torch],
    orders: Sequence[Watched],
    notes: Sequence[Finding],
) -> dict[str, Any]:
    """The same as plain values; times in seconds."""
    return {
        "schema": 1,
        "index": shown_url(index) if "://" in index else index,
        "generation": generation,
        "torch": {release: torch.version for release, torch in out.items()},
        "recipes": [_watched_recipe_json(order) for order in orders],
        "findings": [note.model_dump(mode="json") for note in notes],
    }


def _watched_recipe_json(watched: Watched) -> dict[str, Any]:
    return {
        "recipe": watched.recipe.name,
        "version": watched.recipe.version,
        "held": watched.held,
        "untested": watched.untested,
        "cells": [
            {
                "cell": one.name,
                "state": one.state,
                "why": one.why,
                "missing": list(one.missing),
                "errors": [error.model_dump(mode="json") for error in one.errors],
                "seconds": one.seconds,
            }
            for one in watched.cells
        ],
    }
