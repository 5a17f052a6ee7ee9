"""A directory that can be written to: ``{path}``."""

from __future__ import annotations

import os
import pathlib
from typing import Any

from .. import protected_dirs
from . import RefusedError


def check(spec: dict[str, Any]) -> dict[str, Any]:
    """Whether it is there and writable."""
    path = pathlib.Path(spec["path"])
    if not path.exists():
        return {"ok": False, "found": "missing"}
    if not path.is_dir():
        return {"ok": False, "found": "a file"}
    return {"ok": os.access(path, os.W_OK), "found": "there"}


def plan(spec: dict[str, Any]) -> str:
    """The directory."""
    return f"make {spec['path']}"


def apply(spec: dict[str, Any]) -> None:
    """Make it, and what is above it; a file of that name is not ours to remove."""
    path = pathlib.Path(spec["path"])
    try:
        protected_dirs.make(path)
    except FileExistsError:
        raise RefusedError(
            f"{path} is a file, a directory is wanted", advice="Move it away on the host."
        ) from None
