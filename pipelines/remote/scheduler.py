"""The Task Scheduler, through schtasks.exe: programs that run as SYSTEM, outside WinRM's session.

Some installers, and all of Windows Update, refuse a network logon with 0x80070005
(https://github.com/hashicorp/packer/issues/3117). A task has neither that logon nor WinRM's quotas.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import Any

from . import awake, protected_dirs
from .process import cancelled, capture
from .resources import RefusedError

_NAMESPACE = "http://schemas.microsoft.com/windows/2004/02/mit/task"
_TIMEOUT = 60.0
_POLL = 0.5
_OUTPUT_LIMIT = 64 * 1024
#: Seconds without a sign of life of ``taskmain``, including the first one, and for it to end.
_SILENCE = 60.0
_FAREWELL = 20.0
#: Never ends a task by itself, not even on batteries; priority 7, the default, is below normal.
_SETTINGS = {
    "MultipleInstancesPolicy": "IgnoreNew",
    "DisallowStartIfOnBatteries": "false",
    "StopIfGoingOnBatteries": "false",
    "AllowHardTerminate": "true",
    "ExecutionTimeLimit": "PT0S",
    "Priority": "4",
}


def definition(command: Sequence[str]) -> bytes:
    """The task as XML; schtasks requires UTF-16."""
    task = ET.Element("Task", {"version": "1.2", "xmlns": _NAMESPACE})
    ET.SubElement(task, "Triggers")
    principal = ET.SubElement(ET.SubElement(task, "Principals"), "Principal", {"id": "Author"})
    ET.SubElement(principal, "UserId").text = "S-1-5-18"  # SYSTEM, in every language
    ET.SubElement(principal, "RunLevel").text = "HighestAvailable"
    settings = ET.SubElement(task, "Settings")
    for name, value in _SETTINGS.items():
        ET.SubElement(settings, name).text = value
    run = ET.SubElement(ET.SubElement(task, "Actions", {"Context": "Author"}), "Exec")
    ET.SubElement(run, "Command").text = command[0]
    ET.SubElement(run, "Arguments").text = subprocess.list2cmdline(command[1:])
    return bytes(ET.tostring(task, encoding="utf-16"))


def _schtasks(*arguments: str) -> tuple[int, str]:
    return capture(["schtasks.exe", *arguments], timeout=_TIMEOUT)


def _must(*arguments: str) -> None:
    code, output = _schtasks(*arguments)
    if code:
        raise RefusedError(
            f"schtasks {' '.join(arguments)} exited with {code}: {output.strip()[-500:]}",
            hint="The account must be an administrator, and the Task Scheduler must be running.",
        )


def register(name: str, command: Sequence[str]) -> None:
    """Create the task ``name``, replacing an older one."""
    handle, path = tempfile.mkstemp(".xml")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(definition(command))
        _must("/Create", "/TN", name, "/XML", path, "/F")
    finally:
        pathlib.Path(path).unlink(missing_ok=True)


def start(name: str) -> None:
    """Run the task ``name`` now."""
    _must("/Run", "/TN", name)


def forget(name: str) -> None:
    """Remove the task ``name``; its processes continue."""
    _schtasks("/Delete", "/TN", name, "/F")


def _tail(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _OUTPUT_LIMIT))
        return file.read(_OUTPUT_LIMIT).decode("utf-8", "replace")


def _wait_for_task_result(folder: pathlib.Path, what: str, timeout: float) -> None:
    """Return once ``result.json`` exists."""
    began = awake.seconds()
    sign, seen = 0.0, began
    while not (folder / "result.json").exists():
        now = awake.seconds()
        with contextlib.suppress(OSError):
            if (changed := (folder / "alive").stat().st_mtime) != sign:
                sign, seen = changed, now
        if now - seen > _SILENCE:
            raise RefusedError(
                f"{what}: the task was started, but has not reported anything for {_SILENCE:.0f} s",
                hint="Check the host's Task Scheduler: a policy or a virus scanner may prevent "
                "SYSTEM from starting Python.",
            )
        if now - began > timeout or cancelled.is_set():
            (folder / "stop").touch()
            while not (folder / "result.json").exists() and awake.seconds() - now < _FAREWELL:
                time.sleep(0.1)  # taskmain ends its child processes
            raise TimeoutError(f"{what} did not end within {timeout:.0f} s")
        time.sleep(_POLL)


def run(command: Sequence[str], *, timeout: float) -> tuple[int, str]:
    """Exit code and the end of the output of a program run as a task.

    ``TimeoutError`` if it does not end, or was cancelled.

    Tasks return no output, so a small Python (``taskmain``) runs the program and writes both to
    files. The caller must make sure that no other user can change the program.
    """
    with protected_dirs.private() as folder:
        return _run_scheduled_task(command, timeout, folder)


def _run_scheduled_task(
    command: Sequence[str], timeout: float, folder: pathlib.Path
) -> tuple[int, str]:
    name = f"wcw-task-{folder.name}"
    main = importlib.import_module(f"{__package__}.taskmain")
    source: Any = main.__loader__
    (folder / "main.py").write_text(source.get_source(main.__name__), "utf-8")
    (folder / "command.json").write_text(json.dumps(list(command)), "utf-8")
    try:
        # -I: nothing from its directory or from SYSTEM's environment is imported.
        register(name, [sys.executable, "-I", str(folder / "main.py")])
        start(name)
        _wait_for_task_result(folder, command[0], timeout)
        code = int(json.loads((folder / "result.json").read_text("utf-8"))["exit"])
        return code, _tail(folder / "output")
    finally:
        _schtasks("/End", "/TN", name)
        forget(name)
