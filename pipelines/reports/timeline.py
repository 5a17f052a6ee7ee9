"""The compile timeline of a build: what the record holds, checked, and laid out in lanes."""

from __future__ import annotations

from typing import Any

from pipelines.hosttext import line
from pipelines.reports.read import mapping, number
from pipelines.reports.views import Timeline, Unit

_UNITS = 4000
_SAMPLES = 20_000
_LANES = 64
_LONGEST = 1e7  # seconds
_EXACT = 0.05  # seconds; clocks of a host's log are not finer
_TRIPLE = 3


def read_timeline(value: Any) -> Timeline | None:
    """A timeline from a build's detail, or ``None`` when there is nothing in it.

    ``value`` is ``{"units": [[name, start, end]], "samples": [[t, busy, memory]], "cpus": n,
    "memory": bytes}``, times in seconds since the build's start. Whatever makes no sense in it is
    left out and counted.
    """
    told = mapping(value)
    units, left_out = _units(told.get("units"))
    samples = _samples(told.get("samples"))
    if not units and not samples:
        return None
    placed, lanes, crowded = _lay_out(units)
    return Timeline(
        units=tuple(placed),
        samples=tuple(samples),
        cpus=int(number(told.get("cpus"), 1e5) or 0),
        memory=number(told.get("memory")) or 0.0,
        lanes=lanes,
        left_out=left_out + crowded,
    )


def _triples(value: Any) -> list[Any]:
    return [
        item
        for item in (value if isinstance(value, list) else [])
        if isinstance(item, list | tuple) and len(item) == _TRIPLE
    ]


def _units(value: Any) -> tuple[list[tuple[str, float, float]], int]:
    """Name, start and end of the units, by start; and how many are not among them."""
    made = []
    for name, begin, finish in _triples(value):
        start, end = number(begin, _LONGEST), number(finish, _LONGEST)
        if start is not None and end is not None and end >= start:
            made.append((line(name, 160), start, end))
    if len(made) > _UNITS:  # the short ones tell least
        made = sorted(made, key=lambda unit: unit[1] - unit[2])[:_UNITS]
    made.sort(key=lambda unit: (unit[1], unit[2], unit[0]))
    return made, (len(value) if isinstance(value, list) else 0) - len(made)


def _samples(value: Any) -> list[tuple[float, float, float]]:
    made = []
    for when, share, memory in _triples(value)[:_SAMPLES]:
        at, busy, used = number(when, _LONGEST), number(share), number(memory)
        if at is not None and busy is not None:
            made.append((at, min(busy, 1.0), used or 0.0))
    return sorted(made)


def _lay_out(units: list[tuple[str, float, float]]) -> tuple[list[Unit], int, int]:
    """Every unit in the first lane that is free: as many lanes as there were jobs at a time."""
    ends: list[float] = []
    placed, crowded = [], 0
    for name, start, end in units:
        lane = next((n for n, free in enumerate(ends) if free <= start + _EXACT), len(ends))
        if lane == len(ends):
            if lane == _LANES:
                crowded += 1
                continue
            ends.append(end)
        ends[lane] = end
        placed.append(Unit(name, start, end, lane))
    return placed, len(ends), crowded
