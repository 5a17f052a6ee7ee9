"""A wheel of an index as its pages show it: words that people read, and the page's script too.

The table on the page is the script's only data. So a cell has one form, which is said here, and
what cannot be said in it (``Requires-Python``) is worked out here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote

from packaging.utils import parse_wheel_filename
from packaging.version import Version

from pipelines.core.architectures.serving import number
from pipelines.core.units import few
from pipelines.publish.index.catalogue import Catalogue, Wheel
from pipelines.publish.which.choosing import runs_python
from pipelines.publish.which.texts import takes

#: Minor releases of Python 3 that are asked after; up to the last one means all later ones.
_MINORS = range(100)
#: Characters of what is said of a wheel in the table: with one GPU's name, or why not.
_SHORT, _WHY = 100, 91


@dataclass(frozen=True, slots=True)
class Row:
    """A wheel in the table."""

    wheel: Wheel
    version: str
    """With its build number, where it has one."""
    href: str
    """Its place from the index, with its sha256 as pip reads it."""
    ident: str
    """Of what its project's page tells of it."""
    minors: tuple[int, ...]
    """Of Python 3, those that take it."""
    lockless: tuple[int, ...]
    """The same of Pythons without the global lock."""
    pythons: str
    """``3.12``, ``3.9+``, ``3.9-3.13``, ``3.13t`` without the global lock; several with commas."""
    platforms: str
    """Its platform tags, with blanks."""
    torch: str
    """``2.8``, ``2.8+`` for that and later ones, ``none``."""
    gpus: str
    """``8.0 9.0a PTX 9.0``: compute capabilities of machine code, then of PTX; ``none``."""
    smoke: str
    """In short, as the reason of a yank is: its project's page tells all."""
    yanked: str

    @property
    def project(self) -> str:
        """Its normalised name."""
        return str(self.wheel.name.project)

    @property
    def level(self) -> str:
        """The letter of its level of evidence, as far as it has one."""
        return _short(self.wheel.evidence.partition(":")[0] or "none", 16)

    @property
    def later(self) -> bool:
        """Whether it takes all later releases of Python."""
        return self.minors[-1:] == (_MINORS[-1],)


def rows(catalogue: Catalogue) -> list[Row]:
    """The plain wheels: by project, and of each the one first that is taken before another."""
    plain = [one for one in catalogue.wheels if not one.name.label]
    # Sorting keeps the order of what is equal: so the last key is sorted by first.
    plain.sort(key=lambda one: one.file, reverse=True)
    plain.sort(key=lambda one: one.uploaded, reverse=True)
    plain.sort(key=lambda one: Version(one.cuda or "0"), reverse=True)
    plain.sort(key=lambda one: one.name.version, reverse=True)
    plain.sort(key=lambda one: one.name.version.is_prerelease)  # after those that are final
    plain.sort(key=lambda one: str(one.name.project))
    return [row_of(one) for one in plain]


def row_of(wheel: Wheel) -> Row:
    """Of a plain wheel."""
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
        smoke=_short(smoke_words(wheel, 1), _SHORT if wheel.smoke.verdict == "passed" else _WHY),
        yanked=_short(wheel.yanked or "no reason was given", _WHY),
    )


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most].rstrip()}…"


@lru_cache(maxsize=4096)
def _minors(tags: tuple[tuple[str, str], ...], required: str, free: str = "") -> tuple[int, ...]:
    """Releases of Python 3 that take one of the tags (interpreter and ABI), and are allowed."""
    return tuple(
        minor
        for minor in _MINORS
        if takes(required, f"3.{minor}{free}")
        and any(runs_python(python, abi, f"3.{minor}{free}") for python, abi in tags)
    )


def _spans(minors: tuple[int, ...], free: str = "") -> list[str]:
    said: list[str] = []
    for begin in (one for one in minors if one - 1 not in minors):
        end = begin
        while end + 1 in minors:
            end += 1
        first, last = f"3.{begin}{free}", f"3.{end}{free}"
        said.append(
            f"{first}+" if end == _MINORS[-1] else first if end == begin else f"{first}-{last}"
        )
    return said


def _gpus(wheel: Wheel) -> str:
    ptx = f"PTX {' '.join(capabilities(wheel.ptx))}" if wheel.ptx else ""
    return " ".join((*capabilities(wheel.sass), *filter(None, [ptx])))


def capabilities(archs: Iterable[str]) -> list[str]:
    """``90a`` as the compute capability that people know: ``9.0a``; ascending."""
    ordered = sorted(archs, key=lambda one: (number(one), one))
    return [f"{number(one) // 10}.{number(one) % 10}{one.lstrip('0123456789')}" for one in ordered]


def smoke_words(wheel: Wheel, cards: int = 64) -> str:
    """What was seen of it on a GPU, in short; it is said wherever the wheel is named."""
    smoke = wheel.smoke
    if smoke.verdict == "untested":
        return f"UNTESTED: {smoke.why}"
    of = " (its plain wheel)" if wheel.made_from else ""
    return f"tested on {few(smoke.gpus, most=cards)}, {smoke.cases} cases passed{of}"
