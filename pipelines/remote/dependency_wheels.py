"""Copies of prebuilt dependency wheels: their size, and their removal."""

from __future__ import annotations

import pathlib
import time

from . import files
from .rpc import idempotent


@idempotent
def sizes(root: str) -> list[int]:
    """The bytes of each directory below ``root``."""
    return [
        sum(p.lstat().st_size for p in folder.rglob("*")) for folder in _list_wheel_folders(root)
    ]


@idempotent
def prune(root: str, days: float) -> int:
    """Remove what was copied so many days ago; the count. Needed ones are copied again."""
    removed = 0
    for folder in _list_wheel_folders(root):
        if time.time() - folder.stat().st_mtime < days * 86400:
            continue
        try:
            removed += files.remove_tree(str(folder))
        except OSError:  # a file of it is open: next time
            continue
    return removed


def _list_wheel_folders(root: str) -> list[pathlib.Path]:
    return [path for path in pathlib.Path(root).glob("*") if path.is_dir()]
