"""The process of a job, ``runner.pyz DIRECTORY STARTED``: runs the function, stores its result."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import cast

from .. import awake, events, files, locks, process, reboot, rpc
from . import store

#: Seconds within which a cancelled function must end by itself.
GRACE = 15.0
_LOOK = 0.25
_MARK = "WCW_JOB"
_RESERVE = 64 << 10  # bytes freed when the result is written, in case the disk is full
_TAIL = 1 << 20  # bytes at the end of the log to search for the reason of a failure
_GOING_DOWN = 60.0  # seconds within which Windows ends the runner after other programs
#: Exit codes of programs that did not fail: ended by a console event, at a sign-out, started during
#: one (STATUS_CONTROL_C_EXIT, DBG_TERMINATE_PROCESS, STATUS_DLL_INIT_FAILED_LOGOFF), and messages
#: about that. https://github.com/fastbuild/fastbuild/pull/962
_ENDED = (0xC000013A, 0x40010004, 0xC000026B)
_CODES = "|".join(f"{code}|{code - (1 << 32)}|0x{code:X}" for code in _ENDED)
_SAID = rf"stopped: interrupted by user|(?:code=|code |code: |status |returned )(?:{_CODES})\b"
_SAYS_ENDED = re.compile(_SAID.encode(), re.IGNORECASE)


def run(directory: str, started: store.Attempt) -> int:
    """Run the job in ``directory`` unless it is already running; 0 once there is a result."""
    folder = store.place(directory)
    with locks.claim(folder / store.ALIVE, patience=5.0) as held:
        if not held:
            return 1
        return _run_job_attempt(folder, started)


def _run_job_attempt(folder: pathlib.Path, started: store.Attempt) -> int:
    spec = store.read(folder / store.SPEC)
    if spec is None:
        return 1
    attempt = started["attempt"]
    if store.latest(folder)["attempt"] >= attempt:
        return 1  # two controllers started it at the same time; the other one's runner was first
    sweep(folder)
    os.environ[_MARK] = str(folder)
    process.confine()
    awake.begin()
    _watch_console()
    files.patiently(lambda: (folder / store.CANCEL).unlink(missing_ok=True))
    (folder / "reserve").write_bytes(bytes(_RESERVE))
    identity = ""
    with contextlib.suppress(OSError):
        identity = reboot.boot_identity()
    now = time.time()
    begun = {**started, "pid": os.getpid(), "started": now, "boot": identity}
    store.write(folder / store.STATE, begun)
    ending = _Ending(folder, attempt)
    threading.Thread(target=_wait_for_cancel, args=(folder, ending), daemon=True).start()
    result: Mapping[str, object] = {}
    try:
        with store.logs(folder, attempt).open("ab", buffering=0) as log:
            for item in _items(spec["function"], spec["arguments"]):
                if isinstance(item, dict):
                    result = item
                else:
                    left = memoryview(item)
                    while left:
                        left = left[log.write(left) :]
            os.fsync(log.fileno())
    except BaseException as error:
        result = {"error": rpc.describe(error)}
    failed = (result.get("error") or result.get("exit")) and not result.get("timed_out")
    failed = failed and not process.cancelled.is_set()
    if failed and (why := _outside_reason(result, store.logs(folder, attempt), time.time() - now)):
        store.write(folder / store.STATE, {**begun, "why": why})
        return 1
    ending.write(result)
    return 0


_interrupted = threading.Event()
_handlers: list[object] = []  # Windows calls them during the life of the process


def _watch_console() -> None:
    """Record console events: they end our child processes, but must not end us."""
    if sys.platform == "win32":
        handler = ctypes.WINFUNCTYPE(ctypes.c_int, ctypes.c_uint32)
        _handlers.append(handler(lambda _: _interrupted.set() or 1))
        ctypes.windll.kernel32.SetConsoleCtrlHandler(_handlers[-1], 1)


def _outside_reason(result: Mapping[str, object], log: pathlib.Path, seconds: float) -> str:
    """Why a failure, of a job begun ``seconds`` ago, is not its own; empty if it is."""
    code, output = result.get("exit"), b""
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL))
        output = file.read()
    ended = isinstance(code, int) and code % (1 << 32) in _ENDED
    if ended or _interrupted.is_set() or _SAYS_ENDED.search(output):
        return "one of its programs was killed from outside"
    if events.restart_announced(seconds):
        time.sleep(_GOING_DOWN)  # if Windows is shutting down, this never returns
    return ""


def _items(function: str, arguments: Mapping[str, object]) -> Iterator[bytes | dict[str, object]]:
    return cast("Iterator[bytes | dict[str, object]]", rpc.resolve(function)(**arguments))


def sweep(folder: pathlib.Path) -> None:
    """End the processes left by a killed runner; Windows has already ended them."""
    if sys.platform == "win32":
        return
    mark = f"{_MARK}={folder}".encode()
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            mine = mark in (entry / "environ").read_bytes().split(b"\0")
            if mine and int(entry.name) != os.getpid():
                os.kill(int(entry.name), signal.SIGKILL)


class _Ending:
    """Writes the result once: the function's own, or that it was stopped by force."""

    def __init__(self, folder: pathlib.Path, attempt: int) -> None:
        self.folder = folder
        self.attempt = attempt
        self._lock = threading.Lock()
        self._written = False

    def write(self, result: Mapping[str, object]) -> None:
        with self._lock:
            if self._written:
                return
            (self.folder / "reserve").unlink(missing_ok=True)
            finish(self.folder, self.attempt, result, cancelled=process.cancelled.is_set())
            self._written = True


def finish(
    folder: pathlib.Path, attempt: int, result: Mapping[str, object], *, cancelled: bool
) -> None:
    """Write the result of an attempt."""
    outcome: store.Result = {
        "attempt": attempt,
        "cancelled": cancelled,
        "ended": time.time(),
        "result": result,
    }
    store.write(folder / store.RESULT, outcome)


def _wait_for_cancel(folder: pathlib.Path, ending: _Ending) -> None:
    """Wait for ``cancel``: ask the function to end, then end this process and its children."""
    while not (folder / store.CANCEL).exists():
        time.sleep(_LOOK)
    process.cancelled.set()
    time.sleep(GRACE)
    try:
        ending.write({"error": {"kind": "Cancelled", "message": "stopped by force"}})
        sweep(folder)
    finally:
        os._exit(1)
