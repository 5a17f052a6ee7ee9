"""Hands :mod:`.shares` to the program that builds, and reads what it has left."""

from __future__ import annotations

import inspect
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict, cast

from . import shares
from .shares import balance, calls, compiling, division, hook, linking, listed, ninjafile

_PACKAGE = "wcw_shares"
_MODULES = (balance, calls, compiling, division, hook, linking, listed, ninjafile)
_TOLD = "units.json"


class Given(TypedDict):
    """An object that another host has compiled."""

    unit: str
    path: str
    """On this host."""
    sha256: str


class Units(TypedDict, total=False):
    """What of a wheel's compile units a build is for."""

    mode: Literal["compile", "link"]
    share: Sequence[int]
    """Which one, from 1, of how many; to compile."""
    costs: Sequence[Sequence[object]]
    """Globs on the names of sources, and seconds that such a unit takes."""
    cost: float
    """Seconds of all others."""
    objects: Sequence[Given]
    """To link."""
    known: Sequence[str]
    """Ids of all units that those who compiled them have seen; empty: nobody says."""


class Unit(TypedDict):
    """A compile unit of the wheel."""

    id: str
    source: str
    output: str
    command: str
    """Its sha256."""
    seconds: float
    """That it is taken to need."""


class Object(TypedDict):
    """What was compiled of a unit."""

    unit: str
    path: str
    size: int
    sha256: str
    seconds: float
    """That it took; 0 where ninja's log has been lost."""


class Told(TypedDict, total=False):
    """What a build with ``units`` leaves, besides."""

    units: list[Unit]
    """All of the wheel's, as far as the build came by them."""
    objects: list[Object]
    """Of a share."""
    placed: list[str]
    """Ids of those that came from other hosts; of a link, as the next."""
    compiled: list[str]


def asked(spec: Mapping[str, object]) -> Units | None:
    """The units of a build's specification; raises ``ValueError`` for what makes no sense."""
    units = cast("Units | None", spec.get("units"))
    if units is None:
        return None
    if not spec.get("fixed"):
        raise ValueError("units are divided in reproducible builds alone: objects name their place")
    if units["mode"] == "compile":
        share, count = units["share"]
        if not 1 <= share <= count:
            raise ValueError(f"share {share}/{count}: expected one of 1/{count} to {count}/{count}")
    return units


def ordered(job: pathlib.Path, units: Units) -> str:
    """Write down what is asked for, and the program for it; the file that says so."""
    told, package = job / _TOLD, job / _PACKAGE
    told.unlink(missing_ok=True)
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text(inspect.getsource(shares), "utf-8")
    for module in _MODULES:
        name = module.__name__.rpartition(".")[2]
        (package / f"{name}.py").write_text(inspect.getsource(module), "utf-8")
    order = job / "units-order.json"
    places = {"told": str(told), "scratch": str(job / "unused"), "keep": str(job / "objects")}
    order.write_text(json.dumps({**units, **places}), "utf-8")
    return str(order)


def left(job: pathlib.Path) -> Told:
    """What a build that ended well has left; ``OSError`` when there is nothing."""
    return cast("Told", json.loads((job / _TOLD).read_text("utf-8")))
