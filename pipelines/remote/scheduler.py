"""The Task Scheduler, through schtasks.exe: programs that run as SYSTEM, outside WinRM's session.

Some installers, and all of Windows Update, refuse a network logon with 0x80070005
(https://github.com/hashicorp/packer/issues/3117). A task has neither that logon nor WinRM's quotas.
"""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import Any

from .process import capture
from .resources import RefusedError

_NAMESPACE = "http://schemas.microsoft.com/windows/2004/02/mit/task"
_TIMEOUT = 60.0
_POLL = 0.5
#: Ends a task never by itself, on batteries neither; priority 7, the default, is below normal.
_SETTINGS = {
    "MultipleInstancesPolicy": "IgnoreNew",
    "DisallowStartIfOnBatteries": "false",
    "StopIfGoingOnBatteries": "false",
    "AllowHardTerminate": "true",
    "ExecutionTimeLimit": "PT0S",
    "Priority": "4",
}


def action(command: Sequence[str]) -> tuple[str, str]:
    """Program and arguments, as a task has them."""
    return command[0], subprocess.list2cmdline(command[1:])


def definition(command: Sequence[str], *, at_start: bool) -> bytes:
    """The task as XML; schtasks wants UTF-16."""
    task = ET.Element("Task", {"version": "1.2", "xmlns": _NAMESPACE})
    triggers = ET.SubElement(task, "Triggers")
    if at_start:
        ET.SubElement(ET.SubElement(triggers, "BootTrigger"), "Enabled").text = "true"
    principal = ET.SubElement(ET.SubElement(task, "Principals"), "Principal", {"id": "Author"})
    ET.SubElement(principal, "UserId").text = "S-1-5-18"  # SYSTEM, in every language
    ET.SubElement(principal, "RunLevel").text = "HighestAvailable"
    settings = ET.SubElement(task, "Settings")
    for name, value in _SETTINGS.items():
        ET.SubElement(settings, name).text = value
    run = ET.SubElement(ET.SubElement(task, "Actions", {"Context": "Author"}), "Exec")
    program, arguments = action(command)
    ET.SubElement(run, "Command").text = program
    ET.SubElement(run, "Arguments").text = arguments
    return bytes(ET.tostring(task, encoding="utf-16"))


def _schtasks(*arguments: str) -> tuple[int, str]:
    return capture(["schtasks.exe", *arguments], timeout=_TIMEOUT)


def _must(*arguments: str) -> None:
    code, output = _schtasks(*arguments)
    if code:
        raise RefusedError(
            f"schtasks {' '.join(arguments)} left with {code}: {output.strip()[-500:]}",
            advice="The account must be an administrator's, and the Task Scheduler running.",
        )


def register(name: str, command: Sequence[str], *, at_start: bool) -> None:
    """Make the task ``name``, over an older one."""
    handle, path = tempfile.mkstemp(".xml")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(definition(command, at_start=at_start))
        _must("/Create", "/TN", name, "/XML", path, "/F")
    finally:
        pathlib.Path(path).unlink(missing_ok=True)


def command_of(name: str) -> tuple[str, str] | None:
    """Program and arguments of the task ``name``; ``None`` when there is none."""
    try:
        code, output = _schtasks("/Query", "/TN", name, "/XML")
    except FileNotFoundError:
        return None
    start = output.find("<Task")
    if code or start < 0:
        return None
    run = ET.fromstring(output[start:]).find(f".//{{{_NAMESPACE}}}Exec")  # noqa: S314 - Windows' own
    if run is None:
        return None
    return tuple(run.findtext(f"{{{_NAMESPACE}}}{part}", "") for part in ("Command", "Arguments"))  # type: ignore[return-value]


def run(command: Sequence[str], *, timeout: float) -> tuple[int, str]:
    """Exit code and output of a program run as a task; ``TimeoutError`` if it does not end.

    Tasks give no output back, so a small Python (``taskmain``) runs the program and leaves both in
    files.
    """
    folder = pathlib.Path(tempfile.mkdtemp(prefix="task-"))
    name = f"wcw-{folder.name}"
    main = importlib.import_module(f"{__package__}.taskmain")
    source: Any = main.__loader__
    (folder / "main.py").write_text(source.get_source(main.__name__), "utf-8")
    (folder / "command.json").write_text(json.dumps(list(command)), "utf-8")
    deadline = time.monotonic() + timeout
    try:
        register(name, [sys.executable, str(folder / "main.py")], at_start=False)
        _must("/Run", "/TN", name)
        while not (folder / "result.json").exists():
            if time.monotonic() > deadline:
                (folder / "stop").touch()
                time.sleep(2 * _POLL)  # time to end what it started
                _schtasks("/End", "/TN", name)
                raise TimeoutError(f"{command[0]} did not end within {timeout:.0f} s")
            time.sleep(_POLL)
        code = int(json.loads((folder / "result.json").read_text("utf-8"))["exit"])
        return code, (folder / "output").read_bytes().decode("utf-8", "replace")
    finally:
        _schtasks("/Delete", "/TN", name, "/F")
        shutil.rmtree(folder, ignore_errors=True)
