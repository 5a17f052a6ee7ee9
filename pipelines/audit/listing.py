"""Lists the wheels for Windows on an index or one of its pages, newest releases first.

Whatever is left out is counted, so that a partial list is never mistaken for a complete one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from packaging.version import Version
from pydantic import Field

from pipelines.core import units
from pipelines.core.errors import ConfigError
from pipelines.core.hosttext import remember_secret, safe_line, shown_url
from pipelines.core.model import Model
from pipelines.plan.prebuilt.candidates import Offer
from pipelines.plan.prebuilt.indexpage import Listed, listed_on, read_pages
from pipelines.plan.prebuilt.repositories import is_repository
from pipelines.toolchain.indexpage import IndexPage
from pipelines.wheels.tags import WINDOWS, WheelName, parsed_name, tag_incompatibility

T = TypeVar("T")
_PROJECTS = 200  # of an index
#: A safe file name.
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_PAGES = (".html", ".htm", ".json")
_DISTRIBUTIONS = (".whl", ".tar.gz", ".zip")


class Listing(Model):
    """What was found on a page or an index."""

    place: str
    """Its address, without anything that may be a password."""
    wheels: int
    """For Windows, or for any platform if a release has none for Windows."""
    taken: int
    """How many of these are used; older ones are left out."""
    others: dict[str, int] = Field(default_factory=dict)
    """Other files: why they are left out -> how many."""
    projects: int = 1
    looked_at: int = 1
    """How many of the index's projects were read."""
    size: int = 0
    """Bytes of the wheels used, as far as the page states sizes."""

    @property
    def complete(self) -> bool:
        """Whether no matching wheel is left out."""
        return self.taken == self.wheels and self.looked_at == self.projects

    @property
    def summary(self) -> str:
        """What is used and what is left out."""
        some = [f"{self.taken} of {units.pluralize(self.wheels, 'wheel')} for Windows"]
        if self.taken < self.wheels:
            left = self.wheels - self.taken
            some.append(f"{left} older left out (--most {self.wheels} includes them)")
        if self.looked_at < self.projects:
            some.append(f"{self.projects - self.looked_at} of {self.projects} projects skipped")
        some += [f"{why}: {count}" for why, count in self.others.items()]
        return f"{self.place}: {'; '.join(some)}"


@dataclass(frozen=True)
class _Wheel:
    listed: Listed
    name: WheelName


def is_page(text: str) -> bool:
    """Whether an address names a page or a repository rather than a file."""
    try:
        name = unquote(urlsplit(text).path).rpartition("/")[2]
    except ValueError:
        return False
    page = "." not in name or name.lower().endswith(_PAGES)
    return is_repository(text) or ("://" in text and page)


def wheels_on(url: str, python: str, most: int) -> tuple[list[Listed], Listing]:
    """At most ``most`` wheels of a page, and a summary of what is used and left out.

    ``python`` (``3.12``) restricts them to compatible wheels. Raises :class:`ConfigError` if there
    is no wheel or the page cannot be read; an unreadable page of an index is listed as a problem.
    """
    parts = urlsplit(url)
    for text in (parts.username if not parts.password else None, parts.password, parts.query):
        remember_secret(text or "")
        remember_secret(unquote(text or ""))
    if not is_repository(url) and (parts.scheme != "https" or not parts.hostname):
        raise ConfigError(
            f"{shown_url(url)}: expected https", hint="Only indexes with TLS are supported."
        )
    if "sha256=" in parts.fragment.lower():  # never silently ignored
        raise ConfigError(
            f"{shown_url(url)}: sha256 applies to files, not to pages",
            hint="Omit it: each wheel is checked against the sha256 on the page.",
        )
    (first,) = read_pages([url])
    if isinstance(first, ConfigError):
        raise first
    # A page with files may link to other pages as well; these are not read.
    is_project = any(file.name.endswith(_DISTRIBUTIONS) for file in first.files)
    below = () if is_project else first.projects
    projects = below[:_PROJECTS]
    pages = read_pages(projects) if projects else [first]
    others: Counter[str] = Counter()
    ranked: list[tuple[int, _Wheel]] = []
    broken: list[Listed] = []
    for address, page in zip(projects or [url], pages, strict=True):
        if isinstance(page, ConfigError):
            others["pages that could not be read"] += 1
            offer = Offer(unquote(address.rstrip("/").rpartition("/")[2]), address)
            broken.append(Listed(offer, problem=page.message))
        else:
            others["pages below it, not read"] += len(page.projects)
            ranked += _newest_first(_select_windows_wheels(page, python, others))
    ranked.sort(key=lambda entry: (entry[0], entry[1].name.project, entry[1].listed.offer.file))
    listed = [wheel.listed for _, wheel in ranked[:most]]
    listing = Listing(
        place=shown_url(url),
        wheels=len(ranked),
        taken=len(listed),
        others={why: count for why, count in others.items() if count},
        projects=len(below) or 1,
        looked_at=len(projects) or 1,
        size=sum(file.offer.size or 0 for file in listed),
    )
    if not listed and not broken:
        raise ConfigError(
            f"{listing.place}: no wheel for Windows" + (f" and Python {python}" if python else ""),
            hint=f"Found: {safe_line(listing.summary, 300)}.",
        )
    return [*listed, *broken], listing


def _select_windows_wheels(page: IndexPage, python: str, others: Counter[str]) -> list[_Wheel]:
    """Wheels for Windows; for any platform if a release has none for Windows."""
    releases: dict[tuple[str, Version], list[_Wheel]] = {}
    for listed in map(listed_on, page.files):
        name = plain_name(listed.offer.file)
        if listed.yanked:
            others["yanked"] += 1
        elif name is None:
            named = listed.offer.file.lower().endswith(".whl")
            others["wheels with invalid names" if named else "not wheels"] += 1
        else:
            releases.setdefault((name.project, name.version), []).append(_Wheel(listed, name))
    fitting = []
    for every in releases.values():
        own, fits = for_windows([(wheel, wheel.name) for wheel in every], python)
        others["for other platforms"] += len(every) - len(own)
        others[f"not for Python {python}"] += len(own) - len(fits)
        fitting += fits
    return fitting


def plain_name(file: str) -> WheelName | None:
    """What a wheel's name says; ``None`` for any other, or if it cannot be a file's name here."""
    return parsed_name(file) if _PLAIN.fullmatch(file) else None


def for_windows(release: Sequence[tuple[T, WheelName]], python: str) -> tuple[list[T], list[T]]:
    """The wheels of a release for Windows, else those for any platform; and which fit a Python."""
    for platform in (*WINDOWS, "any"):
        if own := [(wheel, name.tags) for wheel, name in release if name.is_for(platform)]:
            break
    fits = [w for w, tags in own if not python or not tag_incompatibility(tags, python, WINDOWS)]
    return [wheel for wheel, _ in own], fits


def _newest_first(wheels: Sequence[_Wheel]) -> Iterator[tuple[int, _Wheel]]:
    """Each with the rank of its release within its project; 0 is the newest."""
    versions: dict[str, set[Version]] = {}
    for wheel in wheels:
        versions.setdefault(wheel.name.project, set()).add(wheel.name.version)
    order = {name: sorted(every, reverse=True) for name, every in versions.items()}
    ranks = {name: {v: n for n, v in enumerate(every)} for name, every in order.items()}
    return ((ranks[wheel.name.project][wheel.name.version], wheel) for wheel in wheels)
