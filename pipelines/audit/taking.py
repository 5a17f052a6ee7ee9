"""What is named on the line, as wheels on this machine: files, directories, releases, addresses.

Of a directory every wheel below it; of a release (``NAME==VERSION``) every wheel that its index
has for Windows, or for every platform where there is none. What cannot be had is kept with why:
among hundreds one that is gone must not hide the others. Of a page of an index the newest ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from pipelines.audit.listing import PLAIN, Listing, is_page, wheels_on
from pipelines.core.errors import ConfigError, PipelineError, StorageError
from pipelines.core.hosttext import line, shown_url
from pipelines.prebuilt.candidates import Offer, offers_of
from pipelines.prebuilt.fetching import fetch_all, fetch_url
from pipelines.prebuilt.given import read_given
from pipelines.toolchain.lock import Cache
from pipelines.toolchain.sources import index_url
from pipelines.wheels.tags import WINDOWS, misfit

_MOST = 10_000  # wheels of one command
_AT_ONCE = 4  # downloads
_LISTED = 50  # wheels of a page
_SUCH = "Name a file, a directory of wheels, an https address, or NAME==VERSION."


@dataclass(frozen=True)
class Taken:
    """A wheel, or why there is none."""

    file: str
    place: str
    """Where it is from, without what may be a password."""
    path: Path | None = None
    sha256: str = ""
    """As its place states it; empty: it does not."""
    problem: str = ""
    remote: bool = False


def take(
    asked: Sequence[str],
    cache: Cache,
    *,
    index: str = "",
    python: str = "",
    most: int | None = None,
    told: Callable[[Listing], object] = lambda _: None,
) -> tuple[Taken, ...]:
    """All that is named, in that order, no file twice.

    ``index`` (default: the user's own) is asked for releases; of these ``python`` (``3.12``)
    leaves the wheels that it takes. Of a page of an index ``most`` are taken (default: 50), and
    ``told`` is called with what was left out.
    Raises :class:`ConfigError` for what names no wheel at all, so that nothing is fetched before a
    slip of the pen is mended.
    """
    found: dict[tuple[str, str, str | None], Taken | Offer] = {}
    for text in asked:
        page = is_page(text)
        every = (
            _of_page(text, cache, python, most, told)
            if page
            else _named(text, cache, index, python)
        )
        for one in every:
            what = one.sha256 if isinstance(one, Offer) else one.problem
            place = one.place if isinstance(one, Offer) else str(one.path or one.place)
            # Of two lies about one address, or two names of one file, none is hidden.
            found.setdefault((one.file, place, what), one)
            if len(found) > _MOST:
                raise ConfigError(
                    f"more than {_MOST} wheels are named", hint="Name fewer at a time."
                )
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return tuple(pool.map(lambda one: _had(one, cache), found.values()))


def _named(text: str, cache: Cache, index: str, python: str) -> Iterator[Taken | Offer]:
    path = Path(text).expanduser()
    if "://" not in text and path.is_dir():
        wheels = sorted(_wheels(path))
        if not wheels:
            raise ConfigError(
                f"{line(text, 200)}: there is no wheel in that directory, nor below it",
                hint=_SUCH,
            )
        yield from (Taken(each.name, str(each), each) for each in wheels)
        return
    if "://" not in text and path.is_file():  # whatever it is called: that is a finding
        yield Taken(path.name, str(path), path.absolute())
        return
    try:
        given = read_given(text)
    except ConfigError as error:
        raise ConfigError(
            error.message.removeprefix("--wheel "),
            hint=f"{_SUCH} The address of a page ends with / or .html.",
        ) from None
    if given.url:
        file = unquote(urlsplit(given.url).path).rpartition("/")[2]
        yield Offer(file, given.url, given.stated or None)
        return
    yield from _of_release(given.name, given.version, _offers(index, given.name, cache), python)


def _of_page(
    text: str, cache: Cache, python: str, most: int | None, told: Callable[[Listing], object]
) -> Iterator[Taken | Offer]:
    if cache.offline:
        raise ConfigError(
            f"{shown_url(text)}: no page is read, for nothing is fetched",
            hint="Leave --offline out, or name a directory.",
        )
    wheels, listing = wheels_on(text, python, most or _LISTED)
    told(listing)
    for one in wheels:
        if one.problem:
            place = shown_url(one.offer.place)
            yield Taken(one.offer.file, place, problem=one.problem)
        else:
            yield one.offer


def _wheels(folder: Path) -> Iterator[Path]:
    """Those below a directory; links to directories are not followed."""
    for root, _, files in os.walk(folder, onerror=_unlisted):
        yield from (Path(root, name).absolute() for name in files if name.endswith(".whl"))


def _unlisted(error: OSError) -> None:
    raise ConfigError(
        f"{line(error.filename, 200)} cannot be listed: {error.strerror}",
        hint="Name a directory of which all may be read, or its files.",
    )


def _offers(index: str, name: str, cache: Cache) -> list[Offer]:
    if cache.offline:
        raise ConfigError(
            f"{name}: no index is asked, for nothing is fetched",
            hint="Leave --offline out, or name a file.",
        )
    try:
        return offers_of(index or index_url(), name)
    except ConfigError as error:
        raise ConfigError(
            error.message, hint="Look at UV_DEFAULT_INDEX and PIP_INDEX_URL, or name a file."
        ) from None


def _of_release(name: str, version: str, offers: Sequence[Offer], python: str) -> list[Offer]:
    """Those of Windows; else those of any platform; else the error says what there is."""
    every = {one: parse for one in offers if (parse := _parsed(one.file, name, version))}
    for kind in ("win_amd64", "any"):
        own = [one for one, tags in every.items() if kind in {tag.platform for tag in tags}]
        fits = [o for o in own if not python or not misfit(every[o], python, WINDOWS)]
        if fits:
            return sorted(fits, key=lambda one: one.file)
        if own:
            break
    there = ", ".join(sorted(one.file for one in own or every)[:5]) or "no wheel"
    why = f" for Python {python}" if python else ""
    raise ConfigError(
        f"{line(name, 80)}=={line(version, 40)}: the index has none for Windows{why}",
        hint=f"Of that release it has: {line(there, 300)}.",
    )


def _parsed(file: str, name: str, version: str) -> frozenset[Tag] | None:
    """The tags of a file's name, if it is a wheel of that release."""
    if not PLAIN.fullmatch(file):  # it becomes a file of ours
        return None
    try:
        own, release, _, tags = parse_wheel_filename(file)
        asked = Version(version)
    except (InvalidWheelFilename, InvalidVersion):
        return None
    same = asked in (release, Version(release.public))
    return tags if own == canonicalize_name(name) and same else None


def _had(one: Taken | Offer, cache: Cache) -> Taken:
    """The file of an offer, verified; or why it cannot be had."""
    if isinstance(one, Taken):
        return one
    place = shown_url(one.place)
    try:
        if one.sha256:
            (kept,) = fetch_all([one], cache)
        else:  # its place states none: what comes is what is looked at
            kept = fetch_url(one.file, one.place, "", cache)
            if one.size and kept.size != one.size:
                why = f"it has {kept.size} bytes, its page states {one.size}"
                return Taken(one.file, place, problem=why)
    except StorageError:
        raise  # a full disk here is nothing that is wrong with the wheel
    except PipelineError as error:
        return Taken(one.file, place, problem=error.message, sha256=one.sha256 or "")
    except (OSError, ValueError) as error:  # a name that no file can have, a host that none has
        why = f"it cannot be had: {line(error, 300)}"
        return Taken(one.file, place, problem=why, sha256=one.sha256 or "")
    path = cache.place(one.file, str(kept.sha256))
    return Taken(one.file, place, path, one.sha256 or "", remote=True)
