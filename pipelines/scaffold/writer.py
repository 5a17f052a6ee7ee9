"""Writes files into a repository, all or none."""

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

#: Prefix of a temporary directory in the repository.
_SCRATCH = ".wcw-init-"
#: In it: the new files, and backups of the old ones.
_NEW, _OLD = "new", "old"


@dataclass(frozen=True)
class Comparison:
    """Files to be written, compared with existing ones."""

    new: tuple[str, ...]
    same: tuple[str, ...]
    other: Mapping[str, str]
    """Existing file with different text -> a short difference."""


def compare(root: Path, files: Mapping[str, str]) -> Comparison:
    """Compare with existing files; :class:`ConfigError` if one cannot be replaced by a file."""
    new, same, other = [], [], {}
    for name, text in files.items():
        path = root / name
        if _leaves(root, path):
            raise ConfigError(
                f"{name}: a parent directory is a link out of {root}",
                hint="Replace it by a directory.",
            )
        above = next((parent for parent in path.parents if parent.exists()), root)
        if not above.is_dir():
            raise ConfigError(
                f"{above.relative_to(root)} is a file; expected a directory, for {name}",
                hint="Move it away, then run the command again.",
            )
        if path.is_symlink() or path.is_dir():
            kind = "a link" if path.is_symlink() else "a directory"
            raise ConfigError(f"{name} is {kind}", hint="Move it away, then run the command again.")
        if not path.exists():
            new.append(name)
        elif path.read_bytes() == text.encode():
            same.append(name)
        else:
            other[name] = _difference(path.read_text("utf-8", "replace"), text)
    return Comparison(tuple(new), tuple(same), other)


def write(root: Path, files: Mapping[str, str]) -> None:
    """Write all files or none.

    They are first written to a temporary directory, with backups of existing files, then renamed
    into place. If a step fails, the previous ones are undone. Raises :class:`StorageError` if the
    disk is full.
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
            _undo(done, made)
            raise


def refuse_leftovers(root: Path) -> None:
    """Raise :class:`ConfigError` if an ``init`` was killed while it replaced files.

    If it had not replaced any, its leftovers are removed.
    """
    for left in sorted(root.glob(f"{_SCRATCH}*")):
        if left.is_symlink() or not left.is_dir():
            continue
        inside = [*left.glob("*")]
        if not {path.name for path in inside} <= {_NEW, _OLD} or any(map(Path.is_symlink, inside)):
            continue  # not ours
        old = left / _OLD
        backups = [path.relative_to(old).as_posix() for path in old.rglob("*") if path.is_file()]
        if backups:
            raise ConfigError(
                f"{left.name} is from an interrupted init; its {_OLD} has the previous files: "
                f"{', '.join(sorted(backups)[:10])}",
                hint=f"Restore what you want to keep, remove {left}, and run the command again.",
            )
        with disk_errors(root):
            shutil.rmtree(left)


def _undo(done: list[tuple[Path, Path]], made: list[Path]) -> None:
    for path, backup in reversed(done):
        with suppress(OSError):
            if backup.exists():
                backup.replace(path)
            else:
                path.unlink(missing_ok=True)
    for folder in reversed(made):
        with suppress(OSError):
            folder.rmdir()


def _parents(folder: Path) -> list[Path]:
    """Create a directory and its parents; the list of those created."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for folder in reversed(missing):
        folder.mkdir()
    return missing[::-1]


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
    """The number of differing lines and the first of each side."""
    rows = list(difflib.ndiff(old.splitlines(), new.splitlines()))
    gone = [row[2:] for row in rows if row.startswith("- ")]
    came = [row[2:] for row in rows if row.startswith("+ ")]
    first = f"existing: {gone[0].strip()[:80]!r}" if gone else ""
    then = f"init: {came[0].strip()[:80]!r}" if came else ""
    examples = "; ".join(filter(None, (first, then)))
    return f"{len(gone)} lines differ from {len(came)} lines of init ({examples})"
