"""The compile timeline of a build: valid recorded units, arranged in lanes."""

from __future__ import annotations

import math

from pipelines.core.hosttext import line
from pipelines.record import results as record
from pipelines.reports.views import Timeline, Unit

_UNITS = 4000
_SAMPLES = 20_000
_LANES = 64
_LONGEST = 1e7  # seconds
_BYTES = 1e15
_CORES = 100_000
_EXACT = 0.05  # seconds; clocks of a host's log are not finer


def read_timeline(recorded: record.Timeline) -> Timeline | None:
    """The timeline of a build, or ``None`` if it is empty.

    Whatever makes no sense in it (times that run backwards, no numbers) is left out and counted.
    """
    units, samples = _units(recorded.units), _samples(recorded.samples)
    if not units and not samples:
        return None
    placed, lanes = _lay_out(units)
    return Timeline(
        units=tuple(placed),
        samples=tuple(samples),
        cpus=recorded.cpus if 0 <= recorded.cpus <= _CORES else 0,
        memory=_bytes(recorded.memory),
        lanes=lanes,
        left_out=len(recorded.units) - len(placed),
    )


def _units(recorded: tuple[tuple[str, float, float], ...]) -> list[tuple[str, float, float]]:
    """Name, start and end of the units, by start."""
    made = [
        (line(name, 160), start, end)
        for name, start, end in recorded
        if 0 <= start <= end <= _LONGEST
    ]
    if len(made) > _UNITS:  # the short ones matter least
        made = sorted(made, key=lambda unit: unit[1] - unit[2])[:_UNITS]
    return sorted(made, key=lambda unit: (unit[1], unit[2], unit[0]))


def _samples(recorded: tuple[tuple[float, float, float], ...]) -> list[tuple[float, float, float]]:
    return sorted(
        (at, min(busy, 1.0), _bytes(used))
        for at, busy, used in recorded[:_SAMPLES]
        if 0 <= at <= _LONGEST and 0 <= busy < math.inf
    )


def _bytes(value: float) -> float:
    """``value`` if it is a plausible number of bytes, else 0."""
    return value if 0 <= value <= _BYTES else 0.0


def _lay_out(units: list[tuple[str, float, float]]) -> tuple[list[Unit], int]:
    """Assign every unit to the first free lane: as many lanes as concurrent jobs.

    Units for which there is no lane any more are not among them.
    """
    ends: list[float] = []
    placed = []
    for name, start, end in units:
        lane = next((n for n, free in enumerate(ends) if free <= start + _EXACT), len(ends))
        if lane == len(ends):
            if lane == _LANES:
                continue
            ends.append(end)
        ends[lane] = end
        placed.append(Unit(name, start, end, lane))
    return placed, len(ends)
