"""Verdicts as people and programs read them."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pipelines.core.called import as_typed
from pipelines.core.github import inert
from pipelines.core.hosttext import safe
from pipelines.doctor.model import Level, Purpose, Verdict, worst

SCHEMA = 1
_MARKS: dict[Level, str] = {"ok": "✓", "warning": "!", "error": "✗", "unknown": "?"}
STYLES: dict[Level, str] = {"ok": "green", "warning": "yellow", "error": "red", "unknown": "dim"}
_NAME = 24  # characters of the widest name that is not wrapped
_INDENT = 3  # of marks and of what hangs below a verdict
_DEEP, _MANY, _LONG, _BITS = 8, 200, 2000, 64  # what is kept of a host's facts
_VALUES = 5000  # of them in all


def _row(verdict: Verdict, width: int) -> Table:
    """One verdict: mark, name, what was found and, unless all is well, what was wanted."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=1)
    grid.add_column(width=width)
    grid.add_column()
    found = Text(inert(verdict.found))
    if verdict.wanted and verdict.level != "ok":
        found.append(f" (wanted: {verdict.wanted})", style="dim")
    style = STYLES[verdict.level]
    dim = "dim" if verdict.level == "unknown" else ""
    grid.add_row(Text(_MARKS[verdict.level], style=style), Text(verdict.name, style=dim), found)
    return grid


def _below(verdict: Verdict) -> list[RenderableType]:
    """The hint of a verdict that is not ok, and what the verdict rests on."""
    if verdict.level == "ok":
        return []
    lines: list[RenderableType] = []
    if verdict.hint:
        grid = Table.grid(padding=(0, 1, 0, 0))
        grid.add_column(width=_INDENT - 1)
        grid.add_column(width=1)
        grid.add_column()
        hint = verdict.hint + (":" if verdict.command else "")
        grid.add_row("", Text("→", style="yellow"), Text(as_typed(hint)))
        lines.append(grid)
    # What is copied, a command or an address, is one line: the terminal may wrap it, we may not.
    lines += [
        Text(f"{'':{_INDENT + 2}}{text}", style=style, no_wrap=True, overflow="ignore")
        for text, style in ((verdict.command, ""), (verdict.source, "dim"))
        if text
    ]
    return lines


def table(verdicts: Sequence[Verdict], purpose: Purpose | None = None) -> Group:
    """The verdicts by area, in the order in which the areas come; hints under their rows.

    To be printed with ``soft_wrap=False, crop=False``: rows are wrapped to the console's width
    between words, commands and addresses stay whole.
    """
    width = min(_NAME, max((len(verdict.name) for verdict in verdicts), default=0))
    rows: list[RenderableType] = []
    if purpose is not None:
        target = purpose.target
        python = target.python.replace(".", "")
        what = f"{target.recipe} for cp{python}, CUDA {target.cuda}, {target.archs}"
        rows.append(Text(f"Doctor {target.host}: {what}", style="bold"))
    for area in dict.fromkeys(verdict.area for verdict in verdicts):
        rows.append(Text(area, style="bold"))
        for verdict in verdicts:
            if verdict.area == area:
                rows += [_row(verdict, width), *_below(verdict)]
    return Group(*rows)


def count(verdicts: Iterable[Verdict]) -> dict[str, int]:
    """How many there are of each level."""
    counted = Counter(verdict.level for verdict in verdicts)
    return {level: counted[level] for level in _MARKS}


def summary(verdicts: Sequence[Verdict]) -> str:
    """One line: ``12 ok, 2 warnings, 1 error``, and ``3 not known`` where something is not."""
    counted = count(verdicts)
    parts = [f"{counted['ok']} ok"]
    for word in ("warning", "error"):
        number = counted[word]
        parts.append(f"{number} {word}{'' if number == 1 else 's'}")
    if counted["unknown"]:
        parts.append(f"{counted['unknown']} not known")
    return ", ".join(parts)


class _Bounded:
    """Copies of values that are harmless, and without what is too deep, too many or no JSON."""

    def __init__(self) -> None:
        self.left = _VALUES

    def __call__(self, value: object, depth: int = 0) -> object:
        self.left -= 1
        match value:
            case _ if depth > _DEEP or self.left < 0:
                kept: object = "..."
            case str():
                kept = safe(value[: _LONG * 4], _LONG)
            case None | bool():
                kept = value
            case int():
                kept = value if value.bit_length() < _BITS else "..."
            case float():
                kept = value if math.isfinite(value) else None
            case Mapping():
                kept = self._pairs(value, depth)
            case list() | tuple():
                kept = [self(item, depth + 1) for item in value[: min(_MANY, max(self.left, 0))]]
            case _:
                kept = f"({type(value).__name__})"
        return kept

    def _pairs(self, value: Mapping[object, object], depth: int) -> dict[str, object]:
        kept: dict[str, object] = {}
        for key, item in list(value.items())[:_MANY]:
            if self.left <= 0:
                break
            name = key if isinstance(key, str) else repr(key)
            kept[safe(name[:400], 100)] = self(item, depth + 1)
        return kept


def _order(purpose: Purpose) -> dict[str, object]:
    """What was asked, flat."""
    told = {field.name: getattr(purpose, field.name) for field in dataclasses.fields(purpose)}
    del told["target"], told["settings"], told["refused"]
    axes = purpose.target.values()
    return {**axes, "torch": axes["torch"] or None, **told}


def as_json(
    verdicts: Sequence[Verdict], facts: Mapping[str, object], purpose: Purpose | None = None
) -> str:
    """One JSON object, ASCII only, two blanks of indentation; keys do not change within a schema.

    - ``schema``: 1
    - ``host``: the host's name, or null when only this machine was looked at
    - ``order``: what the host was judged for, the axes of its target (``torch`` is null when none
      is needed) and the fields of :class:`.model.Purpose`, or null; not its ``settings``, and not
      what is ``refused``, which the verdicts tell
    - ``level``: the worst level: error, warning, unknown or ok
    - ``summary``: ``{"ok", "warning", "error", "unknown"}``, each a count
    - ``verdicts``: in the order of the table, each ``{"area", "name", "level", "found", "wanted",
      "hint", "command", "source"}``, all text; the last four may be empty, but ``hint`` never is
      where the level is warning or error. ``command`` is to be typed on the host
    - ``facts``: ``{"controller", "host"}``, what the verdicts rest on, as
      ``pipelines/remote/inspection`` and ``remote/provision.py`` (``resources``) describe it,
      shortened where it was too long
    """
    bounded = _Bounded()
    told = {
        "schema": SCHEMA,
        "host": purpose.target.host if purpose else None,
        "order": _order(purpose) if purpose else None,
        "level": worst(verdicts),
        "summary": count(verdicts),
        "verdicts": [dataclasses.asdict(verdict) for verdict in verdicts],
        "facts": {key: bounded(facts.get(key)) for key in ("controller", "host")},
    }
    return json.dumps(told, indent=2, allow_nan=False)
