"""Formats a wheel for the index page: text for readers and for the page's script.

The table on the page is the script's only data, so cells have a fixed format, defined here, and
``Requires-Python`` is evaluated here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote

from packaging.utils import parse_wheel_filename
from packaging.version import Version

from pipelines.core.architectures.archs import compute_capability
from pipelines.core.architectures.serving import arch_number
from pipelines.core.units import join_first
from pipelines.publish.index.catalogue import Catalogue, Wheel
from pipelines.publish.which.choosing import runs_python
from pipelines.publish.which.texts import accepts_python

#: Minor versions of Python 3 that are tested; including the last one means all later ones.
_MINORS = range(100)
#: Characters of a wheel's smoke result in the table, if passed and if not.
_SHORT, _WHY = 100, 91


@dataclass(frozen=True, slots=True)
class Row:
    """A wheel in the table."""

    wheel: Wheel
    version: str
    """With its build number, if any."""
    href: str
    """Link with a sha256 fragment for pip."""
    ident: str
    """Anchor on its project's page."""
    minors: tuple[int, ...]
    """Compatible minor versions of Python 3."""
    lockless: tuple[int, ...]
    """The same for free-threaded Pythons."""
    pythons: str
    """``3.12``, ``3.9+``, ``3.9-3.13``, ``3.13t`` (free-threaded); separated by commas."""
    platforms: str
    """Its platform tags, separated by blanks."""
    torch: str
    """``2.8``, ``2.8+`` including later ones, or ``none``."""
    gpus: str
    """``8.0 9.0a PTX 9.0``: compute capabilities of machine code, then of PTX; ``none``."""
    smoke: str
    """Shortened, like the reason of a yank; its project's page has the full text."""
    yanked: str

    @property
    def project(self) -> str:
        """Its normalised name."""
        return str(self.wheel.name.project)

    @property
    def level(self) -> str:
        """The letter of its evidence level."""
        return _truncate_cell(self.wheel.evidence.partition(":")[0] or "none", 16)

    @property
    def later(self) -> bool:
        """Whether it works with all later Python versions."""
        return self.minors[-1:] == (_MINORS[-1],)


def plain_wheel_rows(catalogue: Catalogue) -> list[Row]:
    """The plain wheels by project, preferred ones first."""
    plain = [wheel for wheel in catalogue.wheels if not wheel.name.label]
    # Sorting is stable, so the most significant key comes last.
    plain.sort(key=lambda wheel: wheel.file, reverse=True)
    plain.sort(key=lambda wheel: wheel.uploaded, reverse=True)
    plain.sort(key=lambda wheel: Version(wheel.cuda or "0"), reverse=True)
    plain.sort(key=lambda wheel: wheel.name.version, reverse=True)
    plain.sort(key=lambda wheel: wheel.name.version.is_prerelease)  # after those that are final
    plain.sort(key=lambda wheel: str(wheel.name.project))
    return [row_of(wheel) for wheel in plain]


def row_of(wheel: Wheel) -> Row:
    """The row of a plain wheel."""
    _, version, build, tags = parse_wheel_filename(wheel.file)
    place = wheel.url if "://" in wheel.url else quote(wheel.url)
    words = tuple(sorted((tag.interpreter, tag.abi) for tag in tags))
    minors = _minors(words, wheel.requires_python)
    lockless = _minors(words, wheel.requires_python, "t")
    return Row(
        wheel=wheel,
        version=f"{version}" + (f" build {build[0]}{build[1]}" if build else ""),
        href=f"{place}#sha256={wheel.sha256}",
        ident=f"w-{wheel.sha256[:10]}",
        minors=minors,
        lockless=lockless,
        pythons=", ".join([*_spans(minors), *_spans(lockless, "t")]) or "none",
        platforms=" ".join(sorted({tag.platform for tag in tags})),
        torch=f"{wheel.torch}{'+' * wheel.stable}" if wheel.torch else "none",
        gpus=_gpus(wheel) or "none",
        smoke=_truncate_cell(
            smoke_words(wheel, 1), _SHORT if wheel.smoke.verdict == "passed" else _WHY
        ),
        yanked=_truncate_cell(wheel.yanked or "no reason given", _WHY),
    )


def _truncate_cell(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most].rstrip()}…"


@lru_cache(maxsize=4096)
def _minors(tags: tuple[tuple[str, str], ...], required: str, free: str = "") -> tuple[int, ...]:
    """Minor versions of Python 3 that match a tag (interpreter and ABI) and Requires-Python."""
    return tuple(
        minor
        for minor in _MINORS
        if accepts_python(required, f"3.{minor}{free}")
        and any(runs_python(python, abi, f"3.{minor}{free}") for python, abi in tags)
    )


def _spans(minors: tuple[int, ...], free: str = "") -> list[str]:
    spans: list[str] = []
    for begin in (minor for minor in minors if minor - 1 not in minors):
        end = begin
        while end + 1 in minors:
            end += 1
        first, last = f"3.{begin}{free}", f"3.{end}{free}"
        spans.append(
            f"{first}+" if end == _MINORS[-1] else first if end == begin else f"{first}-{last}"
        )
    return spans


def _gpus(wheel: Wheel) -> str:
    ptx = f"PTX {' '.join(sorted_capabilities(wheel.ptx))}" if wheel.ptx else ""
    return " ".join((*sorted_capabilities(wheel.sass), *filter(None, [ptx])))


def sorted_capabilities(archs: Iterable[str]) -> list[str]:
    """Compute capabilities such as ``9.0a`` for ``90a``, ascending."""
    ordered = sorted(archs, key=lambda arch: (arch_number(arch), arch))
    return [f"{compute_capability(arch)}{arch.lstrip('0123456789')}" for arch in ordered]


def smoke_words(wheel: Wheel, cards: int = 64) -> str:
    """A short description of its GPU tests."""
    smoke = wheel.smoke
    if smoke.verdict == "untested":
        return f"UNTESTED: {smoke.why}"
    of = " (its plain wheel)" if wheel.made_from else ""
    return f"tested on {join_first(smoke.gpus, most=cards)}, {smoke.cases} cases passed{of}"
