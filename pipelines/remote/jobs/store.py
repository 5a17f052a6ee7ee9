"""The files of jobs on the host's disk: reads them, and determines whether a job is running."""

from __future__ import annotations

import contextlib
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
#: Held while the job is started or removed.
STARTING = "starting"


class Spec(TypedDict):
    """The definition of a job."""

    title: str
    function: str
    """A generator function of this package ("builder.build"): it yields bytes for the log and
    returns a dict, its result."""
    arguments: Mapping[str, object]


class _Began(TypedDict, total=False):
    way: str
    """How the runner was started, see ``launch.ways``."""
    failed: Mapping[str, str]
    """The ways tried before it, and their errors."""
    pid: int
    started: float
    """In seconds since the epoch, like all times here."""
    boot: str
    """The host's boot identity."""
    why: str
    """Message of a job the runner itself reports as lost."""


class Attempt(_Began):
    """Written by the launcher and the runner for an attempt; 0 is none."""

    attempt: int


class Result(TypedDict):
    """How an attempt ended."""

    attempt: int
    cancelled: bool
    ended: float
    result: Mapping[str, object]
    """The function's result, or what it raised, see rpc.Failure, as ``error``."""


class _Known(_Began, total=False):
    title: str
    result: Result | None
    heard: float
    """Time of the last sign of life."""


class State(_Known):
    """The current state of a job; an absent one has only this."""

    state: Literal["absent", "running", "ended", "lost"]
    """``ended``: there is a result. ``lost``: it was started, is not running and has no result."""
    attempt: int
    log_size: int


class Listed(State):
    """A job and its directory."""

    id: str
    directory: str


def place(directory: str) -> pathlib.Path:
    """The job's directory, as a path without Windows' limit of 260 characters."""
    return pathlib.Path(long_path(directory))


def read(path: pathlib.Path) -> dict[str, Any] | None:
    """A JSON object, or ``None`` if it does not exist or is invalid."""
    try:
        data = json.loads(files.patiently(lambda: path.read_text("utf-8")))
    except (FileNotFoundError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def write(path: pathlib.Path, value: Mapping[str, object]) -> None:
    """Write a JSON object atomically, also with respect to power failures."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    with part.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    files.replace(part, path)


def lives(directory: pathlib.Path) -> bool:
    """Whether the job's runner is alive, by its lock: process ids are reused, locks are not."""
    if not (directory / ALIVE).exists():
        return False
    with claim(directory / ALIVE, shared=True) as free:
        return not free


def logs(directory: pathlib.Path, attempt: int) -> pathlib.Path:
    """The log of one attempt."""
    return directory / f"log.{attempt}"


def latest(directory: pathlib.Path) -> Attempt:
    """The latest attempt."""
    data = read(directory / STATE) or {}
    return cast("Attempt", {**data, "attempt": int(data.get("attempt", 0))})


def result(directory: pathlib.Path, attempt: int) -> Result | None:
    """How this attempt ended; ``None`` if it has not, or if the result is another attempt's."""
    data = read(directory / RESULT) or {}
    return cast("Result", data) if data.get("attempt") == attempt else None


@idempotent
def state(directory: str) -> State:
    """The current state of a job, from the files of the launcher and the runner."""
    folder = place(directory)
    spec = read(folder / SPEC)
    if spec is None or "function" not in spec:
        return {"state": "absent", "attempt": 0, "log_size": 0}
    # In this order: a runner that ends between the two checks has written its result.
    running = lives(folder)
    attempt = latest(folder)
    ended = result(folder, attempt["attempt"])
    log = logs(folder, attempt["attempt"])
    heard = [p.stat().st_mtime for p in (log, folder / STATE, folder / SPEC) if p.exists()]
    return {
        **attempt,
        "state": "running" if running else "ended" if ended is not None else "lost",
        "title": spec.get("title", ""),
        "result": None if running else ended,
        "log_size": log.stat().st_size if log.exists() else 0,
        "heard": max(heard, default=0.0),
    }


@idempotent
def listed(root: str) -> list[Listed]:
    """The jobs below ``root``, latest first."""
    jobs: list[Listed] = []
    for spec in place(root).glob(f"*/{SPEC}"):
        directory = str(spec.parent)
        known: State = {"state": "absent", "attempt": 0, "log_size": 0}
        # Removed meanwhile, or damaged: one job does not hide the others.
        with contextlib.suppress(OSError, ValueError, TypeError):
            known = state(directory)
        with contextlib.suppress(OSError):
            if known["state"] == "absent" and lives(spec.parent):  # a host is not empty with it
                why = "unknown: its records are damaged"
                known = {
                    "state": "running",
                    "attempt": 0,
                    "log_size": 0,
                    "heard": 0.0,
                    "title": why,
                }
        if known["state"] != "absent":
            jobs.append({"id": spec.parent.name, "directory": directory, **known})
    return sorted(jobs, key=lambda job: -job["heard"])


@idempotent
def prefix_digest(directory: str, attempt: int, size: int) -> str:
    """The sha256 of the first ``size`` bytes of a log; empty if it is shorter."""
    log = logs(place(directory), attempt)
    try:
        return files.sha256(str(log), size) if log.stat().st_size >= size else ""
    except FileNotFoundError:
        return ""
