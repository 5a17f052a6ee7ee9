"""New wheels of torch as rows for the lock: what their own METADATA requires, and nothing guessed.

The rows have the sha256 that the index states; ``invoke lock`` fetches the wheels and compares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml
from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pipelines.core.errors import LockError
from pipelines.core.files import write_atomic
from pipelines.core.finding import Finding
from pipelines.core.hosttext import line
from pipelines.core.versions import python_release
from pipelines.publish.watch.pages import File, read_texts
from pipelines.publish.watch.released import Torch, note
from pipelines.record.target import Target
from pipelines.toolchain.lock import ToolchainLock
from pipelines.toolchain.variants import Names

_METADATA = 1 << 20  # bytes: torch's has 30 kB
_HEAD = """\
# Made by `invoke watch --pins` of what torch's index has and toolchain.yaml does not name; put it
# beside that one, and `invoke lock --only NAME` fetches, compares and pins one of them.
"""
#: What markers ask of a Windows host; Python is added.
_WINDOWS = {
    "os_name": "nt",
    "sys_platform": "win32",
    "platform_system": "Windows",
    "platform_machine": "AMD64",
    "platform_python_implementation": "CPython",
    "implementation_name": "cpython",
    "extra": "",
}


@dataclass(frozen=True)
class Pins:
    """Rows for the lock."""

    ids: Mapping[Target, str]
    """Of each cell the lock's entry that its torch has, or will have."""
    rows: tuple[Mapping[str, Any], ...]
    notes: tuple[Finding, ...]

    def write(self, path: Path) -> None:
        """As a file of the form of ``toolchain.yaml``."""
        data = {
            "version": 1,
            "groups": [{"tools": {"torch": list(self.rows)}}] if self.rows else [],
        }
        write_atomic(path, (_HEAD + yaml.safe_dump(data, sort_keys=False, width=1000)).encode())


def pins(
    lock: ToolchainLock, out: Mapping[str, Torch], cells: Iterable[Target], *, home: str
) -> Pins:
    """For the torch of ``cells``; those that need something else by hand are told of.

    ``home`` is the address of the index: its wheels are taken from its own domain alone.
    Raises :class:`LockError` for METADATA that cannot be read, or is another wheel's.
    """
    ids: dict[Target, str] = {}
    wanted: dict[tuple[str, str, str], tuple[Target, File]] = {}
    notes: dict[Finding, None] = {}
    known = Names(lock.tools)
    for cell in cells:
        try:
            ids[cell] = known.resolve("torch", cell)
        except LockError:
            plain = (cell.cuda.replace(".", ""), cell.python.replace(".", ""))
            ids[cell] = f"torch-{cell.torch}-cu{plain[0]}-cp{plain[1]}"  # as intent.py names it
            file = out[cell.torch].builds[cell.cuda][cell.python]
            wanted[cell.torch, cell.cuda, cell.python] = cell, file
    own = [file.url for _, file in wanted.values() if not _elsewhere(file.url, home)]
    texts = read_texts([f"{url}.metadata" for url in own], _METADATA)
    rows = []
    for cell, file in wanted.values():
        try:
            if file.url not in own:
                raise _ByHandError(_elsewhere(file.url, home))  # noqa: TRY301
            required = _required(texts[f"{file.url}.metadata"], file, cell.python)
            rows.append(_row(cell, file, [_entry(one, known, lock, cell) for one in required]))
        except _ByHandError as error:
            says, hint = f"torch {file.version}: {error}", "Name it in toolchain.yaml."
            notes[note("pin-by-hand", "torch", says, hint)] = None
            ids = {other: name for other, name in ids.items() if name != ids[cell]}
    return Pins(ids, tuple(rows), tuple(notes))


class _ByHandError(Exception):
    """Something that somebody has to decide."""


def _elsewhere(url: str, home: str) -> str:
    """Why a file is not the index's: PyTorch's have several names in one domain. Empty: it is."""
    own, there = (urlsplit(one).hostname or "" for one in (home, url))
    name = own.split(".")[-2:]
    if there == own or (not name[-1].isdigit() and there.split(".")[-2:] == name):
        return ""
    return f"its wheel lies on {line(there, 80)}, and the index on {own}"


def _required(data: bytes, file: File, python: str) -> list[Requirement]:
    try:
        metadata = Metadata.from_email(data, validate=False)
        name, version, required = metadata.name, metadata.version, metadata.requires_dist or []
    except Exception as error:  # made to break a reader, of which each part breaks in its own way
        raise LockError(
            f"METADATA of {file.name} cannot be read: {type(error).__name__}",
            hint="Nothing was pinned. Try again later.",
        ) from None
    if canonicalize_name(str(name)) != "torch" or version != file.version:
        raise LockError(
            f"METADATA of {file.name} is that of {line(name, 40)} {line(version, 40)}",
            hint="Nothing was pinned: tell the one who keeps that index.",
        )
    release = python_release(python)
    here = _WINDOWS | {"python_version": release, "python_full_version": f"{release}.0"}
    return [one for one in required if one.marker is None or one.marker.evaluate(here)]


def _entry(required: Requirement, known: Names, lock: ToolchainLock, cell: Target) -> str:
    name = canonicalize_name(required.name)
    try:
        version = lock.tools[known.resolve(name, cell)].version
    except LockError:
        raise _ByHandError(f"it requires {line(required.name, 60)}, which has no pin") from None
    if not required.specifier.contains(version, prereleases=True):
        says = f"it requires {name}{line(required.specifier, 60)}, and the lock has {version}"
        raise _ByHandError(says)
    return str(name)


def _row(cell: Target, file: File, requires: list[str]) -> dict[str, Any]:
    if not file.url.startswith("https://") or set("{}") & set(file.url):
        raise LockError(f"{file.name}: {line(file.url, 200)} is no address for the lock")
    if unquote(file.url.rpartition("/")[2]) != file.name or not file.sha256:
        raise _ByHandError(f"the index states no sha256 of {file.name}")
    return {
        "torch": {cell.torch: str(file.version)},
        "cuda": [cell.cuda],
        "python": [cell.python],
        "sources": [{"url": file.url}],
        "requires": sorted(requires),
        "sha256": file.sha256,
    }
