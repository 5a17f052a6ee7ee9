"""Programs that a build starts: they must be there, and are never installed by us."""

from __future__ import annotations

import os
import pathlib
import shutil

from . import Check, Kind, RefusedError


class Spec(Kind):
    """What is wanted."""

    names: list[str]
    places: list[str]
    """Directories that builds look in before PATH."""


def find(name: str, search: str) -> str | None:
    """The path of a program: in ``search`` (as PATH is written), or where rustup puts cargo."""
    found = shutil.which(name, path=search)
    if found is None and name == "cargo":  # for whoever has no new PATH yet
        home = pathlib.Path(os.environ.get("CARGO_HOME") or pathlib.Path.home() / ".cargo")
        found = shutil.which(name, path=str(home / "bin"))
    return found


def _paths(spec: Spec) -> tuple[dict[str, str], list[str]]:
    """Name -> path of those that are there, and the names of the others."""
    search = os.pathsep.join([*spec["places"], os.environ.get("PATH", "")])
    found = {name: find(name, search) for name in spec["names"]}
    there = {name: path for name, path in found.items() if path}
    return there, [name for name in found if name not in there]


def check(spec: Spec) -> Check:
    """Look for them; values are their paths."""
    there, missing = _paths(spec)
    parts = [*there.values(), *([f"not there: {', '.join(missing)}"] if missing else [])]
    return {"ok": not missing, "found": "; ".join(parts), "values": there}


def plan(spec: Spec) -> str:
    """What a person has to do, unless it comes with what is provisioned before."""
    return f"stop if it is not there by then: {_hint(spec)}"


def apply(spec: Spec) -> None:
    """Refuse, with what would help."""
    missing = ", ".join(_paths(spec)[1])
    raise RefusedError(f"the build starts {missing}, and it is not there", hint=_hint(spec))


def _hint(spec: Spec) -> str:
    looked = ", ".join([*spec["places"], "PATH"])
    return f"install {', '.join(_paths(spec)[1])} there; looked for in {looked}"
