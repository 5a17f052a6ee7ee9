"""File names that are valid on Windows, and unpacking archives without leaving their directory.

https://learn.microsoft.com/windows/win32/fileio/naming-a-file lists the names that Windows treats
as devices, refuses, or shortens; they are refused on every system, before anything is written.
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
    """Why a file name is invalid on Windows; empty if it is valid."""
    if not part:
        return "empty"
    if _DEVICE.match(part):
        return "the name of a device"
    if match := _FORBIDDEN.search(part):
        return f"has the character {match[0]!r}"
    # Windows drops trailing dots and spaces: "..." and ". ." are names of parent folders.
    return "ends in a dot or a space" if part[-1] in ". " else ""


def tree_faults(names: Iterable[str]) -> dict[str, str]:
    """Paths that cannot exist in one directory on Windows, each with the reason.

    With ``/`` between the parts, and after a directory.
    """
    faults: dict[str, str] = {}
    files: dict[str, str] = {}
    folders: set[str] = set()
    for name in names:
        *above, last = _as_compared(name).split("/")
        if reason := next(filter(None, map(name_fault, name.removesuffix("/").split("/"))), ""):
            faults[name] = reason
        if last and (other := files.setdefault("/".join((*above, last)), name)) != name:
            faults[name] = f"differs from {other} only in case"
        folders.update("/".join(above[: depth + 1]) for depth in range(len(above)))
    faults.update((files[key], "a directory has that name") for key in files.keys() & folders)
    return faults


def _as_compared(name: str) -> str:
    """The name as NTFS compares it: character by character, so that no length changes."""
    if name.isascii():
        return name.upper()
    return "".join(
        upper if len(upper := character.upper()) == 1 else character for character in name
    )


def member_parts(name: str, archive: str) -> list[str]:
    """The folders and the file that ``name`` (with ``/``) means below the target directory.

    ``ValueError`` if it would leave the directory or be something else than it claims.
    """
    parts = name.split("/")
    if any(map(name_fault, parts)):
        raise refusal(name, archive)
    return parts


def unpack_member(
    tar: tarfile.TarFile, member: tarfile.TarInfo, target: pathlib.Path, archive: str
) -> pathlib.Path:
    """Write one file or directory of a tar below ``target``, with its time; its path.

    Not ``TarFile.extract``: its filters came with Python 3.11.4, and Debian 12 has 3.11.2.
    ``ValueError`` for links, devices and names that lead elsewhere: nothing is written for them.
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
    """The error for a member that is refused."""
    return ValueError(
        f"{archive}: member {name!r} is refused: it leaves the directory, or is a link, "
        "a device or a name that is invalid on Windows"
    )
