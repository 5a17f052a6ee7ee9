"""The disk space used by jobs, and freeing it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import time
from collections.abc import Iterator

from .. import facts, files, locks
from ..rpc import idempotent
from . import store

#: Next to a smoke test's job is the wheel it tests, in a directory with its name plus this.
WHEEL = "-wheel"
#: Directory of the environments that builds run in: ``build tools`` of resources.yaml.
ENVIRONMENTS = "e"
_DAY = 86400.0
#: Days during which an ended job may still be downloaded or continued.
_FETCHED = 1.0
#: Days without a change after which a file in TEMP counts as unused: no build takes that long.
_FORGOTTEN = 7.0


class Sized(store.Listed):
    """A job, and its disk space."""

    bytes: int


@idempotent
def sizes(root: str) -> list[Sized]:
    """The jobs below ``root``, as :func:`store.listed` has them."""
    return [{**job, "bytes": _directory_bytes(job["directory"])} for job in store.listed(root)]


def _directory_bytes(directory: str) -> int:
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118
            except OSError:  # a running job changes its files
                continue
    return total


def _remove_idle_job(folder: pathlib.Path) -> bool:
    """Remove a job unless it is running, being started, or has an open file."""
    with contextlib.suppress(OSError):
        with (
            locks.claim(folder / store.STARTING) as mine,
            locks.claim(folder / store.ALIVE) as free,
        ):
            if not (mine and free):
                return False
            # First the file that makes it a job, so that an interrupted removal leaves none.
            (folder / store.SPEC).unlink(missing_ok=True)
            files.remove_tree(f"{folder}{WHEEL}")
            for entry in folder.iterdir():
                if entry.name not in (store.STARTING, store.ALIVE):
                    files.remove_tree(str(entry))
        return files.remove_tree(str(folder))
    return False


def _silent_jobs(root: str, days: float) -> list[pathlib.Path]:
    """Jobs that are not running and have been silent for so many days, oldest first.

    And the wheels of smoke tests, and environments of builds, whose jobs are gone.
    """
    directories = [
        (job["heard"], pathlib.Path(job["directory"]))
        for job in store.listed(root)
        if job["state"] != "running"
    ]
    for wheel in store.place(root).glob(f"smoke-*{WHEEL}"):
        if not wheel.with_name(wheel.name.removesuffix(WHEEL)).exists():
            # One of today may have been sent for a job that is about to start.
            directories.append((wheel.stat().st_mtime + _DAY, wheel))
    used = "".join(path.read_text("utf-8") for path in store.place(root).glob(f"*/{store.SPEC}"))
    for environment in store.place(root).glob(f"{ENVIRONMENTS}/*/"):
        if environment.name not in used:
            directories.append((environment.stat().st_mtime + _DAY, environment))
    return [folder for heard, folder in sorted(directories) if time.time() - heard >= days * _DAY]


@idempotent
def prune(root: str, days: float) -> list[str]:
    """Remove jobs that are not running and have been silent for so many days; their ids."""
    return [folder.name for folder in _silent_jobs(root, days) if _remove_idle_job(folder)]


def _last_change(path: str) -> float:
    """When a file was changed or created: an unpacked one may be as old as its archive."""
    status = os.lstat(path)
    return max(status.st_mtime, status.st_ctime)


def _unused_files(temp: str) -> Iterator[pathlib.Path]:
    """Files in ``temp`` that have not changed for a long time."""
    for entry in store.place(temp).glob("*"):
        inside = (os.path.join(at, name) for at, _, names in os.walk(entry) for name in names)  # noqa: PTH118
        if time.time() - max(map(_last_change, [str(entry), *inside])) > _FORGOTTEN * _DAY:
            yield entry


@idempotent
def make_room(root: str, temp: str, keep: list[str], least: int) -> list[str]:
    """Remove old files until ``least`` bytes are free on the disk of ``root``; what was removed.

    First unused files in ``temp``, then jobs that are not running, oldest first, except today's;
    nothing named in ``keep``, and nothing if there is enough space.
    """
    removed: list[str] = []
    if facts.disk(root)["free"] >= least:
        return removed
    for entry in _unused_files(temp):
        with contextlib.suppress(OSError):  # a file of it is open
            if entry.name not in keep and files.remove_tree(str(entry)):
                removed.append(str(entry))
    for folder in _silent_jobs(root, _FETCHED):
        if facts.disk(root)["free"] >= least:
            break
        if folder.name not in keep and _remove_idle_job(folder):
            removed.append(str(folder))
    return removed
