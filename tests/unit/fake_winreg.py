"""The part of ``winreg`` that resources use, over a dictionary; names ignore case as on Windows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

REG_SZ, REG_EXPAND_SZ, REG_DWORD, REG_MULTI_SZ = 1, 2, 4, 7
HKEY_LOCAL_MACHINE, HKEY_CURRENT_USER = "HKLM", "HKCU"
KEY_SET_VALUE = 2
_TYPES = {REG_SZ: str, REG_EXPAND_SZ: str, REG_DWORD: int, REG_MULTI_SZ: list}

#: (hive, key) -> value name -> (value, type); keys and names in lower case.
keys: dict[tuple[str, str], dict[str, tuple[Any, int]]] = {}


@contextmanager
def OpenKey(hive: str, path: str) -> Iterator[dict[str, tuple[Any, int]]]:  # noqa: N802
    if (hive, path.lower()) not in keys:
        raise FileNotFoundError(2, "no such key", path)
    yield keys[hive, path.lower()]


@contextmanager
def CreateKeyEx(  # noqa: N802
    hive: str, path: str, _: int, access: int
) -> Iterator[dict[str, tuple[Any, int]]]:
    assert access & KEY_SET_VALUE
    yield keys.setdefault((hive, path.lower()), {})


def QueryValueEx(key: dict[str, tuple[Any, int]], name: str) -> tuple[Any, int]:  # noqa: N802
    if name.lower() not in key:
        raise FileNotFoundError(2, "no such value", name)
    return key[name.lower()]


def SetValueEx(  # noqa: N802
    key: dict[str, tuple[Any, int]], name: str, _: int, kind: int, value: Any
) -> None:
    if not isinstance(value, _TYPES[kind]):
        raise TypeError(f"{value!r} is not of registry type {kind}")
    key[name.lower()] = (value, kind)
