"""Completes the tool-chain lock: fetches what is unpinned, hashes it, writes the pins down.

This is the only place that takes a file without knowing its hash: what comes over TLS from the
address in the lock is believed, once, and from then on everybody compares. So read the change to
``toolchain.lock.yaml`` before it is committed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pipelines.errors import LockError, StorageError
from pipelines.files import sha256_of
from pipelines.toolchain.lock import LOCK_FILE, Cache, FetchProgress, Tool, load_lock, obtain
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


def complete(
    path: Path = LOCK_FILE,
    names: Iterable[str] | None = None,
    progress: FetchProgress | None = None,
) -> list[Pinned]:
    """Pin every unpinned tool of the lock at ``path``, or those of ``names`` that are unpinned.

    The lock is replaced after each tool and the file goes into the download cache, so that an
    interruption loses at most one download. What cannot be fetched, or is not what a sha256 that
    is there already says, does not stop the others: :class:`LockError` names it at the end.
    Raises :class:`StorageError` at once when a disk is full.
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
    for name in wanted:
        try:
            pinned = _found(cache, name, progress)
            _record(path, pinned)
        except LockError as error:
            failures.append(error.message)
        else:
            done.append(pinned)
    if failures:
        raise LockError(
            f"{len(failures)} of {len(wanted)} tools could not be pinned:\n" + "\n".join(failures),
            advice=f"Pinned: {', '.join(p.tool for p in done) or 'none'}. Run it again for the "
            "others, on a machine that reaches these addresses; a wrong sha256 means that the "
            "file is not the one it should be.",
        )
    return done


def _found(cache: Cache, name: str, progress: FetchProgress | None) -> Pinned:
    """The pins of an unpinned tool; its file is in the cache afterwards."""
    tool = cache.lock.tools[name]
    if tool.sha256:
        kept = cache.place(tool.file, tool.sha256)
        if kept.is_file() and sha256_of(kept) == tool.sha256:
            return _checked(name, tool, kept, "the download cache")
    found: list[Pinned] = []

    def keep(part: Path, source: Source) -> None:
        pinned = _checked(name, tool, part, source.place)
        target = cache.place(tool.file, pinned.sha256)
        target.parent.mkdir(parents=True, exist_ok=True)
        part.replace(target)
        found.append(pinned)

    # Beside the cache's own files, for a rename does not leave a file system.
    scratch = cache.root / "downloads" / f".{name}.{os.getpid()}-{threading.get_ident()}.part"
    obtain(name, tool, scratch, keep, progress)
    return found[0]


def _checked(name: str, tool: Tool, file: Path, place: str) -> Pinned:
    """The pins of ``file``, which must agree with what the lock knows already."""
    size, sha256 = file.stat().st_size, sha256_of(file)
    if not size:
        raise LockError(f"{tool.file} is empty")
    if tool.size not in (0, size):
        raise LockError(f"{tool.file} has {size} bytes, the lock says {tool.size}")
    if tool.sha256 not in ("", sha256):
        raise LockError(f"{tool.file} has sha256 {sha256}, the lock says {tool.sha256}")
    return Pinned(name, tool.version, sha256, size, place)


def _record(path: Path, pinned: Pinned) -> None:
    """Write ``pinned`` into the lock, which is replaced as a whole or not at all."""
    real = path.resolve()
    part = real.with_name(f".{real.name}.{os.getpid()}.part")
    if pinned.tool not in load_lock(real).unpinned:
        raise LockError(f"{pinned.tool} was pinned or removed by somebody else meanwhile")
    try:
        text = with_pins(real.read_text("utf-8"), pinned)
        with part.open("w", encoding="utf-8", newline="") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        load_lock(part)
        shutil.copymode(real, part)
        part.replace(real)
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror}", advice="Make it writable, then run it again."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def with_pins(text: str, pinned: Pinned) -> str:
    """The lock's text with sha256 and size filled in and the tool no longer ``unpinned``.

    Only those lines change: libraries that keep comments move those below a block in front of the
    key that is appended to it, and lose those below the last item of a list when that is removed.
    What comes out is read again and compared. Raises :class:`LockError` for a lock that is not
    written as ours is: one key and one item a line.
    """
    lines = text.splitlines(keepends=True)
    root: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    edits: dict[int, list[str]] = {}  # line -> what takes its place
    for source in _at(root, "tools", pinned.tool, "sources").value:
        indent = " " * source.start_mark.column
        last = max(value.end_mark.line for _, value in source.value)
        present = {key.value for key, _ in source.value}
        known = {"sha256": pinned.sha256, "size": pinned.size}
        added = [f"{indent}{k}: {v}\n" for k, v in known.items() if k not in present]
        edits[last] = [lines[last].rstrip("\n") + "\n", *added]
    items = _at(root, "unpinned").value
    edits |= {item.start_mark.line: [] for item in items if item.value == pinned.tool}
    if len(items) == 1:
        line = next(key.start_mark.line for key, _ in root.value if key.value == "unpinned")
        edits[line] = [lines[line].replace("unpinned:", "unpinned: []", 1)]
    made = "".join(new for number, old in enumerate(lines) for new in edits.get(number, [old]))
    if _data(made) != _expected(text, pinned):
        raise LockError(
            f"{pinned.tool} is written in a way that cannot be completed",
            advice=f"Write one key and one item a line, or fill in: sha256: {pinned.sha256}, "
            f"size: {pinned.size}",
        )
    return made


def _at(node: Any, *keys: str) -> Any:
    """The node below ``keys``; the text was validated, so they are there."""
    for key in keys:
        node = next(value for name, value in node.value if name.value == key)
    return node


def _data(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None


def _expected(text: str, pinned: Pinned) -> Any:
    data = yaml.safe_load(text)
    data["unpinned"].remove(pinned.tool)
    for source in data["tools"][pinned.tool]["sources"]:
        source |= {"sha256": pinned.sha256, "size": pinned.size}
    return data
