"""A value in the registry of 64-bit Windows, even from a 32-bit Python.

Integers are REG_DWORD, texts REG_SZ, lists of texts REG_MULTI_SZ. All other registry access goes
through this module.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from . import Applied, Check, Kind

_HIVES = {"HKLM": "HKEY_LOCAL_MACHINE", "HKCU": "HKEY_CURRENT_USER"}
#: Most values of a key to list.
_MOST = 200

Value = int | str | list[str]


class Lasting(Kind, total=False):
    """Fields of specs that may require a restart."""

    reboot: bool
    """Whether it only takes effect after a restart of Windows."""


class Spec(Lasting):
    """The desired state."""

    key: str
    """Starts with HKLM or HKCU."""
    name: str
    value: Value


@contextmanager
def _open_registry_key(key: str, *, write: bool = False) -> Iterator[tuple[ModuleType, object]]:
    """The module and the key; ``FileNotFoundError`` if it does not exist."""
    winreg = importlib.import_module("winreg")
    short, _, path = key.partition("\\")
    hive = getattr(winreg, _HIVES[short])
    bits = winreg.KEY_WOW64_64KEY
    if write:
        opened = winreg.CreateKeyEx(hive, path, 0, winreg.KEY_SET_VALUE | bits)
    else:
        opened = winreg.OpenKey(hive, path, 0, winreg.KEY_READ | bits)
    with opened as handle:
        yield winreg, handle


def read(key: str, name: str) -> object:
    """The value as a Python object, or ``None`` if it or its key does not exist."""
    try:
        with _open_registry_key(key) as (winreg, handle):
            return winreg.QueryValueEx(handle, name)[0]
    except FileNotFoundError:
        return None


def names(key: str) -> list[str]:
    """The names of a key's values, empty if it does not exist."""
    try:
        with _open_registry_key(key) as (winreg, handle):
            count = min(winreg.QueryInfoKey(handle)[1], _MOST)
            return [str(winreg.EnumValue(handle, index)[0]) for index in range(count)]
    except FileNotFoundError:
        return []


def exists(key: str) -> bool:
    """Whether the key exists."""
    try:
        with _open_registry_key(key):
            return True
    except FileNotFoundError:
        return False


def write(key: str, name: str, value: Value) -> None:
    """Set the value, creating the key if necessary. ``PermissionError`` without the rights."""
    with _open_registry_key(key, write=True) as (winreg, handle):
        if isinstance(value, list):
            kind = winreg.REG_MULTI_SZ
        else:
            kind = winreg.REG_DWORD if isinstance(value, int) else winreg.REG_SZ
        winreg.SetValueEx(handle, name, 0, kind, value)


def described(name: str, value: object, *, ok: bool) -> Check:
    """The check of one value, which is ``None`` if it is not set."""
    if value is None:
        return {"ok": ok, "found": "not set", "values": {}}
    return {"ok": ok, "found": str(value), "values": {name: str(value)}}


def check(spec: Spec) -> Check:
    """Compare with the registry, including the type: REG_SZ "1" is not REG_DWORD 1."""
    value = read(spec["key"], spec["name"])
    same = value == spec["value"] and type(value) is type(spec["value"])
    return described(spec["name"], value, ok=same)


def plan(spec: Spec) -> str:
    """The write."""
    return f"set {spec['key']}\\{spec['name']} to {spec['value']}"


def apply(spec: Spec) -> Applied:
    """Set it."""
    write(spec["key"], spec["name"], spec["value"])
    return {"reboot": f"{spec['name']} was set"} if spec.get("reboot") else {}
