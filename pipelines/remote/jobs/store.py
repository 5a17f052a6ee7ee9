"""What is on the host's disk about jobs: reading it, and telling whether a job still runs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

from .. import files
from ..files import Result, long_path
from ..locks import claim
from ..rpc import idempotent

SPEC, ALIVE, STATE, RESULT, CANCEL = "spec.json", "alive", "state.json", "result.json", "cancel"
#: Held by whoever starts the job, or removes it.
STARTING = "starting"
#: Seconds of patience with a file that somebody else reads, replaces or scans (Windows).
_BUSY = 5.0


def place(directory: str) -> pathlib.Path:
    """The job's directory, in a form without Windows' limit of 260 characters."""
    return pathlib.Path(long_path(directory))


def read(path: pathlib.Path) -> dict[str, Any] | None:
    """A JSON object, or ``None`` when it is not there or is none."""
    try:
        found = json.loads(patiently(lambda: path.read_text("utf-8")))
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def write(path: pathlib.Path, value: dict[str, Any]) -> None:
    """Write a JSON object so that it is there whole or not at all, also after a power failure."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    with part.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    patiently(lambda: os.replace(part, path))  # noqa: PTH105 - replaces on Windows too


def patiently(change: Callable[[], Result]) -> Result:
    """:func:`files.patiently`, for as long as a job's own files may be in use."""
    return files.patiently(change, _BUSY)


def lives(directory: pathlib.Path) -> bool:
    """Whether the job's runner is alive, by its lock: process ids are used again, locks are not."""
    if not (directory / ALIVE).exists():
        return False
    with claim(directory / ALIVE, shared=True) as free:
        return not free


def logs(directory: pathlib.Path, attempt: int) -> pathlib.Path:
    """The log of one attempt."""
    return directory / f"log.{attempt}"


@idempotent
def state(directory: str) -> dict[str, Any]:
    """``{"state", "attempt", "log_size", ...}`` of a job.

    ``state`` is ``absent``, ``running``, ``ended`` (there is a result) or ``lost`` (it was started,
    does not run and left no result). With it come what the runner and the launcher left.
    """
    folder = place(directory)
    spec = read(folder / SPEC)
    if spec is None or "function" not in spec:
        return {"state": "absent", "attempt": 0, "log_size": 0}
    # In this order: a runner that ends between the two looks has left its result.
    running = lives(folder)
    told = read(folder / STATE) or {}
    attempt = int(told.get("attempt", 0))
    result = read(folder / RESULT)
    if result is not None and result.get("attempt") != attempt:
        result = None  # an earlier attempt's
    log = logs(folder, attempt)
    heard = [p.stat().st_mtime for p in (log, folder / STATE, folder / SPEC) if p.exists()]
    return {
        **told,
        "state": "running" if running else "ended" if result is not None else "lost",
        "attempt": attempt,
        "title": spec.get("title", ""),
        "result": None if running else result,
        "log_size": log.stat().st_size if log.exists() else 0,
        "heard": max(heard, default=0.0),
    }


@idempotent
def listed(root: str) -> list[dict[str, Any]]:
    """The jobs below ``root``, the latest first: :func:`state` with ``id`` and ``directory``."""
    found = []
    for spec in place(root).glob(f"*/{SPEC}"):
        directory = str(spec.parent)
        # Removed meanwhile, or damaged: one job does not hide the others.
        with contextlib.suppress(OSError, ValueError, TypeError):
            told = state(directory)
            if told["state"] != "absent":
                found.append({"id": spec.parent.name, "directory": directory, **told})
    return sorted(found, key=lambda job: -job["heard"])


@idempotent
def prefix_digest(directory: str, attempt: int, size: int) -> str:
    """The sha256 of the first ``size`` bytes of a log; empty when it has fewer."""
    digest, left = hashlib.sha256(), size
    try:
        with logs(place(directory), attempt).open("rb") as file:
            while left and (data := file.read(min(left, 1 << 20))):
                digest.update(data)
                left -= len(data)
    except FileNotFoundError:
        return ""
    return "" if left else digest.hexdigest()
