"""Pinned files in one directory.

They are uploaded before ``apply``, verified on arrival; there is nothing left to apply.
"""

from __future__ import annotations

import pathlib

from ..files import sha256
from . import Check, Kind, Pin


class Spec(Kind):
    """What is wanted."""

    path: str
    files: list[Pin]


def check(spec: Spec) -> Check:
    """Whether every file is there with the pinned content; values are their sha256, by path."""
    paths = [file["file"] for file in spec["files"]]
    found = {path: sha256(path) for path in paths if pathlib.Path(path).is_file()}
    good = sum(found.get(file["file"]) == file["sha256"] for file in spec["files"])
    wanted = len(paths)
    return {"ok": good == wanted, "found": f"{good} of {wanted} files", "values": found}


def plan(spec: Spec) -> str:
    """The directory."""
    return f"upload what is missing into {spec['path']}"


def apply(spec: Spec) -> None:
    """The upload did it; what is missing now was lost on the way."""
    missing = [f["file"] for f in spec["files"] if not pathlib.Path(f["file"]).is_file()]
    if missing:
        raise FileNotFoundError(f"not uploaded: {', '.join(missing)}")
