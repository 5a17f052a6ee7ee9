"""File names that Windows has, and archives unpacked without leaving their directory.

https://learn.microsoft.com/windows/win32/fileio/naming-a-file lists what Windows takes for a
device, refuses, or shortens; such names are refused on every system, before anything is written.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import tarfile
from collections.abc import Iterable

_FORBIDDEN = re.compile(r'[\x00-\x1f<>:"|?*\\]')
_DEVICE = re.compile(
    r"(?i)(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9\u00b9\u00b2\u00b3])\s*(\.|$)"
)


def name_fault(part: str) -> str:
    """Why Windows has no file of that name; empty where it may have one."""
    if not part:
        return "empty"
    if _DEVICE.match(part):
        return "the name of a device"
    if found := _FORBIDDEN.search(part):
        return f"has the character {found[0]!r}"
    # Windows drops dots and blanks at the end: "..." and ". ." are names of folders above.
    return "ends in a dot or a blank" if part[-1] in ". " else ""


def tree_faults(names: Iterable[str]) -> dict[str, str]:
    """Paths that cannot lie in one directory on Windows, each with the reason.

    With ``/`` between the parts, and behind a directory.
    """
    faults: dict[str, str] = {}
    files: dict[str, str] = {}
    folders: set[str] = set()
    for name in names:
        *above, last = _as_compared(name).split("/")
        if reason := next(filter(None, map(name_fault, name.removesuffix("/").split("/"))), ""):
            faults[name] = reason
        if last and (other := files.setdefault("/".join((*above, last)), name)) != name:
            faults[name] = f"differs from {other} in case only"
        folders.update("/".join(above[: depth + 1]) for depth in range(len(above)))
    faults.update((files[key], "a directory has that name") for key in files.keys() & folders)
    return faults


def _as_compared(name: str) -> str:
    """The name as NTFS compares it: each character by itself, so that no length changes."""
    if name.isascii():
        return name.upper()
    return "".join(upper if len(upper := one.upper()) == 1 else one for one in name)


def member_parts(name: str, archive: str) -> list[str]:
    """The folders and the file that ``name`` (with ``/``) means below the place of unpacking.

    ``ValueError`` when it would leave that place or be something else than it says.
    """
    parts = name.split("/")
    if any(map(name_fault, parts)):
        raise refusal(name, archive)
    return parts


def unpack_member(
    tar: tarfile.TarFile, member: tarfile.TarInfo, target: pathlib.Path, archive: str
) -> pathlib.Path:
    """Write one file or directory of a tar below ``target``, with its time; where it is.

    Not ``TarFile.extract``: its filters came with Python 3.11.4, and Debian 12 has 3.11.2.
    ``ValueError`` for links, devices and names that lead elsewhere: nothing is written of them.
    """
    if not (member.isfile() or member.isdir()):
        raise refusal(member.name, archive)
    path = target.joinpath(*member_parts(member.name, archive))
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    source = tar.extractfile(member)
    assert source is not None  # noqa: S101 - it is a file
    with path.open("wb") as sink:
        shutil.copyfileobj(source, sink)
    os.utime(path, (member.mtime, member.mtime))
    return path


def refusal(name: str, archive: str) -> ValueError:
    """The error for a member that is not unpacked."""
    return ValueError(
        f"{archive}: member {name!r} is refused: it would leave the directory, or is a link, "
        "a device or a name that Windows does not have"
    )
