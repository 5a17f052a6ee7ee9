"""Libraries that a wheel loads and does not hold: which are missing, and what brings them.

Windows says of a missing one only that "the specified module could not be found", and not which.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Collection, Iterable
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import Field

from pipelines.core.model import Model, Name, read_data

_FILE = Path(__file__).with_name("libraries.yaml")
_MENTIONED = re.compile(r"\b[\w.+-]{1,80}?\.(?:dll|so(?:\.\d{1,4}){1,3})\b", re.IGNORECASE)
_MOST = 12  # that are told


class Library(Model):
    """Libraries of one project of the package index."""

    names: Annotated[tuple[str, ...], Field(min_length=1)]
    """Globs, in lower case."""
    cuda: str
    """Major version that it is of."""
    project: Name
    folder: str
    """Below site-packages, on Windows."""


class Table(Model):
    """``libraries.yaml``."""

    libraries: tuple[Library, ...]
    system: tuple[str, ...]
    """Globs of those that no wheel brings."""
    torch: tuple[str, ...]
    """Globs of those that torch's wheel brings."""


@functools.cache
def table() -> Table:
    """The file, read once."""
    return read_data(_FILE, Table)


def bringers(name: str) -> tuple[Library, ...]:
    """What brings the library ``name``; several where releases of CUDA share it."""
    small = name.lower()
    return tuple(
        row for row in table().libraries if any(fnmatch.fnmatchcase(small, p) for p in row.names)
    )


def is_systems(name: str) -> bool:
    """Whether Windows, Python or the driver brings it."""
    small = name.lower()
    return any(fnmatch.fnmatchcase(small, pattern) for pattern in table().system)


def is_torchs(name: str) -> bool:
    """Whether torch's wheel brings it, whatever torch it is."""
    small = name.lower()
    return any(fnmatch.fnmatchcase(small, pattern) for pattern in table().torch)


def absent(imported: Iterable[str], files: Iterable[str]) -> tuple[str, ...]:
    """Of imported DLLs, those that neither Windows nor one of ``files`` (paths) is."""
    here = {PurePosixPath(file).name.lower() for file in files}
    wanted = {name.lower(): name for name in imported}
    return tuple(sorted(n for s, n in wanted.items() if s not in here and not is_systems(s)))


def mentioned(text: str) -> tuple[str, ...]:
    """Libraries of CUDA that a text names, such as an error."""
    found = dict.fromkeys(match[0] for match in _MENTIONED.finditer(text))
    return tuple(name for name in found if bringers(name))


def hint_for(
    names: Iterable[str], beside: Collection[str] = (), cuda: str = "", named: Collection[str] = ()
) -> str:
    """What to type for libraries that were not found; empty for none of CUDA's.

    ``beside`` are the projects that are installed already, ``named`` those whose libraries are
    found; ``cuda`` is the release that is used, which says whose library it is where releases share
    a name.
    """
    said = []
    for name, every in {name: rows for name in names if (rows := bringers(name))}.items():
        rows = tuple(row for row in every if row.cuda == cuda.partition(".")[0]) or every
        projects = " or ".join(row.project for row in rows)
        more = ""
        if any(row.project in named for row in rows):
            more = ", which was looked into"
        elif any(row.project in beside for row in rows):
            more = ", which is installed: name it with --with as well"
        said.append(f"{name} is in {projects} ({rows[0].folder}){more}")
    return "; ".join(said[:_MOST])
