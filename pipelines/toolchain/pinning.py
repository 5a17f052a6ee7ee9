"""Completes the tool-chain lock: fetches what is unpinned, hashes it, writes the pins down.

This is the only place that takes a file without knowing its hash: what comes over TLS from the
address in the lock is believed, once, and from then on everybody compares. So read the change to
``toolchain.lock.yaml`` before it is committed.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pipelines.core.console import say
from pipelines.core.errors import LockError
from pipelines.core.files import own_part, sha256_of
from pipelines.core.units import pluralize
from pipelines.remote.files import replace
from pipelines.toolchain.generate import pin_tool_sources, write_lock
from pipelines.toolchain.lock import LOCK_FILE, Cache, Tool, load_lock
from pipelines.toolchain.obtaining import FetchProgress, download_from_sources
from pipelines.toolchain.sources import Source


@dataclass(frozen=True)
class Pinned:
    """What was found out about a tool."""

    tool: str
    version: str
    sha256: str
    size: int
    """In bytes."""
    place: str
    """Where the file came from."""


def pin_unpinned_tools(
    path: Path = LOCK_FILE,
    names: Iterable[str] | None = None,
    progress: FetchProgress | None = None,
) -> list[Pinned]:
    """Pin every unpinned tool of the lock at ``path``, or those of ``names`` that are unpinned.

    The lock is replaced after each tool and the file goes into the download cache; a download that
    broke off is gone on with where its server can do that. What cannot be fetched, or is not what a
    sha256 that is there already says, does not stop the others: :class:`LockError` names it at the
    end. Raises :class:`StorageError` at once when a disk is full.
    """
    lock = load_lock(path)
    cache = Cache(lock)
    wanted = list(lock.unpinned)
    if names is not None:
        asked = set(names)
        for name in sorted(asked - lock.tools.keys()):
            lock.tool(name)  # raises, and names the ones there are
        wanted = [name for name in wanted if name in asked]
    done: list[Pinned] = []
    failures: list[str] = []
    if wanted:
        say(f"{pluralize(len(wanted), 'file')} to fetch, {cache.sizes(wanted)}")
    for number, name in enumerate(wanted, 1):
        try:
            label = f"{number}/{len(wanted)} {name}"
            found = _pin_tool(cache, name, progress and partial(_labelled, progress, label))
            _record_pin(path, found)
        except LockError as error:
            failures.append(error.message)
        else:
            done.append(found)
    if failures:
        raise LockError(
            f"{len(failures)} of {len(wanted)} tools could not be pinned:\n" + "\n".join(failures),
            hint=f"Pinned: {', '.join(p.tool for p in done) or 'none'}. Run it again for the "
            "others, on a machine that reaches these addresses; a wrong sha256 means that the "
            "file is not the one it should be.",
        )
    return done


def _labelled(progress: FetchProgress, label: str, _: str, done: int, total: int) -> None:
    progress(label, done, total)


def _pin_tool(cache: Cache, name: str, progress: FetchProgress | None) -> Pinned:
    """The pins of an unpinned tool; its file is in the cache afterwards."""
    tool = cache.lock.tools[name]
    if tool.sha256:
        kept = cache.place(tool.file, tool.sha256)
        if kept.is_file() and sha256_of(kept) == tool.sha256:
            return _check_pins(name, tool, kept, "the download cache")
    found: list[Pinned] = []

    def keep(part: Path, source: Source) -> None:
        checked = _check_pins(name, tool, part, source.place)
        target = cache.place(tool.file, checked.sha256)
        target.parent.mkdir(parents=True, exist_ok=True)
        replace(part, target)
        found.append(checked)

    # Next to the cache's own files, for a rename does not leave a file system. What broke off lies
    # in a directory that belongs to no process; one that goes on with it gives it its own name.
    left = cache.root / "downloads" / f".{name}.part"
    mine = own_part(left.with_name(name))
    with contextlib.suppress(OSError):
        left.rename(mine)
    try:
        download_from_sources(
            name,
            tool.version,
            tool.sources,
            mine / tool.file,
            keep=keep,
            progress=progress,
            resume=True,
        )
    finally:
        try:
            mine.rmdir()  # it is empty where nothing is left to go on with
        except OSError:
            with contextlib.suppress(OSError):
                mine.rename(left)
            shutil.rmtree(mine, ignore_errors=True)
    return found[0]


def _check_pins(name: str, tool: Tool, file: Path, place: str) -> Pinned:
    """The pins of ``file``, which must agree with what the lock knows already."""
    size, sha256 = file.stat().st_size, sha256_of(file)
    if not size:
        raise LockError(f"{tool.file} is empty")
    if tool.size not in (0, size):
        raise LockError(f"{tool.file} has {size} bytes, the lock says {tool.size}")
    if tool.sha256 not in ("", sha256):
        raise LockError(f"{tool.file} has sha256 {sha256}, the lock says {tool.sha256}")
    return Pinned(name, tool.version, sha256, size, place)


def _record_pin(path: Path, found: Pinned) -> None:
    """Write what was found into the lock, which is replaced as a whole or not at all."""
    lock = load_lock(path)
    if found.tool not in lock.unpinned:
        raise LockError(f"{found.tool} was pinned or removed by another process meanwhile")
    tool = pin_tool_sources(lock.tools[found.tool], sha256=found.sha256, size=found.size)
    unpinned = tuple(name for name in lock.unpinned if name != found.tool)
    tools = lock.tools | {found.tool: tool}
    write_lock(lock.model_copy(update={"unpinned": unpinned, "tools": tools}), path)
