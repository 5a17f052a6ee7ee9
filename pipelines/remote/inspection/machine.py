"""The machine: Windows, processor, disks, and what its kernel says."""

from __future__ import annotations

import os
import pathlib
import sys
from typing import TypedDict, cast

from .. import limits
from ..facts import disk, gather
from ..resources import registry
from ..rpc import idempotent
from . import kernel

_WINDOWS = r"HKLM\SOFTWARE\Microsoft\Windows NT\CurrentVersion"
_CODE_INTEGRITY = r"HKLM\SYSTEM\CurrentControlSet\Control\CI\Policy"
_APPLOCKER = r"HKLM\SOFTWARE\Policies\Microsoft\Windows\SrpV2"
_PROCESSOR = r"HKLM\HARDWARE\DESCRIPTION\System\CentralProcessor\0"


class Processor(TypedDict):
    """The processor."""

    model: str | None
    cores: int
    """Logical cores."""


class Machine(TypedDict):
    """Unknown values are ``None``, with the reason in ``problems``."""

    system: dict[str, object] | None
    """Windows' product name in the registry; ``None`` elsewhere."""
    wine: str | None
    cpu: Processor | None
    commit: kernel.Commit | None
    job: kernel.Limits | None
    disks: dict[str, dict[str, object]] | None
    power: dict[str, int] | None
    administrator: bool | None
    policies: dict[str, object] | None
    """What may prevent unsigned modules from loading, see :func:`_code_policies`."""
    password: dict[str, float | None] | None
    """``left``: seconds until it expires, ``None`` if it never does."""
    problems: dict[str, str]


def _windows_edition() -> dict[str, object] | None:
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
    return {"model": str(model).strip() if model else None, "cores": limits.cores()}


def _code_policies() -> dict[str, object] | None:
    """Smart App Control: 1 is on, 2 evaluates and may turn itself on; the kernel; AppLocker."""
    if sys.platform != "win32":
        return None
    modes = (registry.read(rf"{_APPLOCKER}\{kind}", "EnforcementMode") for kind in ("Dll", "Exe"))
    return {
        "smart_app_control": registry.read(_CODE_INTEGRITY, "VerifiedAndReputablePolicyState"),
        "enforced": kernel.enforces_signatures(),
        "applocker": 1 in modes,
    }


@idempotent
def machine(paths: list[str]) -> Machine:
    """The machine, and the disks of the system and of ``paths``; sizes in bytes."""
    system = os.environ.get("SYSTEMDRIVE", "")
    places = dict.fromkeys([f"{system}\\" if system else "/", *paths])
    disks = gather({place: lambda place=place: disk(place) for place in places})  # type: ignore[misc]
    results = gather(
        {
            "system": _windows_edition,
            "wine": kernel.wine,
            "cpu": _cpu,
            "commit": kernel.commit,
            "job": kernel.job,
            "disks": lambda: disks,
            "power": kernel.power,
            "administrator": kernel.administrator,
            "policies": _code_policies,
            "password": lambda: {"left": kernel.password_expires()},
        }
    )
    return cast(Machine, results)
