"""Reads the registry of 64-bit Windows, whatever the bits of this Python; never writes."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: At most so many values of a key are listed.
_MOST = 200


@contextmanager
def _opened(key: str) -> Iterator[tuple[Any, Any]]:
    """A key of HKEY_LOCAL_MACHINE; ``FileNotFoundError`` when there is none."""
    winreg: Any = importlib.import_module("winreg")
    access = winreg.KEY_READ | winreg.KEY_WOW64_64KEY
    with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, key, 0, access) as handle:
        yield winreg, handle


def value(key: str, name: str) -> Any:
    """A value, or ``None`` when it or its key does not exist."""
    try:
        with _opened(key) as (winreg, handle):
            return winreg.QueryValueEx(handle, name)[0]
    except FileNotFoundError:
        return None


def names(key: str) -> list[str] | None:
    """The names of a key's values, ``None`` when it does not exist."""
    try:
        with _opened(key) as (winreg, handle):
            count = min(winreg.QueryInfoKey(handle)[1], _MOST)
            return [str(winreg.EnumValue(handle, index)[0]) for index in range(count)]
    except FileNotFoundError:
        return None
