"""Parses ``--wheel``: an external wheel as a file, a release on an index or a URL.

External wheels are only tested; their placeholder recipe has no build settings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self
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
from pipelines.core.hosttext import remember_secret, safe_line
from pipelines.recipe.model import Recipe
from pipelines.wheels.tags import WINDOWS, tag_incompatibility

#: Names and versions that may become part of file names.
_PLAIN = re.compile(r"^\w[\w.+-]{0,79}\Z", re.ASCII)
_CP3 = re.compile(r"cp3(\d{1,3})")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_HINT = (
    "For example --wheel xgboost==3.2.0, --wheel dist/mine-1.0-cp311-cp311-win_amd64.whl, or a URL."
)


@dataclass(frozen=True, kw_only=True)
class ExternalWheel:
    """An external wheel to test, and what with."""

    requested: str
    """As typed, without anything that may be a password."""
    name: str
    """Canonical name."""
    version: str
    place: str = ""
    """A path or a URL; empty: the index."""
    stated: str = ""
    """The sha256 in its URL."""
    extras: tuple[str, ...] = ()
    tags: frozenset[Tag] = frozenset()
    """Of a file or URL; not known yet for a release."""
    companions: tuple[str, ...] = ()
    """``name==version`` of packages installed with it, whose libraries it finds."""
    script: Path | None = None
    """The user's test: a program, a pytest file or a directory of these."""

    @property
    def url(self) -> str:
        """Its URL, if it has one."""
        return self.place if "://" in self.place else ""

    @property
    def release(self) -> str:
        """``name[extras]==version``."""
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        return f"{self.name}{extras}=={self.version}"


def read_external(requested: str) -> ExternalWheel:
    """Parse ``--wheel``.

    Raises :class:`ConfigError` for anything but a wheel or exact version, and for a missing file.
    """
    if "://" in requested:
        try:
            at = read_address(requested)
        except ValueError as error:
            raise _invalid(*error.args) from None
        return _wheel_from_filename(at.shown, at.file, at.place, at.stated)
    path = Path(requested).expanduser()
    if (
        path.suffix == ".whl"
        or path.is_file()
        or path.is_dir()
        or "/" in requested
        or "\\" in requested
    ):
        if path.is_dir():
            raise _invalid(requested, "a directory; only one wheel is tested at a time")
        if not path.is_file():
            raise _invalid(requested, "no such file")
        return _wheel_from_filename(requested, path.name, str(path.absolute()))
    requirement = read_release("wheel", requested)
    version = next(iter(requirement.specifier)).version
    name = canonicalize_name(requirement.name)
    return _require_plain_name(
        ExternalWheel(
            requested=requested,
            name=name,
            version=version,
            extras=tuple(sorted(requirement.extras)),
        )
    )


def read_release(flag: str, requested: str) -> Requirement:
    """Parse ``name[extras]==version``; :class:`ConfigError` for anything else."""
    try:
        requirement = Requirement(requested)
    except InvalidRequirement:
        raise _invalid(requested, "expected NAME==VERSION", flag) from None
    pins = [
        each for each in requirement.specifier if each.operator == "==" and "*" not in each.version
    ]
    if len(pins) != 1 or len(requirement.specifier) != 1 or requirement.marker or requirement.url:
        raise ConfigError(
            f"--{flag} {safe_line(requested, 200)}: expected one version, as NAME==VERSION",
            hint=f"For example --{flag} {requirement.name}==1.2.3: the latest version changes.",
        )
    return requirement


class Address(NamedTuple):
    """An https address."""

    shown: str
    """Without anything that may be a password."""
    place: str
    file: str
    """The last part of its path."""
    stated: str
    """The sha256 in it, if any."""


def read_address(requested: str) -> Address:
    """Parse an address of one file; ``ValueError`` with the address and why it is none."""
    try:
        parts = urlsplit(requested)
        usable = bool(parts.hostname) and parts.port != 0
        port = f":{parts.port}" if parts.port else ""
    except ValueError:  # not shown: it may contain a password
        raise ValueError("https://", "expected the address of a file") from None
    user = None if parts.password else parts.username  # may be a token
    for text in (user, parts.password, parts.query):
        remember_secret(text or "")
        remember_secret(unquote(text or ""))
    address = f"{parts.scheme}://{parts.hostname}{port}{parts.path}"
    if parts.scheme != "https":
        raise ValueError(address, "expected https")
    if not usable:
        raise ValueError(address, "expected the address of a file")
    match = re.fullmatch(r"sha256=([0-9a-f]{64})", parts.fragment.lower())
    if parts.fragment and match is None:  # never silently ignored
        raise ValueError(address, "expected sha256= and 64 hexadecimal digits after #")
    file = unquote(parts.path).rpartition("/")[2]
    return Address(address, requested.partition("#")[0], file, match[1] if match else "")


def _wheel_from_filename(requested: str, file: str, place: str, stated: str = "") -> ExternalWheel:
    try:
        name, version, _, tags = parse_wheel_filename(file)
    except InvalidWheelFilename:
        raise _not_a_wheel(requested, file) from None
    if not _FILE.fullmatch(file):
        raise _invalid(requested, "its name has invalid characters")
    return _require_plain_name(
        ExternalWheel(
            requested=requested,
            name=name,
            version=str(version),
            place=place,
            stated=stated,
            tags=tags,
        )
    )


def _not_a_wheel(requested: str, file: str) -> ConfigError:
    try:
        parse_sdist_filename(file)
    except InvalidSdistFilename:
        return _invalid(requested, "not the name of a wheel")
    return ConfigError(
        f"--wheel {safe_line(requested, 200)}: a source distribution, not a wheel",
        hint="It cannot be built here. Write a recipe: see docs/recipes.md.",
    )


def _require_plain_name(made: ExternalWheel) -> ExternalWheel:
    for text in (made.name, made.version):
        if not _PLAIN.fullmatch(text):
            raise _invalid(
                made.requested, f"its name or version cannot be used: {safe_line(text, 80)}"
            )
    return made


def _invalid(requested: str, why: str, flag: str = "wheel") -> ConfigError:
    such = _HINT if flag == "wheel" else f"For example --{flag} nvidia-cublas-cu12==12.9.1.4."
    return ConfigError(f"--{flag} {safe_line(requested, 200)}: {why}", hint=such)


def refuse_incompatible(wheel: ExternalWheel, python: str, platforms: Sequence[str]) -> None:
    """Raise :class:`ConfigError` if the file's tags do not match the host."""
    if wheel.tags and (why := tag_incompatibility(wheel.tags, python, platforms)):
        raise ConfigError(
            f"--wheel {safe_line(wheel.requested, 200)}: {why}",
            hint=_incompatible_wheel_hint(wheel, python, platforms),
        )


def _incompatible_wheel_hint(wheel: ExternalWheel, python: str, platforms: Sequence[str]) -> str:
    """How to fix an incompatible ``--wheel``."""
    if {tag.platform for tag in wheel.tags}.intersection((*platforms, "any")):
        fits = {match[1] for tag in wheel.tags if (match := _CP3.fullmatch(tag.interpreter))}
        other = "".join(f"Use --python 3.{minor} if the host has it, or n" for minor in fits)
        return (
            f"{other or 'N'}ame its wheel for Python {python}; invoke plan lists a host's Pythons."
        )
    if platforms == WINDOWS:
        return "Name its win_amd64 wheel; test one for Linux on a host of kind local (--host)."
    return "Name its wheel for this machine; test one for Windows in a sandbox (--host)."


class _ExternalRecipe(Recipe):
    """A placeholder for an external wheel, without what a build needs."""

    name: Annotated[str, StringConstraints(pattern=_PLAIN)]
    version: Annotated[str, StringConstraints(pattern=_PLAIN)]
    kind: Literal["wheel"] = "wheel"
    strategy: Literal["prebuilt"] = "prebuilt"
    license: Literal[""] = ""
    source: None = None  # type: ignore[assignment]
    cuda: Literal[""] = ""
    archs: Literal[""] = ""
    build_requires: tuple[()] = ()

    @model_validator(mode="after")
    def _whole(self) -> Self:
        return self

    _agrees = _compiles = _whole  # checks of recipes that are built


def recipe_of(wheel: ExternalWheel) -> Recipe:
    """A placeholder recipe for it."""
    summary = f"{wheel.release}, an external wheel"
    return _ExternalRecipe(name=wheel.name, summary=summary, version=wheel.version)


def with_companions(
    wheel: ExternalWheel, companions: Iterable[str], script: str | None
) -> ExternalWheel:
    """Add ``--with`` and ``--script``; :class:`ConfigError` for a missing script.

    Also for two versions of one package, for which uv would only report "unsatisfiable".
    """
    known: dict[str, Requirement] = {}
    pins: dict[str, None] = {}
    for requirement in (read_release("with", text) for text in companions):
        requirement.name = canonicalize_name(requirement.name)
        if requirement.name == wheel.name:
            raise ConfigError(
                f"--with {safe_line(requirement, 200)}: already the tested wheel, {wheel.release}",
                hint="Omit it. Extras are added with --wheel NAME[EXTRA]==VERSION.",
            )
        if known.setdefault(requirement.name, requirement).specifier != requirement.specifier:
            raise ConfigError(
                f"--with {safe_line(requirement, 200)} conflicts with "
                f"{safe_line(known[requirement.name], 200)}",
                hint="Name one version of it.",
            )
        pins[str(requirement)] = None
    path = Path(script).expanduser().absolute() if script else None
    if path is not None and not path.exists():
        raise ConfigError(
            f"--script {safe_line(script, 200)}: there is no such file",
            hint=f"Paths are relative to {safe_line(Path.cwd(), 200)}.",
        )
    if path is not None and not path.is_dir() and (not path.is_file() or path.suffix != ".py"):
        raise ConfigError(
            f"--script {safe_line(script, 200)}: expected a .py file, or a directory of tests",
            hint="test_*.py is run by pytest, any other file as a program.",
        )
    return replace(wheel, companions=tuple(pins), script=path)
