"""A value in the Windows registry: ``{key, name, value}``; integers are REG_DWORD."""

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


def write(key: str, name: str, value: Any) -> None:
    """Set the value; makes the key if need be. ``PermissionError`` without the rights."""
    winreg, hive, path = _open(key)
    kind = winreg.REG_DWORD if isinstance(value, int) else winreg.REG_SZ
    with winreg.CreateKeyEx(hive, path, 0, winreg.KEY_SET_VALUE) as handle:
        winreg.SetValueEx(handle, name, 0, kind, value)


def check(spec: dict[str, Any]) -> dict[str, Any]:
    """Compare with what the registry holds."""
    found = read(spec["key"], spec["name"])
    return {"ok": found == spec["value"], "found": "not set" if found is None else str(found)}


def apply(spec: dict[str, Any]) -> None:
    """Set it."""
    write(spec["key"], spec["name"], spec["value"])
