"""The exports of wheels on this machine, in the cache of exports or read into it."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

from pipelines.core.console import say
from pipelines.core.errors import LockError
from pipelines.core.hosttext import safe_line
from pipelines.toolchain.lock import Cache, Tool
from pipelines.wheels.exports.cache import CacheEntry, entry_path
from pipelines.wheels.exports.reader import read_archive
from pipelines.wheels.exports.table import ExportTable
from pipelines.wheels.libraries import is_torch_dll

#: Where a pinned wheel is listed.
LOCK = "lock"


def pinned_torch_exports(tool: Tool, cache: Cache) -> ExportTable | None:
    """The exports of a pinned torch wheel; ``None`` if neither it nor they are cached."""
    entry, _ = find_cached_exports(cache, tool.sha256, is_torch_dll)
    path = cache.place(tool.file, tool.sha256)
    if (entry is None or not entry.head.whole) and cache.has(path, tool.sha256, tool.size):
        entry = wheel_exports(path, tool.sha256, cache, is_torch_dll)
    if entry and not entry.head.listed:
        entry = entry.listed(cache.root, tool.file, LOCK)
    return torch_table(entry) if entry else None


def torch_table(entry: CacheEntry) -> ExportTable:
    """The exports of a torch wheel."""
    head = entry.head
    *_, python, _ = head.file.removesuffix(".whl").split("-")  # as its ABI has it: cp313t
    title = f"torch {head.version} ({python})"
    return ExportTable(title, entry.path, head.sha256, stated=not head.whole)


def is_torch_wheel(file: str) -> bool:
    """Whether that is the file name of a torch wheel."""
    return file.lower().startswith("torch-")


def wheel_exports(
    path: Path, sha256: str, cache: Cache, needed: Callable[[str], bool]
) -> CacheEntry:
    """The exports of the ``needed`` DLLs of a local wheel with that computed sha256."""
    entry, more = find_cached_exports(cache, sha256, needed)
    if entry is not None and entry.head.whole:  # parts are only known by what a server says
        return entry
    try:
        with zipfile.ZipFile(path) as archive:
            made = read_archive(archive, path.name, sha256, more, cache.root, whole=True)
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise LockError(
            f"{safe_line(path.name, 200)} cannot be read: {safe_line(str(error), 200)}",
            hint="Download it again.",
        ) from None
    if entry is not None and entry.head.listed:
        return made.listed(cache.root, entry.head.file, entry.head.listed)
    return made


def find_cached_exports(
    cache: Cache, sha256: str, needed: Callable[[str], bool]
) -> tuple[CacheEntry | None, Callable[[str], bool]]:
    """The cache entry of a wheel if it suffices; otherwise which DLLs to read."""
    path = entry_path(cache.root, sha256)
    try:
        if not path.exists():
            return None, needed
        entry = CacheEntry(path)
    except LockError as error:
        say(f"{safe_line(error.message, 300)}; it is created again", "yellow")
        return None, needed
    if entry.head.sha256 != sha256:
        return None, needed
    if any(map(needed, entry.head.others)):
        return None, lambda name: needed(name) or name in entry.head.libraries
    return entry, needed
