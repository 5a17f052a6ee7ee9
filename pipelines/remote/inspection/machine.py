"""The machine: Windows, processor, disks, TEMP, and what its kernel says."""

from __future__ import annotations

import os
import pathlib
import sys
from typing import TypedDict, cast

from ..facts import disk, gather
from ..resources import registry
from ..rpc import idempotent
from . import kernel

_WINDOWS = r"HKLM\SOFTWARE\Microsoft\Windows NT\CurrentVersion"
_PROCESSOR = r"HKLM\HARDWARE\DESCRIPTION\System\CentralProcessor\0"


class Processor(TypedDict):
    """What it is."""

    model: str | None
    cores: int
    """Logical ones."""


class Variable(TypedDict):
    """One that names a directory, as this process has it."""

    path: str | None
    exists: bool


class Machine(TypedDict):
    """What could not be told is ``None``, with its reason in ``problems``."""

    system: dict[str, object] | None
    """How Windows names itself in the registry; ``None`` elsewhere."""
    wine: str | None
    cpu: Processor | None
    commit: kernel.Commit | None
    job: kernel.Limits | None
    temp: dict[str, Variable] | None
    """TEMP and TMP of this process, which are those of the service."""
    disks: dict[str, dict[str, object]] | None
    power: dict[str, int] | None
    administrator: bool | None
    problems: dict[str, str]


def _system() -> dict[str, object] | None:
    if sys.platform != "win32":
        return None
    names = ("ProductName", "EditionID", "DisplayVersion", "InstallationType", "UBR")
    return {name: registry.read(_WINDOWS, name) for name in names}


def _cpu() -> Processor:
    model: object = None
    if sys.platform == "win32":
        model = registry.read(_PROCESSOR, "ProcessorNameString")
    else:
        for line in pathlib.Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2]
                break
    return {"model": str(model).strip() if model else None, "cores": os.cpu_count() or 1}


def _temp() -> dict[str, Variable]:
    paths = {name: os.environ.get(name) for name in ("TEMP", "TMP")}
    return {
        name: {"path": path, "exists": bool(path) and pathlib.Path(str(path)).is_dir()}
        for name, path in paths.items()
    }


@idempotent
def machine(paths: list[str]) -> Machine:
    """The machine, and the disks of the system and of ``paths``; sizes in bytes."""
    system = os.environ.get("SYSTEMDRIVE", "")
    places = dict.fromkeys([f"{system}\\" if system else "/", *paths])
    disks = gather({place: lambda place=place: disk(place) for place in places})  # type: ignore[misc]
    found = gather(
        {
            "system": _system,
            "wine": kernel.wine,
            "cpu": _cpu,
            "commit": kernel.commit,
            "job": kernel.job,
            "temp": _temp,
            "disks": lambda: disks,
            "power": kernel.power,
            "administrator": kernel.administrator,
        }
    )
    return cast(Machine, found)
