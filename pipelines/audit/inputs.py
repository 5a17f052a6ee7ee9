"""Resolves command-line arguments to wheels on this machine.

An argument is a file, a directory (every wheel below it), an address, a page of an index or a
repository (its newest wheels) or a release, ``NAME==VERSION``: its wheels for Windows, or those for
any platform if it has none. A wheel that cannot be fetched is kept with the reason, so that it does
not hide the others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name

from pipelines.audit.listing import Listing, for_windows, is_page, plain_name, wheels_on
from pipelines.core.errors import ConfigError, PipelineError, StorageError
from pipelines.core.hosttext import safe_line, shown_url
from pipelines.core.versions import parse_version
from pipelines.plan.prebuilt.candidates import Offer, list_wheel_offers
from pipelines.plan.prebuilt.downloads import fetch_all, fetch_url
from pipelines.plan.prebuilt.external import read_external
from pipelines.toolchain.lock import Cache
from pipelines.toolchain.sources import index_url

_MOST = 10_000  # wheels of one command
_AT_ONCE = 4  # downloads
_LISTED = 50  # wheels of a page
_HINT = "Name a file, a directory of wheels, an https address, or NAME==VERSION."


@dataclass(frozen=True)
class Input:
    """A wheel to audit, or why it cannot be."""

    file: str
    place: str
    """Where it comes from, without anything that may be a password."""
    path: Path | None = None
    sha256: str = ""
    """As its source states it; empty if it does not."""
    problem: str = ""
    remote: bool = False
    offer: Offer | None = None
    """On a server, where parts of it are to be read."""


def resolve_inputs(
    arguments: Sequence[str],
    cache: Cache,
    *,
    python: str = "",
    most: int | None = None,
    report: Callable[[Listing], object] = lambda _: None,
    download: bool = True,
) -> tuple[Input, ...]:
    """All wheels that ``arguments`` name, in that order, without duplicates.

    Releases are looked up on the user's own index; ``python`` (``3.12``) restricts them to
    compatible wheels. At most ``most`` wheels of an index page are used (default: 50), and
    ``report`` is called with what was left out.
    Raises :class:`ConfigError` for an argument that names no wheel, before anything is fetched.
    """
    inputs: dict[tuple[str, str, str | None], Input] = {}
    for text in arguments:
        page = is_page(text)
        for item in (
            _of_page(text, cache, python, most, report)
            if page
            else _resolve_argument(text, cache, python)
        ):
            what = item.sha256 if isinstance(item, Offer) else item.problem
            place = item.place if isinstance(item, Offer) else str(item.path or item.place)
            # Conflicting claims about one address, or two names of one file, are all kept.
            inputs.setdefault((item.file, place, what), _input(item))
            if len(inputs) > _MOST:
                raise ConfigError(f"more than {_MOST} wheels", hint="Audit fewer at a time.")
    if not download:
        return tuple(inputs.values())
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return tuple(pool.map(lambda item: _downloaded(item, cache), inputs.values()))


def _input(item: Input | Offer) -> Input:
    if isinstance(item, Input):
        return item
    place = shown_url(item.place)
    return Input(item.file, place, sha256=item.sha256 or "", remote=True, offer=item)


def _resolve_argument(text: str, cache: Cache, python: str) -> Iterator[Input | Offer]:
    path = Path(text).expanduser()
    if "://" not in text and path.is_dir():
        wheels = sorted(_find_wheels_below(path))
        if not wheels:
            raise ConfigError(
                f"{safe_line(text, 200)}: no wheel in that directory or below it",
                hint=_HINT,
            )
        yield from (Input(each.name, str(each), each) for each in wheels)
        return
    if "://" not in text and path.is_file():  # a wrong name is a finding
        yield Input(path.name, str(path), path.absolute())
        return
    try:
        source = read_external(text)
    except ConfigError as error:
        raise ConfigError(
            error.message.removeprefix("--wheel "),
            hint=f"{_HINT} The address of an index page ends with / or .html.",
        ) from None
    if source.url:
        file = unquote(urlsplit(source.url).path).rpartition("/")[2]
        yield Offer(file, source.url, source.stated or None)
        return
    yield from _select_release_offers(
        source.name, source.version, _query_index_offers(source.name, cache), python
    )


def _of_page(
    text: str, cache: Cache, python: str, most: int | None, report: Callable[[Listing], object]
) -> Iterator[Input | Offer]:
    if cache.offline:
        raise ConfigError(
            f"{shown_url(text)}: an index page cannot be read with --offline",
            hint="Omit --offline, or name a directory.",
        )
    wheels, listing = wheels_on(text, python, most or _LISTED)
    report(listing)
    for listed in wheels:
        if listed.problem:
            place = shown_url(listed.offer.place)
            yield Input(listed.offer.file, place, problem=listed.problem)
        else:
            yield listed.offer


def _find_wheels_below(folder: Path) -> Iterator[Path]:
    """Those below a directory; links to directories are not followed."""
    for root, _, files in os.walk(folder, onerror=_unlisted):
        yield from (Path(root, name).absolute() for name in files if name.endswith(".whl"))


def _unlisted(error: OSError) -> None:
    raise ConfigError(
        f"{safe_line(error.filename, 200)} cannot be listed: {error.strerror}",
        hint="Name a readable directory, or individual files.",
    )


def _query_index_offers(name: str, cache: Cache) -> list[Offer]:
    if cache.offline:
        raise ConfigError(
            f"{name}: the index cannot be queried with --offline",
            hint="Omit --offline, or name a file.",
        )
    try:
        return list_wheel_offers(index_url(), name)
    except ConfigError as error:
        raise ConfigError(
            error.message, hint="Check UV_DEFAULT_INDEX and PIP_INDEX_URL, or name a file."
        ) from None


def _select_release_offers(
    name: str, version: str, offers: Sequence[Offer], python: str
) -> list[Offer]:
    """Its wheels for Windows, else for any platform; else an error lists what exists."""
    expected = parse_version(version)
    every = [
        (offer, named)
        for offer in offers
        if (named := plain_name(offer.file))
        and named.project == canonicalize_name(name)
        and expected in (named.version, parse_version(named.version.public))
    ]
    own, fits = for_windows(every, python)
    if fits:
        return sorted(fits, key=lambda offer: offer.file)
    there = ", ".join(sorted({o.file for o in own or [o for o, _ in every]})[:5])
    if not every:
        releases = {named.version for offer in offers if (named := plain_name(offer.file))}
        newest = sorted(releases, key=lambda one: (not one.is_prerelease, one), reverse=True)[:5]
        there = f"wheels of {', '.join(map(str, newest)) or 'no release'}"
    why = f" for Python {python}" if python else ""
    raise ConfigError(
        f"{safe_line(name, 80)}=={safe_line(version, 40)}: the index has no wheel for Windows{why}",
        hint=f"It has: {safe_line(there, 300)}."
        if offers
        else "It has no wheels of that project: check the spelling, name a file or an address, or "
        "build one: docs/recipes.md.",
    )


def _downloaded(named: Input, cache: Cache) -> Input:
    """The file of an offer, downloaded and verified; or why that failed."""
    item, place = named.offer, named.place
    if item is None:
        return named
    try:
        if item.sha256:
            (cached,) = fetch_all([item], cache)
        else:  # no sha256 is stated: whatever arrives is audited
            cached = fetch_url(item.file, item.place, "", cache)
            if item.size and cached.size != item.size:
                why = f"{cached.size} bytes, but its page states {item.size}"
                return Input(item.file, place, problem=why)
    except StorageError:
        raise  # a full disk is not a fault of the wheel
    except PipelineError as error:
        return Input(item.file, place, problem=error.message, sha256=item.sha256 or "")
    except (OSError, ValueError) as error:  # an invalid file or host name
        why = f"cannot be fetched: {safe_line(error, 300)}"
        return Input(item.file, place, problem=why, sha256=item.sha256 or "")
    path = cache.place(item.file, str(cached.sha256))
    return Input(item.file, place, path, item.sha256 or "", remote=True)
