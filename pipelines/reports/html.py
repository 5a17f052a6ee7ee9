"""One self-contained HTML page of one run or of many: no script, no network, nothing inline.

The page has one style sheet, which its own policy names by hash; a browser runs and loads nothing
else, whatever a host managed to write into it.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jinja2
from markupsafe import Markup
from packaging.version import InvalidVersion, Version

from pipelines import units
from pipelines.reports import charts
from pipelines.reports.load import EVIDENCE, STAGES, when
from pipelines.reports.views import VERDICTS, Excerpt, Figure, Group, RunView, Verdict

_TEMPLATES = Path(__file__).resolve().with_name("templates")
_WORDS: dict[Verdict, tuple[str, str]] = {
    "passed": ("✓", "Passed"),
    "untested": ("◐", "Not tested"),
    "unfinished": ("…", "Unfinished"),
    "failed": ("✗", "Failed"),
}
_STATES = {
    "passed": ("✓", "passed"),
    "failed": ("✗", "failed"),
    "error": ("✗", "error"),
    "running": ("…", "no outcome"),
    "interrupted": ("…", "interrupted"),
    "skipped": ("○", "skipped"),
}
_DIGITS = re.compile(r"(\d+)")
_GROUPS: dict[Group, str] = {
    "speed": "Speed",
    "ratio": "Speed against other implementations",
    "memory": "Memory of the GPU",
    "accuracy": "Error, as a share of what is tolerated",
}


#: Bytes of a page of many runs, beyond which less is told of each.
MOST = 1_900_000


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of one run a page holds: rows, points and characters."""

    cases: int
    units: int
    points: int
    slowest: int
    figures: int
    failures: int
    excerpt: int
    message: int
    pairs: int
    files: int


ONE = Limits(500, 4000, 240, 10, 120, 80, 40, 3000, 200, 500)
#: Of many runs: some 40, 15 and 5 KB each.
MANY = (
    Limits(60, 1000, 120, 10, 40, 15, 20, 1500, 60, 40),
    Limits(0, 100, 36, 3, 3, 3, 8, 500, 12, 12),
    Limits(0, 0, 1, 0, 0, 1, 2, 160, 0, 3),
)
_CROWD = 20  # runs from which the first of these is not tried


@dataclass(frozen=True, slots=True)
class Grid:
    """Verdicts by what was asked for: rows are package, torch, CUDA and architectures."""

    pythons: tuple[str, ...]
    rows: tuple[tuple[tuple[str, str, str, str], tuple[tuple[int, ...], ...]], ...]
    """What a row is, and for each Python the numbers of its runs."""


def render(views: Sequence[RunView]) -> str:
    """The page of ``views``, in their order; at least one. The same views give the same page."""
    if len(views) == 1:
        return _page(views, ONE)
    page = ""
    for limits in MANY[len(views) > _CROWD :]:
        page = _page(views, limits)
        if len(page.encode()) <= MOST:
            break
    return page


def _page(views: Sequence[RunView], limits: Limits) -> str:
    style = (_TEMPLATES / "report.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            views=views,
            one=views[0] if len(views) == 1 else None,
            limits=limits,
            grid=grid(views),
            tally=Counter(view.verdict for view in views),
            worst=max((view.verdict for view in views), key=VERDICTS.index),
            alike=alike(views) if len(views) > 1 else (),
            style=Markup(style),  # noqa: S704 - our own file
            digest=digest,
        )
    )


def grid(views: Sequence[RunView]) -> Grid:
    """Where in the matrix every run stands."""
    pythons = sorted({view.cell.python for view in views}, key=_version)
    rows: dict[tuple[str, str, str, str], dict[str, list[int]]] = {}
    for number, view in enumerate(views):
        cell = view.cell
        row = rows.setdefault((cell.package, cell.torch, cell.cuda, cell.archs), {})
        row.setdefault(cell.python, []).append(number)
    ordered = sorted(rows, key=lambda key: (key[0], _version(key[1]), _version(key[2]), key[3]))
    return Grid(
        tuple(pythons),
        tuple((key, tuple(tuple(rows[key].get(p, ())) for p in pythons)) for key in ordered),
    )


def alike(views: Sequence[RunView]) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
    """Failures that several runs share: title, cure and the numbers of the runs; most first."""
    found: dict[str, tuple[str, set[int]]] = {}
    for number, view in enumerate(views):
        for failure in view.failures[:20]:
            found.setdefault(failure.title, (failure.cure, set()))[1].add(number)
    rows = [(title, cure, tuple(sorted(n))) for title, (cure, n) in found.items()]
    return tuple(sorted(rows, key=lambda row: (-len(row[2]), row[0]))[:30])


def grouped(figures: Iterable[Figure], most: int) -> list[tuple[str, list[Figure], int]]:
    """Figures by group: the title, the rows that are shown and how many are not.

    What is measured of one subject stands together; of errors the largest are shown.
    """
    made = []
    rows = list(figures)
    for group, title in _GROUPS.items():
        own = [figure for figure in rows if figure.group == group]
        if group == "accuracy":
            own.sort(key=lambda figure: -figure.value)
            shown = own[: min(most, 10)]
        else:
            own.sort(key=lambda figure: (_natural(figure.subject), figure.series))
            shown = own[:most]
        if own:
            made.append((title, shown, len(own) - len(shown)))
    return made


def figure_bar(figure: Figure, shown: Sequence[Figure]) -> Markup:
    """The bar of a figure beside those that are measured in the same unit."""
    same = [f for f in shown if f.unit == figure.unit]
    if figure.group == "speed":
        same = [f for f in same if f.subject == figure.subject] if _series(same) else same
    most = max((abs(f.value) for f in same), default=0.0)
    relative = figure.unit in ("x", "of tolerance")
    top = max(most, 1.0) if relative else most
    kind = f"series{sorted({f.series for f in shown}).index(figure.series) % 5}"
    return charts.bar(abs(figure.value) / top if top else 0.0, kind, 1 / top if relative else None)


def _series(figures: Sequence[Figure]) -> bool:
    return len({figure.series for figure in figures}) > 1


def _natural(said: str) -> list[tuple[int, str]]:
    """``hdim64`` before ``hdim128``."""
    return [(len(part) if part.isdigit() else 0, part) for part in _DIGITS.split(said)]


def _version(value: str) -> tuple[int, Version, str]:
    """Versions in their order, then what is none, by its letters."""
    try:
        return 0, Version(value), value
    except InvalidVersion:
        return 1, Version("0"), value


def _numbered(found: Excerpt, most: int) -> list[tuple[str, str, bool]]:
    """Number, text and mark of the lines of an excerpt; ``most`` of them, around the mark."""
    lines = found.lines
    at = max(0, found.mark - found.first) if found.mark else len(lines)
    begin = max(0, min(at - most // 3, len(lines) - most))
    return [
        (str(number) if found.first else "", line, bool(found.mark) and number == found.mark)
        for number, line in itertools.islice(enumerate(lines, found.first), begin, begin + most)
    ]


@cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "seconds": units.seconds,
        "size": units.size,
        "number": units.number,
        "percent": units.percent,
        "when": when,
        "clock": lambda said: said.replace("T", " ").replace("+00:00", " UTC"),
    }
    made.globals |= {
        "charts": charts,
        "counted": units.counted,
        "evidence_lines": frozenset(f"evidence {k}: {v}" for k, v in EVIDENCE.items()),
        "figure_bar": figure_bar,
        "grouped": grouped,
        "numbered": _numbered,
        "stage_names": STAGES,
        "states": _STATES,
        "words": _WORDS,
        "verdicts": VERDICTS,
    }
    return made
