"""Programs run by a build: they must exist, and the pipeline never installs them."""

from __future__ import annotations

import os
import pathlib
import shutil

from . import Check, Kind, RefusedError


class Spec(Kind):
    """The desired state."""

    names: list[str]
    places: list[str]
    """Directories that builds search before PATH."""


def find(name: str, search: str) -> str | None:
    """The path of a program: in ``search`` (in PATH's format), or where rustup puts cargo."""
    program = shutil.which(name, path=search)
    if program is None and name == "cargo":  # before the new PATH takes effect
        home = pathlib.Path(os.environ.get("CARGO_HOME") or pathlib.Path.home() / ".cargo")
        program = shutil.which(name, path=str(home / "bin"))
    return program


def _locate_commands(spec: Spec) -> tuple[dict[str, str], list[str]]:
    """Name -> path of the existing ones, and the names of the others."""
    search = os.pathsep.join([*spec["places"], os.environ.get("PATH", "")])
    paths = {name: find(name, search) for name in spec["names"]}
    there = {name: path for name, path in paths.items() if path}
    return there, [name for name in paths if name not in there]


def check(spec: Spec) -> Check:
    """Look for them; values are their paths."""
    there, missing = _locate_commands(spec)
    parts = [*there.values(), *([f"missing: {', '.join(missing)}"] if missing else [])]
    return {"ok": not missing, "found": "; ".join(parts), "values": there}


def plan(spec: Spec) -> str:
    """What the user has to do, unless an earlier resource installs it."""
    return f"stop if it is still missing then: {_missing_commands_hint(spec)}"


def apply(spec: Spec) -> None:
    """Refuse, with a hint."""
    missing = ", ".join(_locate_commands(spec)[1])
    raise RefusedError(
        f"the build runs {missing}, which is missing", hint=_missing_commands_hint(spec)
    )


def _missing_commands_hint(spec: Spec) -> str:
    looked = ", ".join([*spec["places"], "PATH"])
    return f"install {', '.join(_locate_commands(spec)[1])} there; searched: {looked}"
