"""A value in the registry of 64-bit Windows, whatever the bits of this Python.

Integers are REG_DWORD, texts REG_SZ, lists of texts REG_MULTI_SZ. Whatever else asks the registry
does so through here.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from . import Applied, Check, Kind

_HIVES = {"HKLM": "HKEY_LOCAL_MACHINE", "HKCU": "HKEY_CURRENT_USER"}
#: At most so many values of a key are listed.
_MOST = 200

Value = int | str | list[str]


class Lasting(Kind, total=False):
    """Of specs that may want a restart."""

    reboot: bool
    """Whether it takes effect at the next start of Windows only."""


class Spec(Lasting):
    """What is wanted."""

    key: str
    """Begins with HKLM or HKCU."""
    name: str
    value: Value


@contextmanager
def _opened(key: str, *, write: bool = False) -> Iterator[tuple[ModuleType, object]]:
    """The module and the key; ``FileNotFoundError`` when there is none to read."""
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
    """The value as Python has it, or ``None`` when it or its key does not exist."""
    try:
        with _opened(key) as (winreg, handle):
            return winreg.QueryValueEx(handle, name)[0]
    except FileNotFoundError:
        return None


def names(key: str) -> list[str]:
    """The names of a key's values, none when it does not exist."""
    try:
        with _opened(key) as (winreg, handle):
            count = min(winreg.QueryInfoKey(handle)[1], _MOST)
            return [str(winreg.EnumValue(handle, index)[0]) for index in range(count)]
    except FileNotFoundError:
        return []


def exists(key: str) -> bool:
    """Whether there is such a key."""
    try:
        with _opened(key):
            return True
    except FileNotFoundError:
        return False


def write(key: str, name: str, value: Value) -> None:
    """Set the value; makes the key if need be. ``PermissionError`` without the rights."""
    with _opened(key, write=True) as (winreg, handle):
        if isinstance(value, list):
            kind = winreg.REG_MULTI_SZ
        else:
            kind = winreg.REG_DWORD if isinstance(value, int) else winreg.REG_SZ
        winreg.SetValueEx(handle, name, 0, kind, value)


def told(name: str, found: object, *, ok: bool) -> Check:
    """The check of one value, which is ``None`` when it is not set."""
    if found is None:
        return {"ok": ok, "found": "not set", "values": {}}
    return {"ok": ok, "found": str(found), "values": {name: str(found)}}


def check(spec: Spec) -> Check:
    """Compare with what the registry holds, type included: REG_SZ "1" is not REG_DWORD 1."""
    found = read(spec["key"], spec["name"])
    same = found == spec["value"] and type(found) is type(spec["value"])
    return told(spec["name"], found, ok=same)


def plan(spec: Spec) -> str:
    """The write."""
    return f"set {spec['key']}\\{spec['name']} to {spec['value']}"


def apply(spec: Spec) -> Applied:
    """Set it."""
    write(spec["key"], spec["name"], spec["value"])
    return {"reboot": f"{spec['name']} was set"} if spec.get("reboot") else {}
