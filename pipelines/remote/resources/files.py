"""Pinned files in one directory: ``{path, files}``, each file ``{name, version, sha256, file}``.

They are uploaded before ``apply``, verified on arrival; there is nothing left to apply.
"""

from __future__ import annotations

import pathlib
from typing import Any

from ..files import sha256


def check(spec: dict[str, Any]) -> dict[str, Any]:
    """Whether every file is there with the pinned content."""
    good = 0
    for file in spec["files"]:
        path = pathlib.Path(file["file"])
        good += path.is_file() and sha256(str(path)) == file["sha256"]
    wanted = len(spec["files"])
    return {"ok": good == wanted, "found": f"{good} of {wanted} files"}


def plan(spec: dict[str, Any]) -> str:
    """The directory."""
    return f"upload what is missing into {spec['path']}"


def apply(spec: dict[str, Any]) -> None:
    """The upload did it; what is missing now was lost on the way."""
    missing = [f["file"] for f in spec["files"] if not pathlib.Path(f["file"]).is_file()]
    if missing:
        raise FileNotFoundError(f"not uploaded: {', '.join(missing)}")
