"""Puts a bridge into one Windows: in ``PREFIX/bridge`` for Wine, and its DLLs in ``system32``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from pipelines.core.errors import HostError
from pipelines.core.files import atomic_output, disk_errors, sha256_of, write_atomic
from pipelines.hosts.sandbox.bridged import INSTALLED, LOG, SYSTEM
from pipelines.hosts.sandbox.making import read_verified_seal
from pipelines.hosts.sandbox.wine import Prefix


def install_bridge(built: Path, prefix: Prefix, library_dir: Path | None) -> None:
    """Install missing or changed files of :func:`building.ensure_bridge` into ``prefix``.

    At each start of a sandbox, changed files are replaced, unknown files in the directory that
    Wine searches first are removed, and the warnings of earlier programs are cleared.
    ``library_dir``: where the driver's libraries are if the loader does not find them by itself.
    Raises :class:`HostError` if ``built`` is damaged, :class:`StorageError` on a full disk.
    """
    files = read_verified_seal(built)
    if files is None:
        raise HostError(
            f"the GPU bridge in {built} is damaged", hint="Type the same command again."
        )
    home = prefix.path / "bridge"
    _clear(home, {home / name for name in files})
    for name, sha256 in files.items():
        folder, _, file = name.partition("/")
        place = prefix.drive / "windows/system32" if folder == SYSTEM else home / folder
        _copy_verified(built / name, place / file, sha256)
    (home / LOG).unlink(missing_ok=True)
    values = {"library_dir": str(library_dir) if library_dir else None}
    write_atomic(home / INSTALLED, json.dumps(values).encode())


def _clear(home: Path, own: set[Path]) -> None:
    """Remove foreign files: Wine would load any DLL from there as one of its own."""
    if home.is_symlink():
        home.unlink()
    for path in sorted(home.rglob("*"), reverse=True):
        if path.is_symlink() or (path.is_file() and path not in own):
            path.unlink()


def _copy_verified(source: Path, target: Path, sha256: str) -> None:
    if target.is_file() and not target.is_symlink() and sha256_of(target) == sha256:
        return
    with disk_errors(target.parent), atomic_output(target) as part:
        shutil.copyfile(source, part)
        if sha256_of(part) != sha256:
            raise HostError(f"{source} changed while it was copied")
