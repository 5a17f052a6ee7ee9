"""Something that a program installs."""

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

#: Another installation is going on: that of Windows, that of Visual Studio.
_BUSY = (1618, 1001)
_BUSY_PAUSE = 15.0
_TAIL = 1500
_LOG_TAIL = 1 << 20

#: https://learn.microsoft.com/windows/win32/msi/error-codes and those of Visual Studio's installer.
_MEANING = {
    5: "access denied",
    87: "an argument that it does not know",
    740: "it wants to be started elevated",
    1602: "somebody, or a policy, cancelled it",
    1603: "a fatal error during installation",
    1618: "another installation is going on",
    1001: "Visual Studio's installer is running already",
    1641: "it has begun a restart of Windows",
    3010: "a restart of Windows completes it",
    1625: "a policy forbids it",
    1638: "another version is installed already",
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
    1602: "Look for a dialogue on the host's screen, and for policies.",
    1618: "Wait for it (Windows Update is one) and provision again.",
    5002: "Close Visual Studio and its installer on the host, or restart it, and provision again.",
    5003: "The host must reach Microsoft's servers, or get an offline layout.",
    5008: "Start the installer by hand with: vs_BuildTools.exe --quiet --wait --update",
}


#: Words in output or logs -> what they mean, and what to do, where the code says no more.
_IN_LOGS = {
    "already been added. Key in dictionary": (
        "two environment variables differ in upper and lower case alone",
        "Remove one of each pair on the host.",
    ),
    "0x80131509": (
        "the host cannot check Microsoft's certificates",
        "It must reach the addresses of docs/hosts/windows-host.md.",
    ),
}


class Spec(Proven):
    """What is wanted."""

    name: str
    version: str
    files: list[Pin]
    """The installer first."""
    arguments: list[str]
    """The paths of ``files`` are replaced by those of the copies that are run."""
    signer: str
    """Who must have signed the installer; empty: it is known by its sha256 alone."""
    prepare: list[str]
    """Arguments of a run before the one that installs."""
    path: str
    """The directory that Visual Studio fills, made before it runs, and whose product must be of
    ``version`` afterwards; empty for other installers, which fill Windows' own."""
    toolset: str
    """Of MSVC, whose cl.exe must run in ``path``."""
    detect: str
    """A glob that matches once it is installed."""
    registered: str
    """The key whose ``Version`` must be ``version`` or newer; empty: none says."""
    success: list[int]
    reboot: list[int]
    """Exit codes; the second are those of a success, and Windows must start anew."""
    as_task: bool
    """Run by the Task Scheduler."""
    logs: list[str]
    """Globs of what tells more when it fails."""
    minutes: float


def check(spec: Spec) -> Check:
    """Look for what it installs; its path under the installer's name."""
    found = sorted(glob.glob(spec["detect"]))  # noqa: PTH207 - an absolute pattern
    values = {spec["name"]: found[-1]} if found else {}
    if _refused(spec).exists():
        return {"ok": False, "found": "not what was asked for", "values": values}
    if found and spec["registered"]:
        said = str(registry.read(spec["registered"], "Version") or "no version")
        return {"ok": _numbers(said) >= _numbers(spec["version"]), "found": said, "values": values}
    if found and spec["path"]:
        values |= visualstudio.product(spec["path"])
        if "incomplete" in values:
            return {"ok": False, "found": "an incomplete installation", "values": values}
    return {"ok": bool(found), "found": found[-1] if found else "missing", "values": values}


def _numbers(version: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", version)]


def plan(spec: Spec) -> str:
    """The command line."""
    how = " as a scheduled task" if spec["as_task"] else ""
    return f"run {spec['files'][0]['file']} {' '.join(spec['arguments'])}{how}"


def apply(spec: Spec) -> Applied:
    """Run it, and see that it is what was asked for; what is not stays marked as that."""
    if spec["path"]:
        protected_dirs.make(spec["path"], readable=True)
        _refused(spec).touch()
    deadline = awake.seconds() + 60 * spec["minutes"]
    with protected_dirs.private() as folder:
        file, *arguments = _staged(spec, folder)
        if spec["signer"]:
            visualstudio.require_signer(file, spec["signer"])
        if spec["prepare"]:
            _run(spec, [file, *spec["prepare"]], deadline)
        done = _run(spec, [file, *arguments], deadline)
    if spec["path"]:
        visualstudio.require_product(spec["version"], spec["path"], spec["toolset"], spec["detect"])
        _refused(spec).unlink()
    return done


def _staged(spec: Spec, folder: pathlib.Path) -> list[str]:
    """The command line, of copies that nobody else can change any more; hashed there."""
    copies = {}
    for pin in spec["files"]:
        copy = folder / os.path.basename(pin["file"])  # noqa: PTH119 - a host's path, as a string
        try:
            shutil.copy(pin["file"], copy)
        except OSError as error:
            raise RefusedError(f"{pin['file']} cannot be copied: {error}") from error
        if (found := sha256(str(copy))) != pin["sha256"]:
            raise RefusedError(
                f"{pin['file']} has sha256 {found}, pinned is {pin['sha256']}",
                hint="Something on the host changed it after it was uploaded: find out what.",
            )
        copies[pin["file"]] = str(copy)
    return [copies.get(word, word) for word in (spec["files"][0]["file"], *spec["arguments"])]


def _refused(spec: Spec) -> pathlib.Path:
    """Is there while what the last run leaves is not known to be what was asked for."""
    return pathlib.Path(f"{spec['files'][0]['file']}.refused")


def _run(spec: Spec, command: list[str], deadline: float) -> Applied:
    """Run it, once more after each "another installation is going on", until ``deadline``."""
    run = scheduler.run if spec["as_task"] else capture
    while True:
        began = time.time()
        try:
            code, output = run(command, timeout=max(1.0, deadline - awake.seconds()))
        except TimeoutError:
            raise RefusedError(
                f"{spec['name']} did not end within {spec['minutes']:g} minutes; it was stopped",
                hint="It may show a dialogue that nobody sees: run it by hand once.",
                logs=_logs(spec, began),
            ) from None
        except OSError as error:
            raise RefusedError(f"{command[0]} cannot be started: {error}") from error
        if code not in _BUSY or awake.seconds() + _BUSY_PAUSE > deadline:
            break
        time.sleep(_BUSY_PAUSE)
    if code in spec["reboot"]:
        more = f", {_MEANING[code]}" if code in _MEANING else ""
        return {"reboot": f"{spec['name']} wants it ({code}{more})"}
    if code not in spec["success"]:
        logs, why, hint = _logs(spec, began), _MEANING.get(code, ""), _HINT.get(code, "")
        for text in (output, *map(_read, logs)):
            for words, told in _IN_LOGS.items():
                if words in text:
                    why, hint = told
        raise RefusedError(
            f"{spec['name']} left with {code}{why and ', '}{why}: {output.strip()[-_TAIL:]}",
            hint=hint or "Its logs say more.",
            logs=logs,
        )
    return {}


def _read(path: str) -> str:
    with contextlib.suppress(OSError):  # installers tidy up while we look
        return pathlib.Path(path).read_bytes()[-_LOG_TAIL:].decode("utf-8", "replace")
    return ""


def _logs(spec: Spec, since: float) -> list[str]:
    """Its log files of this run, the newest first."""
    times: dict[str, float] = {}
    for pattern in spec["logs"]:
        for path in glob.glob(pattern):  # noqa: PTH207
            with contextlib.suppress(OSError):  # installers tidy up while we look
                times[path] = os.stat(path).st_mtime  # noqa: PTH116
    recent = [path for path in times if times[path] >= since - 2]
    return sorted(recent, key=lambda path: -times[path])[:8]
