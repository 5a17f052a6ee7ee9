"""Files of a repository, written all or not at all."""

from __future__ import annotations

import difflib
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pipelines.errors import ConfigError
from pipelines.files import disk_errors


@dataclass(frozen=True)
class Comparison:
    """What is to be written, against what is there."""

    new: tuple[str, ...]
    same: tuple[str, ...]
    other: Mapping[str, str]
    """File that is there with another text -> how they differ, in short."""


def compare(root: Path, files: Mapping[str, str]) -> Comparison:
    """Look at what is there; :class:`ConfigError` for what cannot be replaced by a file."""
    new, same, other = [], [], {}
    for name, text in files.items():
        path = root / name
        if _leaves(root, path):
            raise ConfigError(
                f"{name}: a directory on the way to it is a link out of {root}",
                advice="Put a directory in its place.",
            )
        if path.is_symlink() or path.is_dir():
            kind = "a link" if path.is_symlink() else "a directory"
            raise ConfigError(f"{name} is {kind}", advice="Move it away, then type it again.")
        if not path.exists():
            new.append(name)
        elif path.read_bytes() == text.encode():
            same.append(name)
        else:
            other[name] = _difference(path.read_text("utf-8", "replace"), text)
    return Comparison(tuple(new), tuple(same), other)


def write(root: Path, files: Mapping[str, str]) -> None:
    """Write them, or nothing.

    All are written beside each other first, where the disk may still refuse; then each is put into
    its place by rename, and what was there is kept until the last one is. If one of these steps
    fails, what was done is taken back. Raises :class:`StorageError` for a disk that does not take
    them.
    """
    with disk_errors(root), tempfile.TemporaryDirectory(prefix=".wcw-init-", dir=root) as scratch:
        room = Path(scratch)
        for number, text in enumerate(files.values()):
            _synced(room / f"{number}.new", text.encode())
        done: list[tuple[Path, Path | None]] = []
        made: list[Path] = []
        try:
            for number, name in enumerate(files):
                path = root / name
                made += _parents(path.parent)
                kept = room / f"{number}.old" if path.exists() else None
                if kept is not None:
                    path.replace(kept)
                    done.append((path, kept))
                    (room / f"{number}.new").chmod(kept.stat().st_mode)
                else:
                    done.append((path, None))
                (room / f"{number}.new").replace(path)
        except BaseException:
            _taken_back(done, made)
            raise


def _taken_back(done: list[tuple[Path, Path | None]], made: list[Path]) -> None:
    for path, kept in reversed(done):
        with suppress(OSError):
            if kept is None:
                path.unlink(missing_ok=True)
            else:
                kept.replace(path)
    for folder in reversed(made):
        with suppress(OSError):
            folder.rmdir()


def _parents(folder: Path) -> list[Path]:
    """Make a directory with those above it; those that were not there."""
    lacking = []
    while not folder.is_dir():
        lacking.append(folder)
        folder = folder.parent
    for one in reversed(lacking):
        one.mkdir()
    return lacking[::-1]


def _synced(path: Path, data: bytes) -> None:
    with path.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    path.chmod(0o644)


def _leaves(root: Path, path: Path) -> bool:
    top = root.resolve()
    return not path.parent.resolve().is_relative_to(top)


def _difference(old: str, new: str) -> str:
    """How many lines, and the first of each side."""
    rows = list(difflib.ndiff(old.splitlines(), new.splitlines()))
    gone = [row[2:] for row in rows if row.startswith("- ")]
    came = [row[2:] for row in rows if row.startswith("+ ")]
    first = f"there: {gone[0].strip()[:80]!r}" if gone else ""
    then = f"init: {came[0].strip()[:80]!r}" if came else ""
    said = "; ".join(filter(None, (first, then)))
    return f"{len(gone)} lines there, {len(came)} of init's ({said})"
