"""Libraries that a wheel needs and does not contain: which are missing, and which package has them.

For a missing one Windows only reports "the specified module could not be found", not which.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Iterable
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import Field

from pipelines.core.model import Model, Name, read_data

_FILE = Path(__file__).with_name("libraries.yaml")
_MENTIONED = re.compile(r"\b[\w.+-]{1,80}?\.(?:dll|so(?:\.\d{1,4}){1,3})\b", re.IGNORECASE)
_MOST = 12  # hints


class Library(Model):
    """Libraries of one project of the package index."""

    names: Annotated[tuple[str, ...], Field(min_length=1)]
    """Globs, in lower case."""
    cuda: str = ""
    """Its CUDA major version; empty: it is not CUDA's."""
    project: Name
    folder: str
    """Below site-packages, on Windows."""


class Table(Model):
    """``libraries.yaml``."""

    libraries: tuple[Library, ...]
    others: tuple[Library, ...]
    compilers: tuple[str, ...]
    """Globs of projects that compile device code when they are used."""
    system: tuple[str, ...]
    """Globs of system libraries, which are in no wheel."""
    torch: tuple[str, ...]
    """Globs of libraries in torch's wheel."""


def library_table() -> Table:
    """The file, read once."""
    return read_data(_FILE, Table)


def _matches_any_pattern(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name.lower(), pattern) for pattern in patterns)


def library_providers(name: str) -> tuple[Library, ...]:
    """The projects that provide a library; several if CUDA versions share its name."""
    return tuple(row for row in library_table().libraries if _matches_any_pattern(name, row.names))


def is_library_provided(name: str, projects: Collection[str]) -> bool:
    """Whether one of these projects, which are not CUDA's, has a library."""
    return any(
        row.project in projects and _matches_any_pattern(name, row.names)
        for row in library_table().others
    )


def has_device_compiler(projects: Collection[str]) -> bool:
    """Whether one of these compiles device code when it is used."""
    return any(_matches_any_pattern(one, library_table().compilers) for one in projects)


def is_system_dll(name: str) -> bool:
    """Whether it belongs to Windows, Python or the driver."""
    return _matches_any_pattern(name, library_table().system)


def is_torch_dll(name: str) -> bool:
    """Whether it is in a torch wheel, of whatever version."""
    return _matches_any_pattern(name, library_table().torch)


def missing_dlls(imported: Iterable[str], files: Iterable[str]) -> tuple[str, ...]:
    """Imported DLLs that are neither Windows' own nor among ``files`` (paths)."""
    here = {PurePosixPath(file).name.lower() for file in files}
    names_by_lower = {name.lower(): name for name in imported}
    return tuple(
        sorted(n for s, n in names_by_lower.items() if s not in here and not is_system_dll(s))
    )


def mentioned_cuda_libraries(text: str) -> tuple[str, ...]:
    """CUDA libraries that a text such as an error message names."""
    names = dict.fromkeys(match[0] for match in _MENTIONED.finditer(text))
    return tuple(name for name in names if library_providers(name))


def hint_for(
    names: Iterable[str],
    installed: Collection[str] = (),
    cuda: str = "",
    named: Collection[str] = (),
) -> str:
    """Which projects provide libraries that were not found; empty for none of CUDA's.

    ``installed`` are projects that are installed, ``named`` those whose libraries are on the search
    path; ``cuda`` decides between projects that share a library's name.
    """
    hints = []
    for name, every in {name: rows for name in names if (rows := library_providers(name))}.items():
        rows = tuple(row for row in every if row.cuda == cuda.partition(".")[0]) or every
        projects = " or ".join(row.project for row in rows)
        more = ""
        if any(row.project in named for row in rows):
            more = ", which was searched"
        elif any(row.project in installed for row in rows):
            more = ", which is installed: add it with --with"
        hints.append(f"{name} is in {projects} ({rows[0].folder}){more}")
    return "; ".join(hints[:_MOST])
