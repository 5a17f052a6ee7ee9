"""A self-contained HTML page on one run or many: no script, no network, nothing inline.

The page has one style sheet, which its own policy names by hash; a browser runs and loads nothing
else, whatever a host managed to write into it.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup
from packaging.version import InvalidVersion, Version

from pipelines.core import units
from pipelines.core.target import AXES, Target
from pipelines.core.versions import python_release
from pipelines.reports import charts
from pipelines.reports.failures import group_failure_causes
from pipelines.reports.load import format_utc_time
from pipelines.reports.measures import figure_charts
from pipelines.reports.views import (
    MARKS,
    VERDICTS,
    WORDS,
    Excerpt,
    RunView,
    evidence_line,
    start_time_text,
    unique_run_names,
)

_TEMPLATES = Path(__file__).resolve().with_name("templates")
_STATES = {
    "passed": ("✓", "passed"),
    "failed": ("✗", "failed"),
    "error": ("✗", "error"),
    "running": ("…", "no outcome"),
    "interrupted": ("…", "interrupted"),
    "unfinished": ("…", "unfinished"),
    "skipped": ("○", "skipped"),
}
#: Axes of a cell besides the package, with their titles.
_CELL = tuple(name for name in AXES if name not in ("host", "recipe", "version"))
_TITLES = {
    "python": "Python",
    "cuda": "CUDA",
    "archs": "Architectures",
}
#: Bytes of a page on many runs, beyond which each gets fewer details.
MOST = 1_980_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for each run on a page: rows, points and characters."""

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
#: For many runs: some 40, 20, 15 and 5 KB each.
MANY = (
    Limits(60, 1000, 120, 10, 40, 15, 20, 1500, 60, 40),
    Limits(0, 100, 30, 3, 3, 3, 8, 500, 12, 12),
    Limits(0, 60, 16, 0, 2, 2, 4, 300, 8, 6),
    Limits(0, 0, 1, 0, 0, 1, 2, 160, 0, 3),
)
_CROWD = 20  # runs from which the first of these is skipped


@dataclass(frozen=True, slots=True)
class Grid:
    """A grid of verdicts: rows are packages with all axes except Python."""

    titles: tuple[str, ...]
    pythons: tuple[str, ...]
    rows: tuple[tuple[tuple[str, ...], tuple[tuple[int, ...], ...]], ...]
    """The title of a row, and for each Python the numbers of its runs."""

    @property
    def caption(self) -> str:
        """``Status by package, torch, CUDA, architectures and Python``."""
        named = (title.lower() if title.istitle() else title for title in self.titles)
        return f"Status by {', '.join(named)} and Python"


def render(views: Sequence[RunView], folder: Path | None = None) -> str:
    """The page on ``views``, at least one, in their order. The same views give the same page.

    With ``folder``, where the page will lie, it has links to the runs' files that are there.
    """
    if len(views) == 1:
        return _render_report_page(views, ONE, folder)
    page = ""
    for limits in MANY[len(views) > _CROWD :]:
        page = _render_report_page(views, limits, folder)
        if len(page.encode()) <= MOST:
            break
    return page


def _render_report_page(views: Sequence[RunView], limits: Limits, folder: Path | None) -> str:
    return render_template(
        "report.html.j2",
        "report.css",
        views=views,
        one=views[0] if len(views) == 1 else None,
        limits=limits,
        grid=build_run_grid(views),
        tally=Counter(view.verdict for view in views),
        weak=Counter(view.tested for view in views if view.tone != view.verdict),
        worst=max((view.verdict for view in views), key=VERDICTS.index),
        causes=group_failure_causes(views) if len(views) > 1 else (),
        names=unique_run_names(views),
        several_hosts=len({view.target.host for view in views}) > 1,
        ways=_run_link_prefixes(views, folder),
    )


def render_template(template: str, *styles: str, script: str = "", **values: Any) -> str:
    """A page with its style sheets and script; its policy allows their text alone, by hash."""
    files = {
        "style": "".join(map(_read_asset, styles)),
        "script": _read_asset(script) if script else "",
    }
    digests = {
        name: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for name, text in files.items()
    }
    own = {name: Markup(text) for name, text in files.items()}  # noqa: S704 - our own files
    return jinja_environment().get_template(template).render(digests=digests, **own, **values)


@cache
def _read_asset(name: str) -> str:
    return (_TEMPLATES / name).read_text("utf-8")


def _run_link_prefixes(views: Sequence[RunView], folder: Path | None) -> dict[str, str]:
    """The path from ``folder`` to each run's directory, as a link prefix.

    There is none without a ``folder``, and none to another drive of Windows.
    """
    made: dict[str, str] = {}
    for place in {view.place for view in views if folder and view.place}:
        try:
            way = Path(os.path.relpath(Path(place).resolve(), (folder or Path()).resolve()))
        except ValueError:
            continue
        made[place] = "" if way == Path() else quote(os.fsencode(way.as_posix())) + "/"
    return made


def build_run_grid(views: Sequence[RunView]) -> Grid:
    """The position of every run in the matrix."""
    pythons = sorted({view.target.python for view in views}, key=_version_sort_key)
    rows: dict[Target, dict[str, list[int]]] = {}
    for number, view in enumerate(views):
        key = view.target.model_copy(update={"host": "", "python": ""})
        rows.setdefault(key, {}).setdefault(view.target.python, []).append(number)
    names = [name for name in _CELL if name != "python"]
    ordered = sorted(
        rows, key=lambda k: (k.package, [_version_sort_key(getattr(k, n)) for n in names])
    )
    return Grid(
        ("Package", *(_TITLES.get(name, name) for name in names)),
        tuple(pythons),
        tuple(
            (
                (key.package, *(key.values()[name] for name in names)),
                tuple(tuple(rows[key].get(python, ())) for python in pythons),
            )
            for key in ordered
        ),
    )


def _version_sort_key(value: object) -> tuple[int, Version, str]:
    """Versions in order, then other texts alphabetically."""
    try:
        return 0, Version(python_release(value) if isinstance(value, str) else ""), str(value)
    except InvalidVersion:
        return 1, Version("0"), str(value)


def _number_excerpt_lines(excerpt: Excerpt, most: int) -> list[tuple[str, str, bool]]:
    """Number, text and mark of at most ``most`` lines of an excerpt around the mark."""
    lines = excerpt.lines
    at = max(0, excerpt.mark - excerpt.first) if excerpt.mark else len(lines)
    begin = max(0, min(at - most // 3, len(lines) - most))
    return [
        (str(number) if excerpt.first else "", line, bool(excerpt.mark) and number == excerpt.mark)
        for number, line in itertools.islice(enumerate(lines, excerpt.first), begin, begin + most)
    ]


@cache
def jinja_environment() -> jinja2.Environment:
    """The Jinja environment with templates and filters."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "seconds": units.format_seconds,
        "size": units.format_size,
        "number": units.format_number,
        "percent": units.format_percent,
        "when": format_utc_time,
        "evidence": evidence_line,
        "clock": lambda text: text.replace("T", " ").replace("+00:00", " UTC"),
    }
    made.globals |= {
        "charts": charts,
        "counted": units.pluralize,
        "cell": {name: _TITLES.get(name, name) for name in _CELL},
        "begun_at": start_time_text,
        "measured": figure_charts,
        "numbered": _number_excerpt_lines,
        "states": _STATES,
        "marks": MARKS,
        "words": {kind: word.capitalize() for kind, word in WORDS.items()},
        "verdicts": VERDICTS,
    }
    return made
