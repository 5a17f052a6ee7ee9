"""Pinned files in one directory.

They are uploaded before ``apply``, verified on arrival; nothing is left to apply.
"""

from __future__ import annotations

import pathlib

from ..files import sha256
from . import Check, Kind, Pin


class Spec(Kind):
    """The desired state."""

    path: str
    files: list[Pin]


def check(spec: Spec) -> Check:
    """Whether every file exists with the pinned content; values are their sha256, by path."""
    paths = [file["file"] for file in spec["files"]]
    digests = {path: sha256(path) for path in paths if pathlib.Path(path).is_file()}
    good = sum(digests.get(file["file"]) == file["sha256"] for file in spec["files"])
    count = len(paths)
    return {"ok": good == count, "found": f"{good} of {count} files", "values": digests}


def plan(spec: Spec) -> str:
    """The directory."""
    return f"upload the missing files to {spec['path']}"


def apply(spec: Spec) -> None:
    """The upload did it; a file missing now was lost on the way."""
    missing = [f["file"] for f in spec["files"] if not pathlib.Path(f["file"]).is_file()]
    if missing:
        raise FileNotFoundError(f"not uploaded: {', '.join(missing)}")
