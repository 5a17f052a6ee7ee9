"""What was found, for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape

from pipelines.core import units
from pipelines.core.console import console, say
from pipelines.core.hosttext import line, shown_url
from pipelines.core.tables import print_columns
from pipelines.publish.watch.orders import Order
from pipelines.publish.watch.released import Note, Torch

_MARKS = {
    "build": "[green]build[/green]",
    "later": "[yellow]later[/yellow]",
    "pin": "[yellow]no pin[/yellow]",
    "no": "[red]no[/red]",
}


def show(orders: Sequence[Order], notes: Sequence[Note]) -> None:
    """A table for each recipe, then what no cell comes of, then how many are to be built."""
    for order in orders:
        _print(order)
    for note in notes:
        say(f"{line(note.says, 400)}")
        if note.hint:
            say(f"    -> {line(note.hint, 300)}", "dim")
    if hosts := {one.target.host for order in orders for one in order.cells}:
        say(f"What can be built is judged by the tools of host {units.few(hosts)}.", "dim")
    now = sum(len(order.of("build")) for order in orders)
    waiting = sum(len(order.of("later")) for order in orders)
    stuck = sum(len(order.of("pin", "no")) for order in orders)
    said = f"{units.counted(now, 'cell')} to build"
    said += f", {waiting} more after these (--most)" if waiting else ""
    said += f", {stuck} that somebody has to see to" if stuck else ""
    style = "green" if not waiting + stuck else "yellow"
    say(said if now + waiting + stuck else "nothing is to be built", style)


def _print(order: Order) -> None:
    watched = order.watched
    title = " ".join(filter(None, (watched.recipe.name, watched.recipe.version)))
    untested = f", {watched.untested} of them without a test on a GPU" if watched.untested else ""
    held = units.counted(watched.held, "cell")
    say(f"{title}: {held} in the index{untested}, {len(order.cells)} not", "bold")
    lines = [
        {
            "cell": escape(one.wanted.name),
            "": _MARKS[one.state],
            "time": units.estimate(one.seconds) if one.seconds else "?",
            "why": escape(line(one.wanted.why, 200)),
        }
        for one in order.cells
    ]
    if lines:
        print_columns(console, lines, wrap=["why"], spare=("time",))
    for says, cells in _grouped(order).items():
        say(f"{cells}: {says}", "yellow")


def _grouped(order: Order) -> Mapping[str, str]:
    """What keeps cells from being built, each reason once, with the cells."""
    found: dict[str, list[str]] = {}
    for one in order.of("pin"):
        others = [name for name in one.lacks if name != "torch"]
        what = f"type: invoke lock (if toolchain.yaml names {units.few(others)})"
        what = what if others else "--pins FILE writes it, see docs/watch.md"
        says = f"the lock has no pin of {units.few(one.lacks)}\n    -> {what}"
        found.setdefault(says, []).append(one.wanted.name)
    for one in order.of("no"):
        for error in one.errors[:1]:
            says = f"{error.rule}: {line(error.says, 300)}"
            says += f"\n    -> {line(error.hint, 300)}" if error.hint else ""
            found.setdefault(says, []).append(one.wanted.name)
    return {says: units.few(cells, most=3) for says, cells in found.items()}


def as_json(
    index: str,
    generation: int,
    out: Mapping[str, Torch],
    orders: Sequence[Order],
    notes: Sequence[Note],
) -> dict[str, Any]:
    """The same as plain values; times in seconds."""
    return {
        "schema": 1,
        "index": shown_url(index) if "://" in index else index,
        "generation": generation,
        "torch": {release: torch.version for release, torch in out.items()},
        "recipes": [_recipe(order) for order in orders],
        "notes": [note._asdict() for note in notes],
    }


def _recipe(order: Order) -> dict[str, Any]:
    watched = order.watched
    return {
        "recipe": watched.recipe.name,
        "version": watched.recipe.version,
        "held": watched.held,
        "untested": watched.untested,
        "cells": [
            {
                "cell": one.wanted.name,
                "state": one.state,
                "why": one.wanted.why,
                "lacks": list(one.lacks),
                "errors": [{"rule": e.rule, "says": e.says, "hint": e.hint} for e in one.errors],
                "seconds": one.seconds,
            }
            for one in order.cells
        ],
    }
