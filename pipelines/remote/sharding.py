"""Passes :mod:`.shards` to the building program, and reads its results."""

from __future__ import annotations

import inspect
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict, cast

from . import shards
from .shards import balance, calls, compile_units, compiling, division, hook, linking, ninjafile

_PACKAGE = "wcw_shares"
_MODULES = (balance, calls, compiling, division, hook, linking, compile_units, ninjafile)
_REPORT = "units.json"


class ForeignObject(TypedDict):
    """An object compiled on another host."""

    unit: str
    path: str
    """Path on this host."""
    sha256: str


class Units(TypedDict, total=False):
    """Which compile units of a wheel a build handles."""

    mode: Literal["compile", "link"]
    share: Sequence[int]
    """The index, from 1, and the count; to compile."""
    costs: Sequence[Sequence[object]]
    """Globs on source names, and seconds that such a unit takes."""
    cost: float
    """Seconds of all others."""
    objects: Sequence[ForeignObject]
    """To link."""
    read: Mapping[str, str]
    """Files that other hosts' compilers read for these: paths and their sha256 there."""
    known: Sequence[str]
    """Ids of all units seen where they were compiled; empty: unknown."""


class Unit(TypedDict):
    """A compile unit of the wheel."""

    id: str
    source: str
    output: str
    command: str
    """Its sha256."""
    seconds: float
    """Estimated seconds."""


class Object(TypedDict):
    """The object of a unit."""

    unit: str
    path: str
    size: int
    sha256: str
    seconds: float
    """Actual seconds; 0 if ninja's log has been lost."""


class ShardReport(TypedDict, total=False):
    """Additional results of a build with ``units``."""

    units: list[Unit]
    """All units of the wheel that the build reached."""
    objects: list[Object]
    """Of a shard."""
    read: dict[str, str]
    """Of a shard: each file that its compilers have read, by path, and its sha256."""
    placed: list[str]
    """Ids of those that came from other hosts; of a link, like the next."""
    compiled: list[str]


def requested_units(spec: Mapping[str, object]) -> Units | None:
    """The units of a build's specification; raises ``ValueError`` for invalid ones."""
    units = cast("Units | None", spec.get("units"))
    if units is None:
        return None
    if not spec.get("fixed"):
        raise ValueError("only reproducible builds can be sharded: objects contain their path")
    if units["mode"] == "compile":
        share, count = units["share"]
        if not 1 <= share <= count:
            raise ValueError(f"shard {share}/{count}: expected one of 1/{count} to {count}/{count}")
    return units


def ordered(job: pathlib.Path, units: Units) -> str:
    """Write the order and its program; returns the order's file."""
    report, package = job / _REPORT, job / _PACKAGE
    report.unlink(missing_ok=True)
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text(inspect.getsource(shards), "utf-8")
    for module in _MODULES:
        name = module.__name__.rpartition(".")[2]
        (package / f"{name}.py").write_text(inspect.getsource(module), "utf-8")
    order = job / "units-order.json"
    places = {"report": str(report), "scratch": str(job / "unused"), "keep": str(job / "objects")}
    order.write_text(json.dumps({**units, **places}), "utf-8")
    return str(order)


def left(job: pathlib.Path) -> ShardReport:
    """The results of a successful build; ``OSError`` if there are none."""
    return cast("ShardReport", json.loads((job / _REPORT).read_text("utf-8")))
