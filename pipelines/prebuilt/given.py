"""A wheel that somebody else made, as it is asked for: a file, a release on an index, a URL.

It is tested and nothing else: the recipe that stands for it says nothing of how it is built.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.tags import Tag
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from pydantic import StringConstraints, model_validator

from pipelines.core.errors import ConfigError
from pipelines.core.hosttext import line, secret
from pipelines.recipe.model import Recipe
from pipelines.wheels.tags import WINDOWS, misfit

#: What becomes part of names and of the record.
_PLAIN = re.compile(r"^\w[\w.+-]{0,79}\Z", re.ASCII)
_CP3 = re.compile(r"cp3(\d{1,3})")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_SUCH = "Such as --wheel xgboost==3.2.0, --wheel dist/mine-1.0-cp311-cp311-win_amd64.whl, or a URL."


@dataclass(frozen=True, kw_only=True)
class Given:
    """What is to be tested, and with what."""

    asked: str
    """As it was typed, without what may be a password."""
    name: str
    """As an index has it."""
    version: str
    place: str = ""
    """A path or a URL; empty: the index."""
    stated: str = ""
    """The sha256 that its URL states."""
    extras: tuple[str, ...] = ()
    tags: frozenset[Tag] = frozenset()
    """Of a file or URL; those of a release are not known yet."""
    beside: tuple[str, ...] = ()
    """``name==version`` of what is installed besides, whose libraries are found."""
    script: Path | None = None
    """Of the user's: a program, a file of pytest's or a directory of them."""

    @property
    def url(self) -> str:
        """Its address, if it has one."""
        return self.place if "://" in self.place else ""

    @property
    def release(self) -> str:
        """``name[extras]==version``."""
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        return f"{self.name}{extras}=={self.version}"


def read_given(asked: str) -> Given:
    """What ``--wheel`` says.

    Raises :class:`ConfigError` for what names no wheel, no version, or a file that is not here.
    """
    if "://" in asked:
        return _at_url(asked)
    path = Path(asked).expanduser()
    if path.suffix == ".whl" or path.is_file() or path.is_dir() or "/" in asked or "\\" in asked:
        if path.is_dir():
            raise _not(asked, "that is a directory, and one wheel is tested at a time")
        if not path.is_file():
            raise _not(asked, "there is no such file")
        return _named(asked, path.name, str(path.absolute()))
    one = read_release("wheel", asked)
    version = next(iter(one.specifier)).version
    name = canonicalize_name(one.name)
    return _plain(Given(asked=asked, name=name, version=version, extras=tuple(sorted(one.extras))))


def read_release(flag: str, asked: str) -> Requirement:
    """``name[extras]==version``, or :class:`ConfigError`: what is tested is one release."""
    try:
        one = Requirement(asked)
    except InvalidRequirement:
        raise _not(asked, "expected NAME==VERSION", flag) from None
    pins = [each for each in one.specifier if each.operator == "==" and "*" not in each.version]
    if len(pins) != 1 or len(one.specifier) != 1 or one.marker or one.url:
        raise ConfigError(
            f"--{flag} {line(asked, 200)}: expected one version, as NAME==VERSION",
            hint=f"Such as --{flag} {one.name}==1.2.3: another day brings another latest one.",
        )
    return one


def _at_url(asked: str) -> Given:
    try:
        parts = urlsplit(asked)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:  # whatever is in it may be a password
        raise _not("https://", "expected the address of a wheel") from None
    user = None if parts.password else parts.username  # a token may stand alone
    for text in (user, parts.password, parts.query):
        secret(text or "")
        secret(unquote(text or ""))
    said = f"{parts.scheme}://{parts.hostname}{parts.path}"
    if parts.scheme != "https":
        raise _not(said, "expected https")
    if not usable:
        raise _not(said, "expected the address of a wheel")
    found = re.fullmatch(r"sha256=([0-9a-f]{64})", parts.fragment.lower())
    if parts.fragment and found is None:  # what was to be compared is not left out in silence
        raise _not(said, "behind # is expected sha256= and 64 hexadecimal digits")
    place = asked.partition("#")[0]
    return _named(said, unquote(parts.path).rpartition("/")[2], place, found[1] if found else "")


def _named(asked: str, file: str, place: str, stated: str = "") -> Given:
    try:
        name, version, _, tags = parse_wheel_filename(file)
    except InvalidWheelFilename:
        raise _no_wheel(asked, file) from None
    if not _FILE.fullmatch(file):
        raise _not(asked, "its name has characters that no wheel's has")
    return _plain(
        Given(asked=asked, name=name, version=str(version), place=place, stated=stated, tags=tags)
    )


def _no_wheel(asked: str, file: str) -> ConfigError:
    try:
        parse_sdist_filename(file)
    except InvalidSdistFilename:
        return _not(asked, "its name is not a wheel's")
    return ConfigError(
        f"--wheel {line(asked, 200)}: that is a source distribution, not a wheel",
        hint="Nothing is built of it here. Write a recipe: docs/recipes.md has a whole one.",
    )


def _plain(made: Given) -> Given:
    for text in (made.name, made.version):
        if not _PLAIN.fullmatch(text):
            raise _not(made.asked, f"its name or version cannot be used: {line(text, 80)}")
    return made


def _not(asked: str, why: str, flag: str = "wheel") -> ConfigError:
    such = _SUCH if flag == "wheel" else f"Such as --{flag} nvidia-cublas-cu12==12.9.1.4."
    return ConfigError(f"--{flag} {line(asked, 200)}: {why}", hint=such)


def refuse_misfit(given: Given, python: str, platforms: Sequence[str]) -> None:
    """Raise :class:`ConfigError` where the name of a file says that it is for something else."""
    if given.tags and (why := misfit(given.tags, python, platforms)):
        raise ConfigError(
            f"--wheel {line(given.asked, 200)}: {why}", hint=_hint(given, python, platforms)
        )


def _hint(given: Given, python: str, platforms: Sequence[str]) -> str:
    """What to type for a wheel that does not fit."""
    if {tag.platform for tag in given.tags}.intersection((*platforms, "any")):
        fits = {found[1] for tag in given.tags if (found := _CP3.fullmatch(tag.interpreter))}
        other = "".join(f"Type --python 3.{minor}, if the host has it, or n" for minor in fits)
        return f"{other or 'N'}ame its wheel for Python {python}: invoke plan shows a host's."
    if platforms == WINDOWS:
        return "Name its win_amd64 wheel; one for Linux is tested on a host of kind local: --host."
    return "Name its wheel for this machine; one for Windows is tested in a sandbox: --host."


class _Standing(Recipe):
    """Stands for a wheel that is given: what a build needs is not there."""

    name: Annotated[str, StringConstraints(pattern=_PLAIN)]
    version: Annotated[str, StringConstraints(pattern=_PLAIN)]
    kind: Literal["wheel"] = "wheel"
    strategy: Literal["prebuilt"] = "prebuilt"
    licence: Literal[""] = ""
    source: None = None  # type: ignore[assignment]
    cuda: Literal[""] = ""
    archs: Literal[""] = ""
    build_requires: tuple[()] = ()

    @model_validator(mode="after")
    def _whole(self) -> Self:
        return self

    _agrees = _compiles = _whole  # what a recipe that builds something must fulfil


def recipe_of(given: Given) -> Recipe:
    """What stands for it where a recipe is asked for; nothing in it says how it would be built."""
    summary = f"{given.release}, as others built it"
    return _Standing(name=given.name, summary=summary, version=given.version)


def with_all(given: Given, beside: Iterable[str], script: str | None) -> Given:
    """What else was asked for; :class:`ConfigError` for a script that is not here.

    Also for two versions of one thing, of which an index would say no more than "unsatisfiable".
    """
    known: dict[str, Requirement] = {}
    said: dict[str, None] = {}
    for one in (read_release("with", text) for text in beside):
        one.name = canonicalize_name(one.name)
        if one.name == given.name:
            raise ConfigError(
                f"--with {line(one, 200)}: that is the wheel that is tested, {given.release}",
                hint="Leave it out. Its extras are named so: --wheel NAME[EXTRA]==VERSION.",
            )
        if known.setdefault(one.name, one).specifier != one.specifier:
            raise ConfigError(
                f"--with {line(one, 200)}: {line(known[one.name], 200)} was asked for as well",
                hint="Name one version of it.",
            )
        said[str(one)] = None
    path = Path(script).expanduser().absolute() if script else None
    if path is not None and not path.exists():
        raise ConfigError(
            f"--script {line(script, 200)}: there is no such file",
            hint=f"Its name is taken from {line(Path.cwd(), 200)}: mind its spelling.",
        )
    if path is not None and not path.is_dir() and (not path.is_file() or path.suffix != ".py"):
        raise ConfigError(
            f"--script {line(script, 200)}: expected a .py file, or a directory of tests",
            hint="A file called test_*.py is run by pytest, any other as a program.",
        )
    return replace(given, beside=tuple(said), script=path)
