"""Charts as inline SVG: pure functions from a view to markup, without script or inline style.

Colours come from the classes of the style sheet, so that they follow the theme and the printer.
A chart has a title and a description; the numbers are in a table next to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from pipelines.core import units
from pipelines.reports.views import StageView, Timeline, Unit

_LEFT, _WIDTH, _RIGHT = 62.0, 640.0, 10.0
_LANE, _GAP = 13.0, 2.0
_PANEL, _SPACE, _AXIS = 64.0, 24.0, 20.0
_TICKS = 6
_STAGES = 7  # colours
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)


def timeline(view: Timeline, ident: str, *, most: int = 4000, points: int = 240) -> Markup:
    """A lane of units for each job, then busy cores and memory over time.

    The slowest units carry their rank; of more than ``most`` units the longest are drawn, of
    more than ``points`` samples the means of as many spans.
    """
    span = max(view.end, 1.0)
    lanes_high = view.lanes * (_LANE + _GAP)
    parts: list[Markup] = []
    top = 16.0
    if view.units:
        parts += [_caption_element(top - 5, f"{view.lanes} jobs"), _lanes(view, span, top, most)]
        top += lanes_high + _SPACE
    if view.samples:
        parts += [
            _panel(_thinned([(s[0], s[1]) for s in view.samples], points), span, 1.0, top, "cpu"),
            _caption_element(
                top - 5, f"busy cores on the host{f', of {view.cpus}' * bool(view.cpus)}"
            ),
            _scale(top, "100 %"),
        ]
        top += _PANEL + _SPACE
        if most_used := max(view.memory, view.peak):
            parts += [
                _panel(
                    _thinned([(s[0], s[2]) for s in view.samples], points),
                    span,
                    most_used,
                    top,
                    "memory",
                ),
                _caption_element(top - 5, "memory used"),
                _scale(top, units.format_size(most_used)),
            ]
            top += _PANEL + _SPACE
    bottom = top - _SPACE + 4
    parts.append(_axis(span, bottom))
    total = _LEFT + _WIDTH + _RIGHT
    return Markup(
        '<svg class="timeline" role="img" aria-labelledby="{0}-t {0}-d" viewBox="0 0 {1} {2}">'
        '<title id="{0}-t">Compile timeline</title><desc id="{0}-d">{3}</desc>{4}</svg>'
    ).format(ident, px(total), px(bottom + _AXIS), _description(view, span), Markup("").join(parts))


def _description(view: Timeline, span: float) -> str:
    parts = [f"{units.pluralize(len(view.units), 'unit')} in {units.pluralize(view.lanes, 'lane')}"]
    parts.append(f"over {units.format_seconds(span)}")
    if view.busy is not None:
        parts.append(f"host cores {units.format_percent(view.busy)} busy on average")
    if view.slowest:
        worst = view.slowest[0]
        parts.append(f"slowest unit {worst.name}, {units.format_seconds(worst.seconds)}")
    return ", ".join(parts) + ". The table below has the slowest units."


def _lanes(view: Timeline, span: float, top: float, most: int) -> Markup:
    """Units as one path; the slowest as rectangles with their rank and name.

    At most a quarter stands out by its colour: where all are slow, none is.
    """
    ranks = {id(unit): rank for rank, unit in enumerate(view.slowest, 1)}
    drawn = sorted(view.units, key=lambda unit: -unit.seconds)[:most]
    path, marked = [], []
    for unit in drawn:
        x, y, width = _box(unit, span, top)
        if (rank := ranks.get(id(unit))) is None:
            path.append(f"M{px(x)} {px(y)}h{px(width)}v{px(_LANE)}h-{px(width)}z")
            continue
        marked.append(
            Markup(
                '<g><title>{}: {}, {}</title><rect class="{}" x="{}" y="{}" width="{}" '
                'height="{}"/>{}</g>'
            ).format(
                rank,
                unit.name,
                units.format_seconds(unit.seconds),
                "slow" if rank <= -(-len(drawn) // 4) else "unit",
                px(x),
                px(y),
                px(width),
                px(_LANE),
                _rank_label(rank, x, y, width),
            )
        )
    base = Markup('<path class="unit" d="{}"/>').format("".join(path)) if path else Markup("")
    return base + Markup("").join(marked)


def _rank_label(rank: int, x: float, y: float, width: float) -> Markup:
    if width < 14:  # noqa: PLR2004 - too narrow for two digits
        return Markup("")
    return Markup('<text class="rank" x="{}" y="{}">{}</text>').format(
        px(x + 4), px(y + _LANE - 3), rank
    )


def _box(unit: Unit, span: float, top: float) -> tuple[float, float, float]:
    """Left, top and width of a unit, with a gap between neighbours."""
    x = _LEFT + unit.start / span * _WIDTH
    width = max(unit.seconds / span * _WIDTH - 0.6, 0.6)
    return x, top + unit.lane * (_LANE + _GAP), width


def _thinned(
    samples: Sequence[tuple[float, float]], points: int
) -> list[Sequence[tuple[float, float]]]:
    """The samples in at most ``points`` groups of neighbours."""
    size = max(1, -(-len(samples) // max(points, 1)))
    return [samples[n : n + size] for n in range(0, len(samples), size)]


def _panel(
    parts: Sequence[Sequence[tuple[float, float]]], span: float, most: float, top: float, name: str
) -> Markup:
    """An area chart over time of the mean of each group of samples."""
    xy = [
        (
            _LEFT + min(sum(p[0] for p in part) / len(part) / span, 1.0) * _WIDTH,
            top + _PANEL * (1 - min(sum(p[1] for p in part) / len(part) / most, 1.0)),
        )
        for part in parts
    ]
    floor = top + _PANEL
    return Markup(
        '<path class="frame" d="M{l} {t}H{r}M{l} {b}H{r}"/>'
        '<path class="area {c}" d="M{x0} {b}L{line}V{b}"/>'
    ).format(
        l=px(_LEFT),
        r=px(_LEFT + _WIDTH),
        t=px(top),
        b=px(floor),
        c=name,
        x0=px(xy[0][0]),
        line=" ".join(f"{px(x)} {px(y)}" for x, y in xy),
    )


def _caption_element(y: float, text: str) -> Markup:
    return Markup('<text class="caption" x="{}" y="{}">{}</text>').format(px(_LEFT), px(y), text)


def _scale(top: float, most: str) -> Markup:
    return Markup(
        '<text class="scale" x="{x}" y="{t}">{m}</text><text class="scale" x="{x}" y="{b}">0</text>'
    ).format(x=px(_LEFT - 6), t=px(top + 9), b=px(top + _PANEL), m=most)


def _axis(span: float, y: float) -> Markup:
    """Ticks with their times below a chart of ``span`` seconds, whose floor is at ``y``."""
    step = next((s for s in _STEPS if span / s <= _TICKS), span / _TICKS)
    ticks = [n * step for n in range(int(span / step) + 1)]
    return Markup("").join(
        Markup(
            '<path class="frame" d="M{x} {a}V{b}"/><text class="tick" x="{x}" y="{c}">{t}</text>'
        ).format(
            x=px(_LEFT + tick / span * _WIDTH),
            a=px(y - 4),
            b=px(y),
            c=px(y + 13),
            t=units.format_seconds(tick) if tick else "0",
        )
        for tick in ticks
    )


def bar(share: float, kind: str = "plain", mark: float | None = None) -> Markup:
    """A bar for a table cell; ``share`` and ``mark`` are 0 to 1."""
    tick = Markup("")
    if mark is not None and 0 <= mark <= 1:
        tick = Markup('<path class="mark" d="M{x} 0V10"/>').format(x=px(mark * 100))
    return Markup(
        '<svg class="bar" aria-hidden="true" viewBox="0 0 100 10" preserveAspectRatio="none">'
        '<rect class="{}" width="{}" height="10"/>{}</svg>'
    ).format(kind, px(max(0.0, min(share, 1.0)) * 100), tick)


def stages(rows: Sequence[StageView]) -> Markup:
    """The stages side by side, as wide as the time they took."""
    total = sum(row.seconds or 0.0 for row in rows)
    if not total:
        return Markup("")
    x, parts = 0.0, []
    for n, row in enumerate(rows):
        width = (row.seconds or 0.0) / total * 100
        parts.append(
            Markup('<rect class="{}" x="{}" width="{}" height="10"/>').format(
                _stage_css_class(n, row), px(x), px(max(width - 0.2, 0.1))
            )
        )
        x += width
    return Markup(
        '<svg class="stages" aria-hidden="true" viewBox="0 0 100 10" '
        'preserveAspectRatio="none">{}</svg>'
    ).format(Markup("").join(parts))


def legend(rows: Sequence[StageView]) -> list[tuple[str, Markup, float]]:
    """Label, colour and share of each stage that took time."""
    total = sum(row.seconds or 0.0 for row in rows)
    return [
        (f"{row.name} {row.state}" if row.state != "passed" else row.name, swatch(kind), took)
        for kind, row in ((_stage_css_class(n, row), row) for n, row in enumerate(rows))
        if total and (took := (row.seconds or 0.0) / total) > 0
    ]


def _stage_css_class(number: int, row: StageView) -> str:
    return "bad" if row.state == "failed" else f"stage{number % _STAGES}"


def swatch(kind: str) -> Markup:
    """A coloured square for a legend."""
    return Markup('<span class="swatch {}"></span>').format(kind)


def px(value: float) -> str:
    """A coordinate with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")
