"""Runs a program on the host: streams its output, and kills its process tree with the reader."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from typing import Any, TypedDict

from . import awake

#: The command line of a PowerShell script, which is appended.
POWERSHELL = ("powershell.exe", "-NoProfile", "-NonInteractive", "-Command")
#: Set when all child processes are to end: by the runner of a detached job.
cancelled = threading.Event()

_CHUNK = 32768
_LINGER = 1.0  # seconds that output may still arrive after the program's end
_PIECES = 64  # queued chunks; beyond that the program blocks on its pipe


class Ended(TypedDict):
    """How a program ended."""

    exit: int
    seconds: float
    timed_out: bool


class _Job:
    """A Windows job object: the processes in it end with its handle.

    That covers an orderly end, a killed controller and a dead connection alike, because the
    handle closes with this Python. (JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE)
    """

    _EXTENDED_LIMITS = 9
    _KILL_ON_CLOSE = 0x2000
    _BELOW_NORMAL = 0x4000

    def __init__(self) -> None:
        self._kernel: Any = ctypes.WinDLL("kernel32")  # type: ignore[attr-defined]
        self._kernel.CreateJobObjectW.restype = ctypes.c_void_p
        self._kernel.SetInformationJobObject.argtypes = [
            ctypes.c_void_p,
            ctypes.c_int,
            ctypes.c_void_p,
            ctypes.c_uint32,
        ]
        self._kernel.AssignProcessToJobObject.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self._kernel.CloseHandle.argtypes = [ctypes.c_void_p]
        self._kernel.TerminateJobObject.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
        self._kernel.GetCurrentProcess.restype = ctypes.c_void_p
        self._handle = self._kernel.CreateJobObjectW(None, None)
        limits = (ctypes.c_uint32 * 36)()  # JOBOBJECT_EXTENDED_LIMIT_INFORMATION, 144 bytes
        limits[4] = self._KILL_ON_CLOSE  # BasicLimitInformation.LimitFlags, at byte 16
        self._kernel.SetInformationJobObject(
            self._handle, self._EXTENDED_LIMITS, limits, ctypes.sizeof(limits)
        )

    def add(self, process: subprocess.Popen[bytes]) -> None:
        handle = getattr(process, "_handle", None)
        self._kernel.AssignProcessToJobObject(self._handle, int(handle) if handle else None)

    def add_self(self) -> None:
        self._kernel.AssignProcessToJobObject(self._handle, self._kernel.GetCurrentProcess())
        self._kernel.SetPriorityClass.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
        self._kernel.SetPriorityClass(self._kernel.GetCurrentProcess(), self._BELOW_NORMAL)

    def close(self) -> None:
        if self._handle:
            # Closing alone would end them with exit code 0, like a success.
            self._kernel.TerminateJobObject(self._handle, 1)
            self._kernel.CloseHandle(self._handle)
            self._handle = None


def confine() -> None:
    """Make all child processes end with this process, at a lower priority; on Windows only.

    Interactive users of a shared machine have priority. Child processes inherit it
    (https://learn.microsoft.com/windows/win32/api/processthreadsapi/nf-processthreadsapi-createprocessw).
    """
    if sys.platform == "win32":
        _confines.append(_Job())
        _confines[-1].add_self()


_confines: list[_Job] = []  # never closed: the handle lives as long as the process


def _start_process_tree(
    command: Sequence[str], env: Mapping[str, str] | None, cwd: str | None
) -> tuple[subprocess.Popen[bytes], _Job | None]:
    windows = sys.platform == "win32"
    job = _Job() if windows else None
    process = subprocess.Popen(
        list(command),
        cwd=cwd,
        env=dict(env) if env is not None else None,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=not windows,
    )
    if job:
        job.add(process)
    return process, job


def _kill_process_tree(process: subprocess.Popen[bytes], job: _Job | None) -> None:
    if job:
        job.close()
    elif sys.platform != "win32":
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(OSError):
        process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)


def _reader(
    process: subprocess.Popen[bytes], stopped: threading.Event
) -> queue.Queue[bytes | None]:
    """A bounded queue filled by a thread from the program's pipe; ``None`` is its end."""
    pieces: queue.Queue[bytes | None] = queue.Queue(_PIECES)

    def put(piece: bytes | None) -> None:
        while not stopped.is_set():
            with contextlib.suppress(queue.Full):
                pieces.put(piece, timeout=0.5)
                return

    def read() -> None:
        pipe = process.stdout
        assert pipe is not None  # noqa: S101 - PIPE was requested
        while data := pipe.read1(_CHUNK):  # type: ignore[attr-defined]
            put(data)
        put(None)

    threading.Thread(target=read, daemon=True).start()
    return pieces


def _output(
    process: subprocess.Popen[bytes], pieces: queue.Queue[bytes | None], deadline: float
) -> Generator[bytes, None, bool]:
    """The program's output until it ends; returns whether ``deadline`` came first."""
    quiet_since: float | None = None
    while True:
        try:
            data = pieces.get(timeout=0.2)
        except queue.Empty:
            now = awake.seconds()
            if now > deadline or cancelled.is_set():
                return now > deadline
            # A helper that outlives its parent (mspdbsrv.exe does) may hold the pipe forever:
            # the program's own end counts, once there has been no output for a while.
            if process.poll() is not None:
                quiet_since = quiet_since or now
                if now - quiet_since > _LINGER:
                    return False
            continue
        if data is None:  # it may have closed its output and continue
            while process.poll() is None and not cancelled.is_set():
                if awake.seconds() > deadline:
                    return True
                time.sleep(0.02)
            return False
        quiet_since = None
        yield data
        if cancelled.is_set():
            return False
        if awake.seconds() > deadline:
            return True


def stream(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    timeout: float | None = None,
) -> Generator[bytes | Ended, None, None]:
    """Yield the output as bytes, then how the program ended.

    stdout and stderr are merged. Closing the generator, or a ``timeout`` in seconds, ends the
    program and all its child processes.
    """
    began = awake.seconds()
    stopped = threading.Event()
    with contextlib.ExitStack() as stack:
        process, job = _start_process_tree(command, env, cwd)
        stack.callback(_kill_process_tree, process, job)
        stack.callback(stopped.set)
        deadline = math.inf if timeout is None else began + timeout
        output = _output(process, _reader(process, stopped), deadline)
        while True:
            try:
                data = next(output)
            except StopIteration as end:
                timed_out = bool(end.value)
                break
            yield data
        if timed_out or cancelled.is_set():
            _kill_process_tree(process, job)
        code = process.wait()
        yield {"exit": code, "seconds": awake.seconds() - began, "timed_out": timed_out}


def capture(command: Sequence[str], *, timeout: float, cwd: str | None = None) -> tuple[int, str]:
    """Exit code and output of a short program; ``TimeoutError`` if it does not end."""
    output = bytearray()
    for item in stream(command, timeout=timeout, cwd=cwd):
        if isinstance(item, dict):
            if item["timed_out"]:
                raise TimeoutError(f"{command[0]} did not end within {timeout:.0f} s")
            return item["exit"], output.decode("utf-8", "replace")
        output += item
    raise RuntimeError("the stream ended without an exit code")
