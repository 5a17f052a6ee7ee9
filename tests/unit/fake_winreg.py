"""The part of ``winreg`` that is used, over a dictionary; names ignore case as on Windows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

REG_SZ, REG_EXPAND_SZ, REG_DWORD, REG_MULTI_SZ = 1, 2, 4, 7
HKEY_LOCAL_MACHINE, HKEY_CURRENT_USER = "HKLM", "HKCU"
KEY_SET_VALUE, KEY_READ, KEY_WOW64_64KEY = 2, 0x20019, 0x100
_TYPES = {REG_SZ: str, REG_EXPAND_SZ: str, REG_DWORD: int, REG_MULTI_SZ: list}

Key = dict[str, tuple[Any, int]]

#: (hive, key) -> value name -> (value, type); keys and names in lower case.
keys: dict[tuple[str, str], Key] = {}


def _of_64_bits(access: int, rights: int) -> None:
    assert access == rights | KEY_WOW64_64KEY, "a 32-bit Python would have another registry"


@contextmanager
def OpenKey(hive: str, path: str, _: int, access: int) -> Iterator[Key]:  # noqa: N802
    _of_64_bits(access, KEY_READ)
    if (hive, path.lower()) not in keys:
        raise FileNotFoundError(2, "no such key", path)
    yield keys[hive, path.lower()]


@contextmanager
def CreateKeyEx(hive: str, path: str, _: int, access: int) -> Iterator[Key]:  # noqa: N802
    _of_64_bits(access, KEY_SET_VALUE)
    yield keys.setdefault((hive, path.lower()), {})


def QueryValueEx(key: Key, name: str) -> tuple[Any, int]:  # noqa: N802
    if name.lower() not in key:
        raise FileNotFoundError(2, "no such value", name)
    return key[name.lower()]


def QueryInfoKey(key: Key) -> tuple[int, int, int]:  # noqa: N802
    return 0, len(key), 0


def EnumValue(key: Key, index: int) -> tuple[str, Any, int]:  # noqa: N802
    name = list(key)[index]
    return name, *key[name]


def SetValueEx(key: Key, name: str, _: int, kind: int, value: Any) -> None:  # noqa: N802
    if not isinstance(value, _TYPES[kind]):
        raise TypeError(f"{value!r} is not of registry type {kind}")
    key[name.lower()] = (value, kind)
