"""What others have released, by pages of indexes and tags of repositories; none is trusted.

A page that cannot be read is an error, and so is one without what the lock or a recipe has from it:
with an old copy, half a page or another server's page it would seem that nothing is new.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from pipelines.core.errors import LockError, PipelineError
from pipelines.core.hosttext import safe_line, shown_url
from pipelines.core.units import join_first
from pipelines.core.versions import parse_version
from pipelines.core.workers import run_isolated
from pipelines.plan.prebuilt.indexpage import Listed, listed_on, read_page
from pipelines.recipe.sourcetree import sdist_files
from pipelines.toolchain.indexpage import IndexPage
from pipelines.toolchain.obtaining import download_source
from pipelines.toolchain.sources import Source

_SECONDS = 120  # for one file
_LONGEST = 200  # characters of a file's name, as in a catalogue
_DOTS = 24  # in a wheel's tags: manylinux wheels have 4
_REFS = 32 << 20  # bytes: pytorch's own repository has 20 MB of them
_SDIST = 1 << 30  # bytes
_TAG = re.compile(r"refs/tags/(?:v|release[-/])?(\d[\w.+!-]{0,60})(\^\{\})?")
_AGAIN = "What is new could not be determined. Try again later."
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class File:
    """A file on a page, with what its name says."""

    name: str
    version: Version
    tags: frozenset[str]
    """Of a wheel; none: a source distribution."""
    url: str
    sha256: str
    """As the page states it; empty: it does not."""
    yanked: bool


@dataclass(frozen=True)
class Project:
    """All files of a project that an index has."""

    name: str
    place: str
    files: tuple[File, ...]

    def releases(self, *, pre: bool = False) -> dict[Version, list[File]]:
        """Files by public version, oldest first: none that is yanked, pre-releases if asked for."""
        found: dict[Version, list[File]] = {}
        for one in sorted(self.files, key=lambda one: one.version):
            public = Version(one.version.public)
            if not one.yanked and (pre or not public.is_prerelease):
                found.setdefault(public, []).append(one)
        return found

    def require(self, known: Iterable[tuple[str, str]]) -> None:
        """Raise :class:`LockError` unless it has these files, with these sha256 where both have."""
        here: dict[str, list[File]] = {}
        for one in self.files:
            here.setdefault(one.name, []).append(one)
        for name, sha256 in known:
            if name not in here:
                raise LockError(
                    f"{self.place} does not list {name}, which is pinned here: the page is "
                    "outdated or incomplete",
                    hint=_AGAIN,
                )
            stated = {one.sha256 for one in here[name]} - {"", sha256}
            if stated and sha256:
                raise LockError(
                    f"{self.place} states sha256 {min(stated)} for {name}, but {sha256} is pinned",
                    hint="Published files must never change. Report it to the maintainer of that "
                    "index, and install nothing new from it.",
                )


@dataclass(frozen=True)
class Tags:
    """What a repository has released."""

    place: str
    head: str
    """The commit of its main branch."""
    releases: Mapping[Version, str] = field(default_factory=dict)
    """By the versions that its tags name: the commit."""


def read_projects(places: Mapping[str, str]) -> dict[str, Project]:
    """Each of these projects (name -> address of its page), read in processes of their own.

    Raises :class:`LockError` for a page that cannot be read, ends before its end, or is not that
    project's.
    """
    for url in places.values():
        if not url.startswith("https://"):
            raise LockError(
                f"{shown_url(url)}: only indexes with TLS are supported",
                hint="Set UV_DEFAULT_INDEX or PIP_INDEX_URL to an https address.",
            )
    pages = _apart(read_page, [*places.values()])
    return {name: _project_from_page(name, url, pages[url]) for name, url in places.items()}


def _project_from_page(name: str, url: str, page: IndexPage) -> Project:
    place = shown_url(url)
    if not page.ended:
        raise LockError(f"{place}: the page is truncated", hint=_AGAIN)
    listed = map(listed_on, page.files)
    files = tuple(
        filter(None, (_parse_listed_file(canonicalize_name(name), one, place) for one in listed))
    )
    if not files:
        raise LockError(f"{place}: it has no file of {name}", hint=_AGAIN)
    return Project(name, place, files)


def _parse_listed_file(project: str, listed: Listed, place: str) -> File | None:
    """With what its name says; ``None`` for what is no file of the project, or has another form."""
    offer = listed.offer
    tags: frozenset[str] = frozenset()
    # Each tag of three is crossed with the others; a number may be too long even to be read.
    if len(offer.file) > _LONGEST or ".".join(offer.file.split("-")[2:]).count(".") > _DOTS:
        return None
    try:
        if offer.file.endswith(".whl"):
            name, version, _, found = parse_wheel_filename(offer.file)
            tags = frozenset(map(str, found))
        else:
            name, version = parse_sdist_filename(offer.file)
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return None
    if name != project:
        return None
    if listed.problem:
        raise LockError(f"{place}: {safe_line(offer.file, 120)}: {listed.problem}", hint=_AGAIN)
    return File(offer.file, version, tags, offer.place, offer.sha256 or "", listed.yanked)


def read_tags(repositories: Sequence[str]) -> dict[str, Tags]:
    """Tags and main branch of each, as git's own protocol lists them, without git or a token.

    Raises :class:`LockError` for one that cannot be read.
    """
    return _apart(_fetch_git_tags, repositories)


def _fetch_git_tags(repository: str) -> Tags:
    """https://git-scm.com/docs/gitprotocol-http: a line is four hex digits of length, then text."""
    url = f"{repository.removesuffix('/').removesuffix('.git')}.git/info/refs"
    data = fetch_bounded(f"{url}?service=git-upload-pack", _REFS)
    refs: dict[str, str] = {}
    place, ends = 0, 0
    while place < len(data):
        try:
            length = int(data[place : place + 4], 16)
        except ValueError:
            length = -1
        if length in (0, 4):
            ends += length == 0
        elif length < 4 or place + length > len(data):  # noqa: PLR2004 - of the length itself
            break
        text = data[place + 4 : place + length].decode("utf-8", "replace")
        commit, _, name = text.partition("\0")[0].strip().partition(" ")
        if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", commit):
            refs[name] = commit
        place += length or 4
    if place != len(data) or ends != 2 or "HEAD" not in refs:  # noqa: PLR2004 - of head and of list
        raise LockError(f"{shown_url(url)}: git's list of references is incomplete", hint=_AGAIN)
    found: dict[Version, str] = {}
    tags = [name for name in refs if name.startswith("refs/tags/")]
    for name, commit in sorted(refs.items()):  # what a tag points at follows it, with ^{}
        if (tag := _TAG.fullmatch(name)) and (version := parse_version(tag[1])):
            found[version] = commit
    if tags and not found:
        raise LockError(
            f"{shown_url(url)}: none of its {len(tags)} tags is a release; for example "
            f"{safe_line(min(tags).removeprefix('refs/tags/'), 60)}",
            hint="Its tags have a form that pipelines/publish/watch/pages.py does not know.",
        )
    return Tags(shown_url(repository), refs["HEAD"], found)


def read_texts(urls: Sequence[str], most: int) -> dict[str, bytes]:
    """The bytes at each address, at most ``most`` of each; :class:`LockError` where it has none."""
    return _apart(partial(fetch_bounded, most=most), urls)


def read_members(urls: Sequence[str], names: tuple[str, ...]) -> dict[str, dict[str, bytes]]:
    """Of each source distribution the files of these names, as seen from its top."""
    return _apart(partial(_fetch_sdist_members, names=names), urls)


def _fetch_sdist_members(url: str, names: tuple[str, ...]) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as room:
        path = Path(room) / "sdist"
        path.write_bytes(fetch_bounded(url, _SDIST))
        return {name: data for name, data in sdist_files(path) if name in names}


def fetch_bounded(url: str, most: int) -> bytes:
    """What is at an https address, of at most ``most`` bytes; :class:`LockError` why not."""

    def step(done: int, _: int) -> None:
        if done > most:
            raise LockError(f"it has more than {most} bytes")
        if time.monotonic() > until:
            raise LockError(f"it took longer than {_SECONDS} s")

    until = time.monotonic() + _SECONDS
    try:
        with tempfile.TemporaryDirectory() as room:
            path = Path(room) / "data"
            download_source(Source(file="data", url=url), path, step)
            return path.read_bytes()
    except (OSError, ValueError) as error:  # whose text has the address, with all that is in it
        why = f"it cannot be fetched: {type(error).__name__}"
    except LockError as error:
        why = error.message
    raise LockError(f"{shown_url(url)}: {safe_line(why, 200)}", hint=_AGAIN)


def _apart(work: Callable[[Item], Result], items: Sequence[Item]) -> dict[Item, Result]:
    """Of each item what ``work`` makes of it, in processes that are ended when they take long."""
    made: dict[Item, Result] = {}
    wrong: list[str] = []
    for number, one in run_isolated(work, items, 2, _SECONDS + 10):
        if isinstance(one, PipelineError):
            wrong.append(one.message)
        elif isinstance(one, Exception):
            wrong.append(f"{safe_line(items[number], 200)}: {type(one).__name__}")
        else:
            made[items[number]] = one
    if wrong:
        raise LockError(join_first(wrong, "\n"), hint=_AGAIN)
    return {item: made[item] for item in items}
