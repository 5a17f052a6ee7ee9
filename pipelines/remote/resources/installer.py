"""Software installed by an installer program."""

from __future__ import annotations

import contextlib
import glob
import os
import pathlib
import re
import shutil
import time

from .. import awake, protected_dirs, scheduler, visualstudio
from ..files import sha256
from ..process import capture
from . import Applied, Check, Pin, Proven, RefusedError, registry

#: Another installation is in progress: Windows Installer's code, Visual Studio's code.
_BUSY = (1618, 1001)
_BUSY_PAUSE = 15.0
_TAIL = 1500
_LOG_TAIL = 1 << 20

#: https://learn.microsoft.com/windows/win32/msi/error-codes and those of Visual Studio's installer.
_MEANING = {
    5: "access denied",
    87: "it does not know an argument",
    740: "it must be started elevated",
    1602: "cancelled by a user or a policy",
    1603: "a fatal error during installation",
    1618: "another installation is in progress",
    1001: "Visual Studio's installer is already running",
    1641: "it has started a restart of Windows",
    3010: "a restart of Windows completes it",
    1625: "forbidden by a policy",
    1638: "another version is already installed",
    5002: "Visual Studio's installer is running, or something holds its files open",
    5003: "the bootstrapper could not download the installer",
    5005: "the command line could not be parsed",
    5007: "this Windows is not supported",
    5008: "the Visual Studio Installer of the host is older than the bootstrapper needs",
    3221246609: "connectivity failure while downloading",
}
_HINT = {
    5: "Set as_task, or use an account of the Administrators group.",
    740: "Use an account of the Administrators group.",
    1602: "Check for a dialog on the host's screen, and for policies.",
    1618: "Wait for it (it may be Windows Update) and provision again.",
    5002: "Close Visual Studio and its installer on the host, or restart it, and provision again.",
    5003: "The host must reach Microsoft's servers, or get an offline layout.",
    5008: "Start the installer by hand with: vs_BuildTools.exe --quiet --wait --update",
}


#: Text in output or logs -> its meaning and a hint, for exit codes that say no more.
_IN_LOGS = {
    "already been added. Key in dictionary": (
        "two environment variables differ only in case",
        "Remove one of each pair on the host.",
    ),
    "0x80131509": (
        "the host cannot check Microsoft's certificates",
        "It must reach the addresses in docs/hosts/windows-host.md.",
    ),
}


class Spec(Proven):
    """The desired state."""

    name: str
    version: str
    files: list[Pin]
    """The installer first."""
    arguments: list[str]
    """Replaces the paths of ``files`` by those of the copies that are run."""
    signer: str
    """The required signer of the installer; empty: it is identified by its sha256 alone."""
    prepare: list[str]
    """Arguments of a run before the one that installs."""
    path: str
    """The directory Visual Studio is installed to, created before it runs, whose product must be
    ``version`` afterwards; empty for other installers, which use Windows' own."""
    toolset: str
    """The MSVC version whose cl.exe must run in ``path``."""
    detect: str
    """A glob that matches once it is installed."""
    registered: str
    """The key whose ``Version`` must be ``version`` or newer; empty: not checked."""
    success: list[int]
    reboot: list[int]
    """Exit codes; the second list means success with a restart of Windows."""
    as_task: bool
    """Run it through the Task Scheduler."""
    logs: list[str]
    """Globs of its log files, for when it fails."""
    minutes: float


def check(spec: Spec) -> Check:
    """Look for the installed software; its path under the installer's name."""
    paths = sorted(glob.glob(spec["detect"]))  # noqa: PTH207 - an absolute pattern
    values = {spec["name"]: paths[-1]} if paths else {}
    if _unverified_run_marker(spec).exists():
        return {"ok": False, "found": "a rejected installation", "values": values}
    if paths and spec["registered"]:
        version = str(registry.read(spec["registered"], "Version") or "no version")
        return {
            "ok": _version_numbers(version) >= _version_numbers(spec["version"]),
            "found": version,
            "values": values,
        }
    if paths and spec["path"]:
        values |= visualstudio.product(spec["path"])
        if "incomplete" in values:
            return {"ok": False, "found": "an incomplete installation", "values": values}
    return {"ok": bool(paths), "found": paths[-1] if paths else "missing", "values": values}


def _version_numbers(version: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", version)]


def plan(spec: Spec) -> str:
    """The command line."""
    how = " as a scheduled task" if spec["as_task"] else ""
    return f"run {spec['files'][0]['file']} {' '.join(spec['arguments'])}{how}"


def apply(spec: Spec) -> Applied:
    """Run it and check the result; a wrong result stays marked as such."""
    if spec["path"]:
        protected_dirs.make(spec["path"], readable=True)
        _unverified_run_marker(spec).touch()
    deadline = awake.seconds() + 60 * spec["minutes"]
    with protected_dirs.private() as folder:
        file, *arguments = _staged(spec, folder)
        if spec["signer"]:
            visualstudio.require_signer(file, spec["signer"])
        if spec["prepare"]:
            _run_installer(spec, [file, *spec["prepare"]], deadline)
        done = _run_installer(spec, [file, *arguments], deadline)
    if spec["path"]:
        visualstudio.require_product(spec["version"], spec["path"], spec["toolset"], spec["detect"])
        _unverified_run_marker(spec).unlink()
    return done


def _staged(spec: Spec, folder: pathlib.Path) -> list[str]:
    """The command line, with copies that no other user can change; hashed there."""
    copies = {}
    for pin in spec["files"]:
        copy = folder / os.path.basename(pin["file"])  # noqa: PTH119 - a host's path, as a string
        try:
            shutil.copy(pin["file"], copy)
        except OSError as error:
            raise RefusedError(f"{pin['file']} cannot be copied: {error}") from error
        if (actual := sha256(str(copy))) != pin["sha256"]:
            raise RefusedError(
                f"{pin['file']} has sha256 {actual}, pinned is {pin['sha256']}",
                hint="It was changed on the host after the upload: find out how.",
            )
        copies[pin["file"]] = str(copy)
    return [copies.get(word, word) for word in (spec["files"][0]["file"], *spec["arguments"])]


def _unverified_run_marker(spec: Spec) -> pathlib.Path:
    """Exists while the result of the last run has not been verified."""
    return pathlib.Path(f"{spec['files'][0]['file']}.refused")


def _run_installer(spec: Spec, command: list[str], deadline: float) -> Applied:
    """Run it, again after each "another installation is in progress", until ``deadline``."""
    run = scheduler.run if spec["as_task"] else capture
    while True:
        began = time.time()
        try:
            code, output = run(command, timeout=max(1.0, deadline - awake.seconds()))
        except TimeoutError:
            raise RefusedError(
                f"{spec['name']} did not finish within {spec['minutes']:g} minutes; it was stopped",
                hint="It may be showing a dialog: run it by hand once.",
                logs=_logs(spec, began),
            ) from None
        except OSError as error:
            raise RefusedError(f"{command[0]} cannot be started: {error}") from error
        if code not in _BUSY or awake.seconds() + _BUSY_PAUSE > deadline:
            break
        time.sleep(_BUSY_PAUSE)
    if code in spec["reboot"]:
        more = f", {_MEANING[code]}" if code in _MEANING else ""
        return {"reboot": f"{spec['name']} requires it ({code}{more})"}
    if code not in spec["success"]:
        logs, why, hint = _logs(spec, began), _MEANING.get(code, ""), _HINT.get(code, "")
        for text in (output, *map(_read_log_tail, logs)):
            for words, meaning in _IN_LOGS.items():
                if words in text:
                    why, hint = meaning
        raise RefusedError(
            f"{spec['name']} exited with {code}{why and ', '}{why}: {output.strip()[-_TAIL:]}",
            hint=hint or "See its logs.",
            logs=logs,
        )
    return {}


def _read_log_tail(path: str) -> str:
    with contextlib.suppress(OSError):  # installers delete files meanwhile
        return pathlib.Path(path).read_bytes()[-_LOG_TAIL:].decode("utf-8", "replace")
    return ""


def _logs(spec: Spec, since: float) -> list[str]:
    """Its log files of this run, newest first."""
    times: dict[str, float] = {}
    for pattern in spec["logs"]:
        for path in glob.glob(pattern):  # noqa: PTH207
            with contextlib.suppress(OSError):  # installers delete files meanwhile
                times[path] = os.stat(path).st_mtime  # noqa: PTH116
    recent = [path for path in times if times[path] >= since - 2]
    return sorted(recent, key=lambda path: -times[path])[:8]
