"""The process of a job, ``runner.pyz DIRECTORY STARTED``: runs the function, keeps its result."""

from __future__ import annotations

import contextlib
import os
import pathlib
import threading
import time
from typing import Any

from .. import locks, power, process, rpc
from . import store

#: Seconds within which a cancelled function must have ended by itself.
GRACE = 15.0
_LOOK = 0.25


def run(directory: str, started: dict[str, Any]) -> int:
    """Run the job in ``directory`` unless somebody else does; 0 once there is a result."""
    folder = store.place(directory)
    with locks.claim(folder / store.ALIVE, patience=5.0) as held:
        if not held:
            return 1
        return _run(folder, started)


def _run(folder: pathlib.Path, started: dict[str, Any]) -> int:
    spec = store.read(folder / store.SPEC)
    if spec is None:
        return 1
    attempt = int(started["attempt"])
    if int((store.read(folder / store.STATE) or {}).get("attempt", 0)) >= attempt:
        return 1  # two controllers asked at the same moment; the other one's runner was first
    for name in (store.RESULT, store.CANCEL):
        (folder / name).unlink(missing_ok=True)
    identity = ""
    with contextlib.suppress(OSError):
        identity = power.boot_identity()
    told = {**started, "pid": os.getpid(), "started": time.time()}
    store.write(folder / store.STATE, {**told, "boot": identity})
    threading.Thread(target=_obey, args=(folder, attempt), daemon=True).start()
    result: dict[str, Any] = {}
    try:
        with store.logs(folder, attempt).open("ab", buffering=0) as log:
            for item in rpc.resolve(spec["function"])(**spec["arguments"]):
                if isinstance(item, dict):
                    result = item
                else:
                    log.write(item)
            os.fsync(log.fileno())
    except BaseException as error:
        result = {"error": rpc.describe(error)}
    _finish(folder, attempt, result)
    return 0


def _finish(folder: pathlib.Path, attempt: int, result: dict[str, Any]) -> None:
    cancelled = process.cancelled.is_set()
    store.write(
        folder / store.RESULT,
        {"attempt": attempt, "cancelled": cancelled, "ended": time.time(), "result": result},
    )


def _obey(folder: pathlib.Path, attempt: int) -> None:
    """Wait for ``cancel``: ask the function to end, then end this process and all it started."""
    while not (folder / store.CANCEL).exists():
        time.sleep(_LOOK)
    process.cancelled.set()
    time.sleep(GRACE)
    _finish(folder, attempt, {"error": {"kind": "Cancelled", "message": "ended by force"}})
    os._exit(1)
