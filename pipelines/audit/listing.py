"""The wheels for Windows on a page of an index, or on an index: the newest releases first.

What is left out is counted: a page of some wheels must not look like one of all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version
from pydantic import Field

from pipelines.audit.indexpage import Listed, Page, read_pages
from pipelines.core import units
from pipelines.core.errors import ConfigError
from pipelines.core.hosttext import line, secret, shown_url
from pipelines.core.model import Model
from pipelines.prebuilt.candidates import Offer
from pipelines.wheels.tags import WINDOWS, misfit

_PROJECTS = 200  # of an index
#: A file's name that may become one of ours.
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_PAGES = (".html", ".htm", ".json")


class Listing(Model):
    """Of a page or an index that was asked for."""

    place: str
    """Its address, without what may be a password."""
    wheels: int
    """For Windows, or for any platform where a release has none for it."""
    taken: int
    """Of these; the older ones are left out."""
    others: dict[str, int] = Field(default_factory=dict)
    """What else is there and was not wanted: why -> how many files."""
    projects: int = 1
    looked_at: int = 1
    """Of the projects of an index."""
    size: int = 0
    """Bytes of those that are taken, of which the page states it."""

    @property
    def whole(self) -> bool:
        """Whether no wheel that was wanted is left out."""
        return self.taken == self.wheels and self.looked_at == self.projects

    @property
    def said(self) -> str:
        """What was taken of it and what was not."""
        some = [f"{self.taken} of {units.counted(self.wheels, 'wheel')} for Windows"]
        if self.taken < self.wheels:
            left = self.wheels - self.taken
            some.append(f"{left} older left out (--most {self.wheels} takes them all)")
        if self.looked_at < self.projects:
            some.append(f"{self.projects - self.looked_at} of {self.projects} projects left out")
        some += [f"{why}: {count}" for why, count in self.others.items()]
        return f"{self.place}: {'; '.join(some)}"


@dataclass(frozen=True)
class _Wheel:
    listed: Listed
    project: str
    version: Version
    tags: frozenset[Tag]

    def is_for(self, platform: str) -> bool:
        return platform in {tag.platform for tag in self.tags}


def is_page(text: str) -> bool:
    """Whether an address is of a page, and not of a file."""
    try:
        name = unquote(urlsplit(text).path).rpartition("/")[2]
    except ValueError:
        return False
    return "://" in text and ("." not in name or name.lower().endswith(_PAGES))


def wheels_on(url: str, python: str, most: int) -> tuple[list[Listed], Listing]:
    """At most ``most`` wheels of a page, and what is said of it and of all that is left out.

    ``python`` (``3.12``) leaves those that it takes. Raises :class:`ConfigError` where there is
    none, and for a page that cannot be read; one of many of an index is told with its wheels.
    """
    parts = urlsplit(url)
    for text in (parts.username if not parts.password else None, parts.password, parts.query):
        secret(text or "")
        secret(unquote(text or ""))
    if parts.scheme != "https" or not parts.hostname:
        raise ConfigError(
            f"{shown_url(url)}: expected https", hint="Only indexes behind TLS are asked."
        )
    if "sha256=" in parts.fragment.lower():  # what was to be compared is not left out in silence
        raise ConfigError(
            f"{shown_url(url)}: a sha256 of a page is not compared",
            hint="Leave it out: each wheel is compared with what the page states.",
        )
    (first,) = read_pages([url])
    if isinstance(first, ConfigError):
        raise first
    asked = first.projects[:_PROJECTS]
    pages = read_pages(asked) if asked else [first]
    others: Counter[str] = Counter()
    found: list[tuple[int, _Wheel]] = []
    broken: list[Listed] = []
    for address, one in zip(asked or [url], pages, strict=True):
        if isinstance(one, Page):
            below = one.below + (len(one.projects) if asked else 0)
            others["pages below it, which were not read"] += below
        if isinstance(one, ConfigError):
            others["pages that could not be read"] += 1
            offer = Offer(unquote(address.rstrip("/").rpartition("/")[2]), address)
            broken.append(Listed(offer, problem=one.message))
        else:
            found += _newest_first(_fitting(one, python, others))
    found.sort(key=lambda one: (one[0], one[1].project, one[1].listed.offer.file))
    kept = [wheel.listed for _, wheel in found[:most]]
    listing = Listing(
        place=shown_url(url),
        wheels=len(found),
        taken=len(kept),
        others={why: count for why, count in others.items() if count},
        projects=len(first.projects) or 1,
        looked_at=len(asked) or 1,
        size=sum(one.offer.size or 0 for one in kept),
    )
    if not kept and not broken:
        raise ConfigError(
            f"{listing.place}: there is no wheel for Windows"
            + (f" and Python {python}" if python else ""),
            hint=f"What is there: {line(listing.said, 300)}.",
        )
    return [*kept, *broken], listing


def _fitting(page: Page, python: str, others: Counter[str]) -> list[_Wheel]:
    """Those for Windows; of a release that has none those for any platform."""
    releases: dict[tuple[str, Version], list[_Wheel]] = {}
    for one in page.files:
        wheel = _parsed(one)
        if one.yanked:
            others["yanked"] += 1
        elif wheel is None:
            named = one.offer.file.lower().endswith(".whl")
            others["wheels by names that none has" if named else "no wheels"] += 1
        else:
            releases.setdefault((wheel.project, wheel.version), []).append(wheel)
    found = []
    for every in releases.values():
        own = [one for one in every if one.is_for("win_amd64")]
        own = own or [one for one in every if one.is_for("any")]
        fits = [one for one in own if not python or not misfit(one.tags, python, WINDOWS)]
        others["for other platforms"] += len(every) - len(own)
        others[f"not for Python {python}"] += len(own) - len(fits)
        found += fits
    return found


def _parsed(one: Listed) -> _Wheel | None:
    if not PLAIN.fullmatch(one.offer.file):  # it becomes a file of ours
        return None
    try:
        project, version, _, tags = parse_wheel_filename(one.offer.file)
    except InvalidWheelFilename:
        return None
    return _Wheel(one, project, version, tags)


def _newest_first(wheels: Sequence[_Wheel]) -> Iterator[tuple[int, _Wheel]]:
    """Each with its place among the releases of its project: 0 of the newest."""
    versions: dict[str, set[Version]] = {}
    for one in wheels:
        versions.setdefault(one.project, set()).add(one.version)
    order = {name: sorted(every, reverse=True) for name, every in versions.items()}
    ranks = {name: {v: n for n, v in enumerate(every)} for name, every in order.items()}
    return ((ranks[one.project][one.version], one) for one in wheels)
