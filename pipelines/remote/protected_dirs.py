r"""Directories that only administrators may change: what lies in them is run by one, or by SYSTEM.

Below the root of a drive (``C:\b``) every user may change what others made there, unless that is
taken away when the directory is made (https://learn.microsoft.com/windows/win32/secauthz).
"""

from __future__ import annotations

import contextlib
import pathlib
import re
import sys

from .process import capture

_TIMEOUT = 60.0
_SYSTEM, _ADMINISTRATORS, _USERS = "*S-1-5-18", "*S-1-5-32-544", "*S-1-5-32-545"


def make(path: str | pathlib.Path) -> None:
    """Make the directory and those above it; harmless when it is there. Raises ``OSError``.

    On Windows a new one below the root of a drive is for administrators, and whoever makes it, to
    change; what is made in it inherits that.
    """
    wanted = pathlib.Path(path)
    missing = [folder for folder in (wanted, *wanted.parents) if not folder.exists()]
    if missing and sys.platform == "win32" and below_root(missing[-1]):
        missing[-1].mkdir(exist_ok=True)
        protect(missing[-1], readable=True)  # before anything is in it
    wanted.mkdir(parents=True, exist_ok=True)


def below_root(folder: pathlib.PurePath) -> bool:
    """Whether it lies in the root of a drive itself, where every user has rights."""
    return folder != folder.parent == folder.parent.parent


def protect(folder: pathlib.Path, *, readable: bool) -> None:
    """Take other users' rights on a new directory away, but for reading if ``readable``."""
    rights = [f"{who}:(OI)(CI)F" for who in (_SYSTEM, _ADMINISTRATORS)]
    # Who may be no administrator, and must not lock himself out. Names do not always resolve.
    _, told = capture(["whoami.exe", "/user", "/fo", "csv", "/nh"], timeout=_TIMEOUT)
    if found := re.search(r"S-1-[0-9-]+", told):
        rights.append(f"*{found[0]}:(OI)(CI)F")
    if readable:
        rights.append(f"{_USERS}:(OI)(CI)RX")
    plain = str(folder).removeprefix("\\\\?\\")
    command = ["icacls.exe", plain, "/inheritance:r", "/grant:r", *rights]
    code, output = capture(command, timeout=_TIMEOUT)
    if code:
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise OSError(f"icacls {plain} left with {code}: {output.strip()[-500:]}")
