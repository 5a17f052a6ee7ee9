"""A value in the Windows registry: ``{key, name, value, reboot}``.

Integers are REG_DWORD, texts REG_SZ, lists of texts REG_MULTI_SZ.
"""

from __future__ import annotations

import importlib
from typing import Any

_HIVES = {"HKLM": "HKEY_LOCAL_MACHINE", "HKCU": "HKEY_CURRENT_USER"}


def _open(key: str) -> tuple[Any, Any, str]:
    winreg: Any = importlib.import_module("winreg")
    hive, _, path = key.partition("\\")
    return winreg, getattr(winreg, _HIVES[hive]), path


def read(key: str, name: str) -> Any:
    """The value, or ``None`` when there is none."""
    winreg, hive, path = _open(key)
    try:
        with winreg.OpenKey(hive, path) as handle:
            return winreg.QueryValueEx(handle, name)[0]
    except FileNotFoundError:
        return None


def kind_of(winreg: Any, value: Any) -> int:
    """The registry type that a value is written as."""
    if isinstance(value, list):
        return int(winreg.REG_MULTI_SZ)
    return int(winreg.REG_DWORD if isinstance(value, int) else winreg.REG_SZ)


def write(key: str, name: str, value: Any) -> None:
    """Set the value; makes the key if need be. ``PermissionError`` without the rights."""
    winreg, hive, path = _open(key)
    with winreg.CreateKeyEx(hive, path, 0, winreg.KEY_SET_VALUE) as handle:
        winreg.SetValueEx(handle, name, 0, kind_of(winreg, value), value)


def check(spec: dict[str, Any]) -> dict[str, Any]:
    """Compare with what the registry holds, type included: REG_SZ "1" is not REG_DWORD 1."""
    found = read(spec["key"], spec["name"])
    same = found == spec["value"] and type(found) is type(spec["value"])
    return {"ok": same, "found": "not set" if found is None else str(found)}


def plan(spec: dict[str, Any]) -> str:
    """The write."""
    return f"set {spec['key']}\\{spec['name']} to {spec['value']}"


def apply(spec: dict[str, Any]) -> dict[str, Any]:
    """Set it."""
    write(spec["key"], spec["name"], spec["value"])
    return {"reboot": f"{spec['name']} was set"} if spec.get("reboot") else {}
