"""Verdicts as people and programs read them."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pipelines.console import safe
from pipelines.doctor.model import Level, Verdict

SCHEMA = 1
_MARKS: dict[Level, tuple[str, str]] = {
    "ok": ("ok", "green"),
    "warning": ("!", "yellow"),
    "error": ("x", "bold red"),
    "unknown": ("?", "dim"),
}
_NAME = 30  # characters of the widest name that is not wrapped
_DEEP, _MANY, _LONG, _BITS = 8, 200, 2000, 64  # what is kept of a host's facts


def _line(text: str) -> str:
    return " ".join(safe(text, 400).split())


def _row(verdict: Verdict, width: int) -> Table:
    """One verdict: mark, name, what was found and, unless all is well, what was wanted."""
    mark, style = _MARKS[verdict.level]
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=2)
    grid.add_column(width=width, overflow="fold")
    grid.add_column(overflow="fold")
    dim = "dim" if verdict.level == "unknown" else ""
    found = Text(_line(verdict.found), style=dim)
    if verdict.wanted and verdict.level != "ok":
        found.append(f"  (wanted: {_line(verdict.wanted)})", style="dim")
    grid.add_row(Text(mark, style=style), Text(_line(verdict.name), style=dim), found)
    return grid


def table(verdicts: Sequence[Verdict]) -> Group:
    """The verdicts by area, in the order in which the areas come; cures under their rows."""
    width = min(_NAME, max((len(verdict.name) for verdict in verdicts), default=0))
    rows: list[RenderableType] = []
    for area in dict.fromkeys(verdict.area for verdict in verdicts):
        rows.append(Text(_line(area), style="bold"))
        for verdict in verdicts:
            if verdict.area != area:
                continue
            rows.append(_row(verdict, width))
            if verdict.cure:
                # A command is copied: the terminal may wrap it, we may not.
                cure = Text(f"    → {_line(verdict.cure)}", no_wrap=True, overflow="ignore")
                cure.stylize("yellow", 4, 5)
                rows.append(cure)
    return Group(*rows)


def count(verdicts: Iterable[Verdict]) -> dict[str, int]:
    """How many there are of each level."""
    counted = Counter(verdict.level for verdict in verdicts)
    return {level: counted[level] for level in _MARKS}


def summary(verdicts: Sequence[Verdict]) -> str:
    """One line: ``12 ok, 2 warnings, 1 error, 3 not known``."""
    counted = count(verdicts)
    warnings, errors = counted["warning"], counted["error"]
    return ", ".join(
        [
            f"{counted['ok']} ok",
            f"{warnings} warning{'' if warnings == 1 else 's'}",
            f"{errors} error{'' if errors == 1 else 's'}",
            f"{counted['unknown']} not known",
        ]
    )


def bounded(value: Any, depth: int = 0) -> Any:
    """``value`` with harmless texts and without what is too deep, too many or no JSON."""
    match value:
        case _ if depth > _DEEP:
            kept: Any = "..."
        case str():
            kept = safe(value[: _LONG * 4], _LONG)
        case None | bool():
            kept = value
        case int():
            kept = value if value.bit_length() < _BITS else "..."
        case float():
            kept = value if math.isfinite(value) else None
        case Mapping():
            pairs = list(value.items())[:_MANY]
            kept = {safe(str(key)[:400], 100): bounded(item, depth + 1) for key, item in pairs}
        case list() | tuple():
            kept = [bounded(item, depth + 1) for item in value[:_MANY]]
        case _:
            kept = safe(repr(value)[:_LONG], 200)
    return kept


def as_json(verdicts: Sequence[Verdict], facts: Mapping[str, Any]) -> str:
    """One JSON object, ASCII only, two blanks of indentation; keys do not change within a schema.

    - ``schema``: 1
    - ``host``: the host's name, or null when only this machine was looked at
    - ``summary``: ``{"ok", "warning", "error", "unknown"}``, each a count
    - ``verdicts``: in the order of the table, each ``{"area", "name", "level", "found", "wanted",
      "cure"}``, all text; ``level`` is ok, warning, error or unknown; ``wanted`` and ``cure`` may
      be empty, a cure never is where the level is warning or error
    - ``facts``: ``{"controller", "host"}``, what the verdicts rest on, as
      ``pipelines/remote/inspection`` describes it, shortened where it was too long
    """
    told = {
        "schema": SCHEMA,
        "host": bounded(facts.get("name")),
        "summary": count(verdicts),
        "verdicts": [
            {
                "area": verdict.area,
                "name": verdict.name,
                "level": verdict.level,
                "found": _line(verdict.found),
                "wanted": _line(verdict.wanted),
                "cure": _line(verdict.cure),
            }
            for verdict in verdicts
        ],
        "facts": {key: bounded(facts.get(key)) for key in ("controller", "host")},
    }
    return json.dumps(told, indent=2, allow_nan=False)
