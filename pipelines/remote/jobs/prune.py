"""How much room jobs take, and giving it back."""

from __future__ import annotations

import contextlib
import os
import pathlib
import time
from collections.abc import Iterator

from .. import facts, files, locks
from ..rpc import idempotent
from . import store

#: Beside a smoke test's job there is the wheel that it tests, in a directory of its name and this.
WHEEL = "-wheel"
_DAY = 86400.0
#: Days in which a job that has ended is fetched, or taken up again, in any case.
_FETCHED = 1.0
#: Days without a change after which nothing goes on with a file in TEMP: no build takes as long.
_FORGOTTEN = 7.0


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
    """Remove a job that nobody runs, or begins meanwhile, or has a file of open."""
    with contextlib.suppress(OSError):
        with (
            locks.claim(folder / store.STARTING) as mine,
            locks.claim(folder / store.ALIVE) as free,
        ):
            if not (mine and free):
                return False
            # First what makes it a job: what is left of an interrupted removal is none.
            (folder / store.SPEC).unlink(missing_ok=True)
            files.remove_tree(f"{folder}{WHEEL}")
            for entry in folder.iterdir():
                if entry.name not in (store.STARTING, store.ALIVE):
                    files.remove_tree(str(entry))
        return files.remove_tree(str(folder))
    return False


def _unheard(root: str, days: float) -> list[pathlib.Path]:
    """Jobs that do not run and were not heard of for so many days, the oldest first.

    And the wheels of smoke tests whose job is gone.
    """
    found = [
        (job["heard"], pathlib.Path(job["directory"]))
        for job in store.listed(root)
        if job["state"] != "running"
    ]
    for wheel in store.place(root).glob(f"smoke-*{WHEEL}"):
        if not wheel.with_name(wheel.name.removesuffix(WHEEL)).exists():
            # One of today may have been sent for a job that is about to start.
            found.append((wheel.stat().st_mtime + _DAY, wheel))
    return [folder for heard, folder in sorted(found) if time.time() - heard >= days * _DAY]


@idempotent
def prune(root: str, days: float) -> list[str]:
    """Remove jobs that do not run and were not heard of for so many days; their ids."""
    return [folder.name for folder in _unheard(root, days) if _remove(folder)]


def _touched(path: str) -> float:
    """When a file was changed or made: one that was just unpacked may be as old as its archive."""
    told = os.lstat(path)
    return max(told.st_mtime, told.st_ctime)


def _forgotten(temp: str) -> Iterator[pathlib.Path]:
    """What nobody has changed in ``temp`` for long."""
    for entry in store.place(temp).glob("*"):
        inside = (os.path.join(at, one) for at, _, names in os.walk(entry) for one in names)  # noqa: PTH118
        if time.time() - max(map(_touched, [str(entry), *inside])) > _FORGOTTEN * _DAY:
            yield entry


@idempotent
def make_room(root: str, temp: str, keep: list[str], least: int) -> list[str]:
    """Remove what is old until ``least`` bytes are free where ``root`` is; what was removed.

    First what lies forgotten in ``temp``, then jobs that do not run, the oldest first, but for
    those of today; nothing of a name in ``keep``, and nothing where there is room.
    """
    removed: list[str] = []
    if facts.disk(root)["free"] >= least:
        return removed
    for entry in _forgotten(temp):
        with contextlib.suppress(OSError):  # somebody has a file of it open
            if entry.name not in keep and files.remove_tree(str(entry)):
                removed.append(str(entry))
    for folder in _unheard(root, _FETCHED):
        if facts.disk(root)["free"] >= least:
            break
        if folder.name not in keep and _remove(folder):
            removed.append(str(folder))
    return removed
