"""The machine: Windows, processor, page file, disks, TEMP, and what its kernel says."""

from __future__ import annotations

import os
import pathlib
import sys
from typing import Any

from ..facts import disk, gather
from ..rpc import idempotent
from . import kernel, registry

_WINDOWS = r"SOFTWARE\Microsoft\Windows NT\CurrentVersion"
_PROCESSOR = r"HARDWARE\DESCRIPTION\System\CentralProcessor\0"
_SESSION_MANAGER = r"SYSTEM\CurrentControlSet\Control\Session Manager"
_FILE_SYSTEM = r"SYSTEM\CurrentControlSet\Control\FileSystem"


def _system() -> dict[str, Any] | None:
    """How Windows names itself in the registry; ``None`` elsewhere."""
    if sys.platform != "win32":
        return None
    names = ("ProductName", "EditionID", "DisplayVersion", "InstallationType", "UBR")
    return {name: registry.value(_WINDOWS, name) for name in names}


def _cpu() -> dict[str, Any]:
    """The processor's name and its logical cores."""
    model = None
    if sys.platform == "win32":
        model = registry.value(_PROCESSOR, "ProcessorNameString")
    else:
        for line in pathlib.Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2]
                break
    return {"model": str(model).strip() if model else None, "cores": os.cpu_count() or 1}


def _page_file() -> list[str] | None:
    """Windows' list of page files, "path initial maximum" in MB; ``None`` elsewhere."""
    if sys.platform != "win32":
        return None
    found = registry.value(rf"{_SESSION_MANAGER}\Memory Management", "PagingFiles")
    if found is None:
        raise LookupError("PagingFiles is not set")
    return [found] if isinstance(found, str) else [str(line) for line in found]


def _long_paths() -> bool:
    """Whether programs that know how may use paths of more than 260 characters."""
    return sys.platform != "win32" or bool(registry.value(_FILE_SYSTEM, "LongPathsEnabled") == 1)


def _temp() -> dict[str, Any]:
    """TEMP and TMP of this process, which are those of the service, and of the machine."""
    rows: dict[str, Any] = {}
    for name in ("TEMP", "TMP"):
        path = os.environ.get(name)
        machine = None
        if sys.platform == "win32":
            machine = registry.value(rf"{_SESSION_MANAGER}\Environment", name)
        rows[name] = {
            "path": path,
            "exists": bool(path) and pathlib.Path(str(path)).is_dir(),
            "machine": machine,
        }
    return rows


@idempotent
def machine(paths: list[str]) -> dict[str, Any]:
    """The machine, and the disks of the system and of ``paths``; sizes in bytes."""
    system = os.environ.get("SYSTEMDRIVE", "")
    places = dict.fromkeys([f"{system}\\" if system else "/", *paths])
    disks = gather({place: lambda place=place: disk(place) for place in places})  # type: ignore[misc]
    return gather(
        {
            "system": _system,
            "wine": kernel.wine,
            "cpu": _cpu,
            "commit": kernel.commit,
            "job": kernel.job,
            "page_file": _page_file,
            "long_paths": _long_paths,
            "temp": _temp,
            "disks": lambda: disks,
            "up_since": kernel.up_since,
            "administrator": kernel.administrator,
        }
    )
