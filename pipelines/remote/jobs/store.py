"""What is on the host's disk about jobs: reading it, and telling whether a job still runs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any, Literal, TypedDict, cast

from .. import files
from ..files import long_path
from ..locks import claim
from ..rpc import idempotent

SPEC, ALIVE, STATE, RESULT, CANCEL = "spec.json", "alive", "state.json", "result.json", "cancel"
#: Held by whoever starts the job, or removes it.
STARTING = "starting"


class Spec(TypedDict):
    """What a job runs."""

    title: str
    function: str
    """A generator function of this package ("builder.build"): it yields bytes for the log and, at
    its end, a dict, its result."""
    arguments: Mapping[str, object]


class _Began(TypedDict, total=False):
    way: str
    """How the runner was started, see ``launch.ways``."""
    failed: Mapping[str, str]
    """The ways that were tried before it, and what went wrong."""
    pid: int
    started: float
    """In seconds since the epoch, as all times here."""
    boot: str
    """The host's boot identity."""
    why: str
    """Of one that the runner itself calls lost."""


class Attempt(_Began):
    """What the launcher and the runner leave of an attempt; 0 is none."""

    attempt: int


class Result(TypedDict):
    """How an attempt ended."""

    attempt: int
    cancelled: bool
    ended: float
    result: Mapping[str, object]
    """The function's own, or what it raised, see rpc.Failure, as ``error``."""


class _Known(_Began, total=False):
    title: str
    result: Result | None
    heard: float
    """When there was the last sign of life."""


class State(_Known):
    """A job as it is now; one that is absent has no more than this."""

    state: Literal["absent", "running", "ended", "lost"]
    """``ended``: there is a result. ``lost``: it was started, does not run and left no result."""
    attempt: int
    log_size: int


class Listed(State):
    """A job, and where it is."""

    id: str
    directory: str


def place(directory: str) -> pathlib.Path:
    """The job's directory, in a form without Windows' limit of 260 characters."""
    return pathlib.Path(long_path(directory))


def read(path: pathlib.Path) -> dict[str, Any] | None:
    """A JSON object, or ``None`` when it is not there or is none."""
    try:
        found = json.loads(files.patiently(lambda: path.read_text("utf-8")))
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def write(path: pathlib.Path, value: Mapping[str, object]) -> None:
    """Write a JSON object so that it is there whole or not at all, also after a power failure."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    with part.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    files.replace(part, path)


def lives(directory: pathlib.Path) -> bool:
    """Whether the job's runner is alive, by its lock: process ids are used again, locks are not."""
    if not (directory / ALIVE).exists():
        return False
    with claim(directory / ALIVE, shared=True) as free:
        return not free


def logs(directory: pathlib.Path, attempt: int) -> pathlib.Path:
    """The log of one attempt."""
    return directory / f"log.{attempt}"


def latest(directory: pathlib.Path) -> Attempt:
    """The latest attempt."""
    told = read(directory / STATE) or {}
    return cast("Attempt", {**told, "attempt": int(told.get("attempt", 0))})


def result(directory: pathlib.Path, attempt: int) -> Result | None:
    """How this attempt ended; ``None`` when it has not, or what is there is another one's."""
    told = read(directory / RESULT) or {}
    return cast("Result", told) if told.get("attempt") == attempt else None


@idempotent
def state(directory: str) -> State:
    """A job as it is now, with what the launcher and the runner left."""
    folder = place(directory)
    spec = read(folder / SPEC)
    if spec is None or "function" not in spec:
        return {"state": "absent", "attempt": 0, "log_size": 0}
    # In this order: a runner that ends between the two looks has left its result.
    running = lives(folder)
    told = latest(folder)
    ended = result(folder, told["attempt"])
    log = logs(folder, told["attempt"])
    heard = [p.stat().st_mtime for p in (log, folder / STATE, folder / SPEC) if p.exists()]
    return {
        **told,
        "state": "running" if running else "ended" if ended is not None else "lost",
        "title": spec.get("title", ""),
        "result": None if running else ended,
        "log_size": log.stat().st_size if log.exists() else 0,
        "heard": max(heard, default=0.0),
    }


@idempotent
def listed(root: str) -> list[Listed]:
    """The jobs below ``root``, the latest first."""
    found: list[Listed] = []
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
