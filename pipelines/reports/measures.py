"""Arranges figures into charts: one for each quantity and unit, grouped by subject."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from markupsafe import Markup

from pipelines.reports import charts
from pipelines.reports.views import Figure, Group

_DIGITS = re.compile(r"(\d+)")
_COLOURS = 5
_TOGETHER = 6  # bars of a subject that are not cut
_ERRORS = 10  # only the largest are shown
_OWN = "this package"
#: Chart titles by group.
_OVER = ("over_", "against_")
_TITLES: dict[Group, str] = {
    "speed": "Speed",
    "ratio": "Speed against other implementations",
    "memory": "GPU memory",
    "accuracy": "Error relative to the tolerance",
}
_BETTER = {"lower": ", lower is better", "higher": ", higher is better", "neither": ""}
_RELATIVE = ("x", "of tolerance")


@dataclass(frozen=True, slots=True)
class Row:
    """A bar: its series, value and position on the scale."""

    series: str
    value: float
    factor: float | None
    """Relative to the package's own."""
    many: int
    """Number of measurements; the value is their median."""
    bar: Markup
    swatch: Markup


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars of one unit, grouped by subject."""

    caption: str
    unit: str
    subjects: tuple[tuple[str, tuple[Row, ...]], ...]
    legend: tuple[tuple[str, Markup], ...]
    """Series with their colours; empty if there is only one."""
    factors: bool
    more: int
    """Bars that are not shown."""


def figure_charts(figures: Iterable[Figure], most: int) -> list[Chart]:
    """The charts of ``figures``, with some ``most`` bars each."""
    rows = list(figures)
    # A factor shown in a chart of times needs no separate chart.
    paired = {(f.shape, f.rival) for f in rows if f.rival}
    figures = [f for f in rows if (f.subject, _ratio_rival(f)) not in paired]
    units: dict[tuple[Group, str], list[Figure]] = {}
    for group in _TITLES:
        for figure in figures:
            if figure.group == group:
                units.setdefault((group, figure.unit), []).append(figure)
    return [_chart(group, unit, own, most) for (group, unit), own in units.items()]


def _ratio_rival(figure: Figure) -> str | None:
    """The rival of a ratio: math of ``over_math``."""
    names = (figure.series.removeprefix(p) for p in _OVER if figure.series.startswith(p))
    return next(names, None) if figure.group == "ratio" else None


def _chart(group: Group, unit: str, figures: list[Figure], most: int) -> Chart:
    subjects = _subjects(figures)
    total = sum(map(len, subjects.values()))
    if group == "accuracy":  # the largest errors matter
        largest = sorted(subjects, key=lambda subject: -max(row[1] for row in subjects[subject]))
        subjects = {subject: subjects[subject] for subject in largest}
        most = min(most, _ERRORS)
    shown: dict[str, list[_Bar]] = {}
    left = most
    for subject, bars in subjects.items():
        if left > 0:
            # Keep a group together.
            shown[subject] = bars[: max(left, _TOGETHER)]
            left -= len(shown[subject])
    names = list(dict.fromkeys(bar[0] for bars in shown.values() for bar in bars))
    names.sort(key=lambda name: (name != _OWN, name))
    # Each subject with several bars has its own scale.
    apart = group == "speed" and len(names) > 1
    top = max((abs(bar[1]) for bars in shown.values() for bar in bars), default=0.0)
    made = tuple(
        (
            subject,
            _chart_rows(bars, names, unit, max(abs(bar[1]) for bar in bars) if apart else top),
        )
        for subject, bars in shown.items()
    )
    factors = any(row.factor is not None for _, rows in made for row in rows)
    legend = [(name, charts.swatch(_colour(names, name))) for name in names]
    return Chart(
        _chart_caption(group, unit, figures, apart=apart, factors=factors),
        unit,
        made,
        tuple(legend) if 1 < len(legend) <= _COLOURS else (),
        factors,
        total - sum(len(rows) for _, rows in made),
    )


def _chart_caption(
    group: Group, unit: str, figures: Sequence[Figure], *, apart: bool, factors: bool
) -> str:
    better = {figure.better for figure in figures}
    caption = _TITLES[group]
    if unit not in _RELATIVE:
        caption += f" in {unit}" if unit else ""
    caption += _BETTER[better.pop()] if len(better) == 1 and group != "accuracy" else ""
    if apart:
        caption += "; each group has its own scale from 0"
    if factors:
        caption += "; the factor is the other's time divided by this package's"
    return caption + ("; the line marks 1" if unit in _RELATIVE else "")


#: Series, value, factor, measurements.
_Bar = tuple[str, float, float | None, int]


def _subjects(figures: list[Figure]) -> dict[str, list[_Bar]]:
    """Bars by subject, sorted by size; the median of several measurements."""
    groups: dict[str, dict[str, list[Figure]]] = {}
    for figure in figures:
        series = figure.rival or (_OWN if figure.shape and figure.unit == "ms" else figure.series)
        groups.setdefault(figure.shape or figure.subject, {}).setdefault(series, []).append(figure)
    made = {}
    for subject in sorted(groups, key=_natural):
        bars: list[_Bar] = []
        for series, own in groups[subject].items():
            factors = [f.factor for f in own if f.factor is not None]
            value = median(f.value for f in own)
            bars.append((series, value, median(factors) if factors else None, len(own)))
        made[subject] = sorted(bars, key=lambda bar: (bar[0] != _OWN, bar[2] or 0.0, bar[0]))
    return made


def _chart_rows(bars: list[_Bar], names: list[str], unit: str, top: float) -> tuple[Row, ...]:
    relative = unit in _RELATIVE
    scale = max(top, 1.0) if relative else top
    mark = 1 / scale if relative else None
    made = []
    for series, value, factor, many in bars:
        colour = _colour(names, series)
        drawn = charts.bar(abs(value) / scale if scale else 0.0, colour, mark)
        made.append(Row(series, value, factor, many, drawn, charts.swatch(colour)))
    return tuple(made)


def _colour(names: list[str], series: str) -> str:
    return f"series{names.index(series) % _COLOURS}"


def _natural(text: str) -> list[tuple[int, str]]:
    """``hdim64`` before ``hdim128``."""
    return [(len(part) if part.isdigit() else 0, part) for part in _DIGITS.split(text)]
