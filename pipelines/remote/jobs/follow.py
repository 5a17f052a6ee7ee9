"""Follows and ends a job."""

from __future__ import annotations

import contextlib
import os
import pathlib
import time
from collections.abc import Generator

from .. import awake, locks
from ..rpc import idempotent
from . import runner, store

_CHUNK = 256 * 1024
_POLL = 0.1
_SIGN = 10.0  # seconds after which an empty item detects that the reader is gone
#: Seconds between two checks of the runner's lock. Wine's server keeps a locked file open for each
#: time it was opened, until the lock is released, and a day of checks must not reach its limit:
#: https://gitlab.winehq.org/wine/wine/-/blob/wine-10.0/server/fd.c (inode_add_closed_fd)
_LOOK = 5.0


def follow(directory: str, attempt: int, offset: int) -> Generator[bytes | store.State, None, None]:
    """Yield the log of ``attempt`` from ``offset`` on as it grows, then :func:`store.state`.

    Empty bytes are a sign of life. It ends when the attempt does: with a result, lost, or because
    there is a later attempt.
    """
    folder = store.place(directory)
    signed = looked = awake.seconds()
    now = store.state(directory)
    while True:
        # Before the log, so that later output is not missed.
        ended = store.result(folder, attempt) is not None
        if ended or store.latest(folder)["attempt"] != attempt or awake.seconds() - looked > _LOOK:
            now = store.state(directory)
            looked = awake.seconds()
        over = now["state"] != "running" or now["attempt"] != attempt
        while data := _read_log_chunk(folder, attempt, offset):
            offset += len(data)
            signed = awake.seconds()
            yield data
        if over:
            yield now
            return
        if awake.seconds() - signed > _SIGN:
            signed = awake.seconds()
            yield b""
        time.sleep(_POLL)


def _read_log_chunk(folder: pathlib.Path, attempt: int, offset: int) -> bytes:
    try:
        with store.logs(folder, attempt).open("rb") as file:
            file.seek(offset)
            return bytes(file.read(_CHUNK))
    except FileNotFoundError:
        return b""


@idempotent
def cancel(directory: str, patience: float = 25.0) -> store.State:
    """End a job and all its processes; its :func:`store.state` afterwards."""
    folder = store.place(directory)
    now = store.state(directory)
    if now["state"] == "lost":
        return _mark_job_cancelled(folder, directory)
    if now["state"] != "running":
        return now
    (folder / store.CANCEL).touch()
    deadline = awake.seconds() + patience
    while store.lives(folder) and awake.seconds() < deadline:
        time.sleep(0.05)
    still = store.state(directory)
    if still["state"] == "running" and still["attempt"] == now["attempt"] and "pid" in still:
        with contextlib.suppress(OSError):
            os.kill(int(still["pid"]), 9)  # TerminateProcess on Windows: its job object ends all
        runner.sweep(folder)
        while store.lives(folder) and awake.seconds() < deadline + 5:
            time.sleep(0.05)
    return _mark_job_cancelled(folder, directory)


def _mark_job_cancelled(folder: pathlib.Path, directory: str) -> store.State:
    """Write a result if there is none, or the job's follower would start it again."""
    with locks.claim(folder / store.ALIVE) as free:
        if free:
            attempt = store.latest(folder)["attempt"]
            if store.result(folder, attempt) is None:
                error = {"kind": "Cancelled", "message": "stopped by force"}
                runner.finish(folder, attempt, {"error": error}, cancelled=True)
    return store.state(directory)
