"""How much room jobs take, and giving it back."""

from __future__ import annotations

import os
import pathlib
import time

from .. import files, locks
from ..rpc import idempotent
from . import store


class Sized(store.Listed):
    """A job, and how much of the disk it takes."""

    bytes: int


@idempotent
def sizes(root: str) -> list[Sized]:
    """The jobs below ``root``, as :func:`store.listed` has them."""
    return [{**job, "bytes": _bytes(job["directory"])} for job in store.listed(root)]


def _bytes(directory: str) -> int:
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118
            except OSError:  # a job that runs comes and goes
                continue
    return total


def _remove(folder: pathlib.Path) -> bool:
    """Remove a job that nobody runs, or begins meanwhile."""
    with (
        locks.claim(folder / store.STARTING) as mine,
        locks.claim(folder / store.ALIVE) as free,
    ):
        if not (mine and free):
            return False
        # First what makes it a job: what is left of an interrupted removal is none.
        (folder / store.SPEC).unlink(missing_ok=True)
        for entry in folder.iterdir():
            if entry.name not in (store.STARTING, store.ALIVE):
                files.remove_tree(str(entry))
    files.remove_tree(str(folder))
    return True


@idempotent
def prune(root: str, days: float) -> list[str]:
    """Remove jobs that do not run and were not heard of for so many days; their ids."""
    removed = []
    for job in store.listed(root):
        folder = pathlib.Path(job["directory"])
        if job["state"] == "running" or time.time() - job["heard"] < days * 86400:
            continue
        try:
            if _remove(folder):
                removed.append(str(job["id"]))
        except OSError:  # somebody has a file of it open: the next time
            continue
    return removed
