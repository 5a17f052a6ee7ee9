"""Starts a job's runner so that it outlives its caller: connection, shell, WinRM, controller.

WinRM puts everything a shell starts into a Windows job object, which ends with the shell and has a
memory quota (https://github.com/ansible/ansible/issues/39327). There are two ways out:
CreateProcess with CREATE_BREAKAWAY_FROM_JOB, which WinRS allows and PowerShell remoting does not,
and the Task Scheduler. If neither works, the runner lives as long as the shell; the reason is
recorded.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pathlib
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from typing import Any

from .. import awake, compilecache, files, locks, protected_dirs, scheduler
from ..rpc import idempotent
from . import store

_Process = subprocess.Popen[bytes]
_TURN = 100.0  # seconds to wait for another controller starting the same job
_STARTS = 30.0  # seconds until a runner must hold its lock
_MAIN = """
import json, sys
from remote.jobs import runner
sys.exit(runner.run(sys.argv[1], json.loads(sys.argv[2])))
"""
_BREAKAWAY, _NEW_GROUP, _NO_WINDOW = 0x01000000, 0x00000200, 0x08000000


class NoRunnerError(RuntimeError):
    """No process of the job was started; its function has not begun."""


@idempotent
def start(
    directory: str,
    spec: store.Spec,
    beyond: int = 0,
    secrets: dict[str, str] | None = None,
) -> store.State:
    """Run the job in ``directory``, and return its :func:`store.state`.

    A running one is left alone, whoever started it; so is an ended one, unless its attempt is
    ``beyond`` or earlier. So calling it twice is safe. ``secrets`` are only for that process, in
    its environment, see compilecache.SECRETS; the Task Scheduler cannot pass them. Raises
    :class:`NoRunnerError`.
    """
    folder = store.place(directory)
    protected_dirs.make(folder)
    with locks.claim(folder / store.STARTING, _TURN) as mine:
        if not mine:
            raise NoRunnerError(f"another process has been starting it for {_TURN:.0f} s")
        now = store.state(directory)
        if now["state"] == "running" or (now["state"] == "ended" and now["attempt"] > beyond):
            return now
        store.write(folder / store.SPEC, spec)
        code = _pack_runner_zip()
        package = folder / f"runner-{hashlib.sha256(code).hexdigest()[:12]}.pyz"
        if not package.exists():
            part = package.with_name(f"runner.{os.getpid()}.part")
            part.write_bytes(code)
            files.replace(part, package)
        path = os.path.join(directory, package.name)  # noqa: PTH118 - not as a long path
        _detach(directory, path, int(now["attempt"]) + 1, secrets or {})
        return store.state(directory)


def _pack_runner_zip() -> bytes:
    """The controller's sources, as a zip file that Python can run."""
    loader: Any = sys.modules[__name__].__loader__
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__main__.py", _MAIN)
        for name, (package, _, source) in loader.sources.items():
            path = name.replace(".", "/") + ("/__init__.py" if package else ".py")
            archive.writestr(path, source)
    return buffer.getvalue()


def _detach(directory: str, package: str, attempt: int, secrets: dict[str, str]) -> None:
    """Try each way in turn, or raise :class:`NoRunnerError`."""
    failed: dict[str, str] = {}
    for way, run in ways().items():
        started = json.dumps({"way": way, "failed": failed, "attempt": attempt})
        command = [sys.executable, "-I", "-B", package, directory, started]
        process: _Process | _Task | None = None
        try:
            process = run(command, secrets)
            _wait_for_attempt(store.place(directory), attempt, process)
        except (OSError, RuntimeError) as error:
            failed[way] = str(error)[:300]
        else:
            return
        finally:
            if isinstance(process, _Task):
                process.forget()
    raise NoRunnerError(f"no job could be started: {failed}")


def ways() -> dict[str, Callable[[list[str], dict[str, str]], _Process | _Task]]:
    """The ways to start it, best first."""
    if sys.platform == "win32":
        return {"breakaway": _breakaway, "task": _Task, "shell": _start_in_new_group}
    return {"session": _popen}


def _wait_for_attempt(folder: pathlib.Path, attempt: int, process: _Process | _Task) -> None:
    """Wait until the attempt has begun, whoever started it."""
    deadline = awake.seconds() + _STARTS
    while awake.seconds() < deadline:
        code = process.poll()
        if store.latest(folder)["attempt"] >= attempt:
            return
        if code is not None:
            raise RuntimeError(f"the runner ended with exit code {code}")
        time.sleep(0.02)
    raise RuntimeError(f"the runner did not start within {_STARTS:.0f} s")


def _popen(command: list[str], secrets: dict[str, str], flags: int = 0) -> _Process:
    # Without the markers of this shell's processes, since it is not one of them.
    environment = {key: value for key, value in os.environ.items() if key != "WSMAN_COMMAND"}
    if secrets:
        environment[compilecache.SECRETS] = json.dumps(secrets)
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        close_fds=True,
        creationflags=flags,  # on Windows only
        start_new_session=sys.platform != "win32",
    )


def _breakaway(command: list[str], secrets: dict[str, str]) -> _Process:
    return _popen(command, secrets, _BREAKAWAY | _NEW_GROUP | _NO_WINDOW)


def _start_in_new_group(command: list[str], secrets: dict[str, str]) -> _Process:
    return _popen(command, secrets, _NEW_GROUP | _NO_WINDOW)


class _Task:
    """A runner started by the Task Scheduler."""

    def __init__(self, command: list[str], _: dict[str, str]) -> None:
        self.name = f"wcw-job-{os.getpid()}-{time.monotonic_ns()}"
        scheduler.register(self.name, command)
        try:
            scheduler.start(self.name)
        except BaseException:
            self.forget()
            raise

    def poll(self) -> int | None:
        """Unknown."""
        return None

    def forget(self) -> None:
        """Remove the task; its processes continue."""
        scheduler.forget(self.name)
