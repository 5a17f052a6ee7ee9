"""Writes files into a repository, and compares them with those that are there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipelines.core.errors import ConfigError
from pipelines.core.files import disk_errors
from pipelines.remote.files import replace


@dataclass(frozen=True)
class Comparison:
    """Files to be written, compared with existing ones."""

    new: tuple[str, ...]
    same: tuple[str, ...]
    other: tuple[str, ...]
    """Existing files with different text."""


def compare_with_existing(root: Path, files: Mapping[str, str]) -> Comparison:
    """Compare with existing files; :class:`ConfigError` if one cannot be replaced by a file."""
    new, same, other = [], [], []
    for name, text in files.items():
        path = root / name
        if not path.parent.resolve().is_relative_to(root.resolve()):
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
            other.append(name)
    return Comparison(tuple(new), tuple(same), tuple(other))


def write_scaffold_files(root: Path, files: Mapping[str, str]) -> None:
    """Write the files, each whole or not at all.

    Nothing is replaced before all of them are on the disk under other names. The same command
    completes what was interrupted. Raises :class:`StorageError` if the disk is full.
    """
    parts = {root / name: (root / name).with_name(f".{Path(name).name}.part") for name in files}
    with disk_errors(root):
        try:
            for (path, part), text in zip(parts.items(), files.values(), strict=True):
                path.parent.mkdir(parents=True, exist_ok=True)
                with part.open("wb") as stream:
                    stream.write(text.encode())
                    stream.flush()
                    os.fsync(stream.fileno())
                part.chmod(path.stat().st_mode if path.exists() else 0o644)
            for path, part in parts.items():
                replace(part, path)
        finally:
            for part in parts.values():
                part.unlink(missing_ok=True)
