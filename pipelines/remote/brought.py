"""Wheels that were brought with one that others have built: their size, and their end."""

from __future__ import annotations

import pathlib
import time

from . import files
from .rpc import idempotent


@idempotent
def sizes(root: str) -> list[int]:
    """The bytes of each directory below ``root``."""
    return [sum(p.lstat().st_size for p in folder.rglob("*")) for folder in _folders(root)]


@idempotent
def prune(root: str, days: float) -> int:
    """Remove what was brought so many days ago; how many. What is needed is brought again."""
    removed = 0
    for folder in _folders(root):
        if time.time() - folder.stat().st_mtime < days * 86400:
            continue
        try:
            removed += files.remove_tree(str(folder))
        except OSError:  # somebody has a file of it open: the next time
            continue
    return removed


def _folders(root: str) -> list[pathlib.Path]:
    return [path for path in pathlib.Path(root).glob("*") if path.is_dir()]
