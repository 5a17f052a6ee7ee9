"""The sandbox's compiler: a tree laid out as Visual Studio's; the slot for the user's own MSVC."""

from __future__ import annotations

from pathlib import Path

#: In a prefix with a tree of the user's: which.
INSTALLED = "msvc.txt"
#: cl.exe needs the run-time beside it, not Wine's: https://github.com/mstorsjo/msvc-wine
_NATIVE = ("vcruntime140", "vcruntime140_1", "msvcp140")


def overrides(prefix: Path) -> str:
    """Of ``WINEDLLOVERRIDES``, for every process of a Windows with a tree of the user's."""
    return f"{','.join(_NATIVE)}=n,b" if (prefix / INSTALLED).is_file() else ""
