"""A writable directory."""

from __future__ import annotations

import os
import pathlib

from .. import protected_dirs
from . import Check, Kind, RefusedError


class Spec(Kind):
    """The desired state."""

    path: str


def check(spec: Spec) -> Check:
    """Whether it exists and is writable."""
    path = pathlib.Path(spec["path"])
    if not path.exists():
        return {"ok": False, "found": "missing", "values": {}}
    if not path.is_dir():
        return {"ok": False, "found": "a file", "values": {}}
    return {"ok": os.access(path, os.W_OK), "found": "there", "values": {}}


def plan(spec: Spec) -> str:
    """The directory."""
    return f"make {spec['path']}"


def apply(spec: Spec) -> None:
    """Create it and its parents; a file of that name is not removed."""
    path = pathlib.Path(spec["path"])
    try:
        protected_dirs.make(path)
    except FileExistsError:
        raise RefusedError(
            f"{path} is a file, expected a directory", hint="Move it away on the host."
        ) from None
