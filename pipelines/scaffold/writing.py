"""Files of a repository, written all or not at all."""

from __future__ import annotations

import difflib
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pipelines.core.errors import ConfigError
from pipelines.core.files import disk_errors

#: Of a directory in the repository for as long as it is written.
_SCRATCH = ".wcw-init-"
#: In that: what is to be put into its place, and what was there before.
_NEW, _OLD = "new", "old"


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
                hint="Put a directory in its place.",
            )
        above = next((one for one in path.parents if one.exists()), root)
        if not above.is_dir():
            raise ConfigError(
                f"{above.relative_to(root)} is a file; a directory is expected, for {name}",
                hint="Move it away, then type it again.",
            )
        if path.is_symlink() or path.is_dir():
            kind = "a link" if path.is_symlink() else "a directory"
            raise ConfigError(f"{name} is {kind}", hint="Move it away, then type it again.")
        if not path.exists():
            new.append(name)
        elif path.read_bytes() == text.encode():
            same.append(name)
        else:
            other[name] = _difference(path.read_text("utf-8", "replace"), text)
    return Comparison(tuple(new), tuple(same), other)


def write(root: Path, files: Mapping[str, str]) -> None:
    """Write them, or nothing.

    All are written beside each other first, where the disk may still refuse, with copies of what
    is there; then each is put into its place by rename. If one of these steps fails, what was done
    is taken back. Raises :class:`StorageError` for a disk that does not take them.
    """
    with disk_errors(root), tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=root) as scratch:
        new, old = Path(scratch, _NEW), Path(scratch, _OLD)
        for name, text in files.items():
            _synced(new / name, text.encode())
            if (path := root / name).exists():
                _parents((old / name).parent)
                shutil.copy2(path, old / name)
                (new / name).chmod(path.stat().st_mode)
        done: list[tuple[Path, Path]] = []
        made: list[Path] = []
        try:
            for name in files:
                made += _parents((root / name).parent)
                done.append((root / name, old / name))
                (new / name).replace(root / name)
        except BaseException:
            _taken_back(done, made)
            raise


def refuse_leftovers(root: Path) -> None:
    """Raise :class:`ConfigError` for what an ``init`` has replaced that was killed meanwhile.

    Where it had replaced nothing, what it left is removed: there are only texts of its own in it.
    """
    for left in sorted(root.glob(f"{_SCRATCH}*")):
        if left.is_symlink() or not left.is_dir():
            continue
        inside = [*left.glob("*")]
        if not {path.name for path in inside} <= {_NEW, _OLD} or any(map(Path.is_symlink, inside)):
            continue  # somebody else's, called so
        old = left / _OLD
        kept = [path.relative_to(old).as_posix() for path in old.rglob("*") if path.is_file()]
        if kept:
            raise ConfigError(
                f"{left.name} is of an init that was ended half way: its {_OLD} holds what was "
                f"here before: {', '.join(sorted(kept)[:10])}",
                hint=f"Put back what you want to keep, remove {left}, and type it again.",
            )
        with disk_errors(root):
            shutil.rmtree(left)


def _taken_back(done: list[tuple[Path, Path]], made: list[Path]) -> None:
    for path, kept in reversed(done):
        with suppress(OSError):
            if kept.exists():
                kept.replace(path)
            else:
                path.unlink(missing_ok=True)
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
    _parents(path.parent)
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
