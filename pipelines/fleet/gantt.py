"""What every host did from when to when, as inline SVG without script or inline style."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup

from pipelines import units
from pipelines.fleet.accounts import Accounts, interval
from pipelines.fleet.model import Span, Stretch
from pipelines.fleet.view import numbered
from pipelines.hosttext import line
from pipelines.reports.charts import Scale, axis, px

_LEFT, _WIDTH, _RIGHT = 96.0, 900.0, 10.0
_TOP, _AXIS, _TICKS = 8.0, 20.0, 8
_STEPS = (1, 5, 10, 30, 60, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
#: Lane and gap between hosts, by how many hosts there are at most.
_SIZES = ((12, 14.0, 7.0), (60, 10.0, 4.0), (10_000, 8.0, 3.0))
_MINUTE = 60
_NAME = 15  # characters of a host's name
#: Rectangles that each have words; the shorter ones beyond it are one path a kind.
MOST = 1500
_RESUMED = 200  # lines
_CLASSES = {"cell": "k0", "shard": "k1", "link": "k2", "test": "k3"}


@dataclass(frozen=True, slots=True)
class _Row:
    host: str
    top: float
    lane: float
    gap: float
    lanes: tuple[tuple[Span, int], ...]
    count: int
    away: tuple[Stretch, ...]


def gantt(accounts: Accounts, *, most: int = MOST) -> Markup:
    """A band for each host with a lane for each work that it had at a time.

    Attempts that were lost are outlined, failed ones filled in another colour; a thin line is a
    host that starts, a dashed one a host that was not there.
    """
    sizes = next(size for size in _SIZES if len(accounts.hosts) <= size[0] or size is _SIZES[-1])
    _, lane, gap = sizes
    rows = [*_rows(accounts, lane, gap)]
    first, span = accounts.began, max(accounts.seconds, 1.0)
    bottom = (rows[-1].top + rows[-1].count * lane + gap) if rows else _TOP
    told = sorted((s for row in rows for s, _ in row.lanes), key=lambda s: -_seconds(s, accounts))
    worded = {id(s) for s in told[:most]} | {id(s) for s in told if s.outcome in ("lost", "failed")}
    parts = [_band(row, worded, (first, span), accounts) for row in rows]
    return Markup(
        '<svg class="gantt" role="img" aria-labelledby="gantt-t gantt-d" viewBox="0 0 {} {}">'
        '<title id="gantt-t">Hosts over time</title><desc id="gantt-d">{}</desc>{}{}</svg>'
    ).format(
        px(_LEFT + _WIDTH + _RIGHT),
        px(bottom + _AXIS),
        _description(accounts),
        Markup("").join([*parts, *_resumed(accounts, first, span, bottom)]),
        axis(span, bottom, _SCALE),
    )


def _description(accounts: Accounts) -> str:
    spans = accounts.history.spans
    lost = sum(span.outcome == "lost" for span in spans)
    return (
        f"{units.counted(len(accounts.hosts), 'host')} over {units.seconds(accounts.seconds)}, "
        f"{units.counted(len(spans), 'attempt')}, {lost} of them lost; slots busy "
        f"{units.percent(accounts.utilisation)}. The tables below have the numbers."
    )


def _seconds(span: Span, accounts: Accounts) -> float:
    begin, end = interval(span, accounts.ended)
    return end - begin


def _rows(accounts: Accounts, lane: float, gap: float) -> Iterable[_Row]:
    spans: dict[str, list[Span]] = defaultdict(list)
    for one in accounts.history.spans:
        spans[one.host].append(one)
    away: dict[str, list[Stretch]] = defaultdict(list)
    for stretch in accounts.history.stretches:
        away[stretch.host].append(stretch)
    top = _TOP
    for host in sorted((one.machine.name for one in accounts.hosts), key=numbered):
        lanes, count = _lanes(spans[host], accounts.ended)
        yield _Row(host, top, lane, gap, tuple(lanes), count, tuple(away[host]))
        top += count * lane + gap


def _lanes(spans: Iterable[Span], last: float) -> tuple[list[tuple[Span, int]], int]:
    """Each in the first lane that is free when it begins; and how many lanes that takes."""
    free: list[float] = []
    placed = []
    for span in sorted(spans, key=lambda one: one.began):
        begin, end = interval(span, last)
        number = next((n for n, until in enumerate(free) if until <= begin), len(free))
        free[number : number + 1] = [end]
        placed.append((span, number))
    return placed, max(1, len(free))


def _band(row: _Row, worded: set[int], bounds: tuple[float, float], accounts: Accounts) -> Markup:
    lane = row.lane
    parts = [
        Markup('<text class="name" x="{}" y="{}"><title>{}</title>{}</text>').format(
            px(_LEFT - 6),
            px(row.top + row.count * lane / 2 + 3.5),
            line(row.host, 60),
            _short(line(row.host, 60)),
        ),
        Markup('<path class="frame" d="M{} {}h{}"/>').format(
            px(_LEFT), px(row.top + row.count * lane + row.gap / 2), px(_WIDTH)
        ),
    ]
    paths: dict[str, list[str]] = defaultdict(list)
    for span, number in row.lanes:
        x, width = _place(*interval(span, accounts.ended), bounds)
        y = row.top + number * lane
        if id(span) in worded:
            parts.append(_worded(span, (x, y, width, lane - 1), accounts))
        else:
            kind = _class(span)
            paths[kind].append(f"M{px(x)} {px(y)}h{px(width)}v{px(lane - 1)}h-{px(width)}z")
    parts += [
        Markup('<path class="{}" d="{}"/>').format(kind, "".join(path))
        for kind, path in paths.items()
    ]
    parts += [_stretch(one, row, bounds, accounts) for one in row.away]
    return Markup("").join(parts)


def _worded(span: Span, box: tuple[float, float, float, float], accounts: Accounts) -> Markup:
    x, y, width, height = box
    said = f"{line(span.key, 200)} on {line(span.host, 60)}: {span.outcome or 'goes on'}"
    said += f", {units.seconds(_seconds(span, accounts))}"
    said += f", attempt {span.attempt}" if span.attempt > 1 else ""
    if span.error is not None:
        said += f"; {line(span.error.message, 200)}"
    inset = 0.5 if span.outcome == "lost" else 0.0  # its outline stays within its lane
    return Markup(
        '<rect class="{}" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>'
    ).format(
        _class(span),
        px(x),
        px(y + inset),
        px(width),
        px(height - 2 * inset),
        said,
    )


def _class(span: Span) -> str:
    if span.outcome in ("lost", "failed"):
        return str(span.outcome)
    return _CLASSES[span.kind]


def _stretch(one: Stretch, row: _Row, bounds: tuple[float, float], accounts: Accounts) -> Markup:
    x, width = _place(*interval(one, accounts.ended), bounds)
    return Markup('<path class="{}" d="M{} {}h{}"><title>{}</title></path>').format(
        "starts" if one.standing == "starting" else "away",
        px(x),
        px(row.top + row.count * row.lane / 2),
        px(width),
        f"{line(one.host, 60)} {one.standing}" + (f": {line(one.why, 200)}" if one.why else ""),
    )


def _resumed(accounts: Accounts, first: float, span: float, bottom: float) -> Iterable[Markup]:
    for moment in accounts.history.resumed[:_RESUMED]:
        if first <= moment <= first + span:
            yield Markup('<path class="resumed" d="M{} {}V{}"><title>{}</title></path>').format(
                px(_LEFT + (moment - first) / span * _WIDTH),
                px(_TOP - 4),
                px(bottom),
                "another process goes on with the fleet",
            )


def _place(begin: float, end: float, bounds: tuple[float, float]) -> tuple[float, float]:
    """Left and width; a hairline stays between neighbours, and nothing vanishes."""
    first, span = bounds
    x = _LEFT + (begin - first) / span * _WIDTH
    return x, max((end - begin) / span * _WIDTH - 0.6, 0.6)


def _short(name: str) -> str:
    return name if len(name) <= _NAME else f"{name[:6]}…{name[-(_NAME - 7) :]}"


def _mark(tick: float, step: float) -> str:
    """``30 s``, ``5 min``, ``1:30 h``."""
    if tick < _MINUTE or step % _MINUTE:
        return units.seconds(tick)
    hours, minutes = divmod(round(tick / _MINUTE), 60)
    return f"{hours}:{minutes:02d} h" if hours or step >= 15 * _MINUTE else f"{minutes} min"


_SCALE = Scale(_LEFT, _WIDTH, _STEPS, _TICKS, _mark)
