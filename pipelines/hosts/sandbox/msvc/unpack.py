"""Microsoft's packages unpacked into one tree: .vsix are zip files, .msi go with .cab files.

A package is verified before it is read here, but limits apply all the same. Names differ in case
between packages: they are merged as Windows would.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO
from urllib.parse import unquote

from pipelines.core.errors import LockError, SetupError
from pipelines.core.files import sha256_of
from pipelines.core.hosttext import line
from pipelines.hosts.sandbox.msvc.installing import LEFT_OUT
from pipelines.remote.safe_paths import member_parts

_BYTES, _FILES = 6 << 30, 200_000
_TIMEOUT = 600  # seconds for one installer
#: Folders to keep of a package, as written in the tree.
_KEPT = (("VC", "Tools", "MSVC"), ("Windows Kits", "10"))
_PROGRAMS = ("program files", "program files (x86)")


class Target:
    """The resulting tree; no file in it is written twice."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._names: dict[tuple[str, ...], str] = {}
        self._bytes = self._files = 0

    def put(self, parts: Sequence[str], stream: IO[bytes], package: str) -> None:
        """Write a file if it is needed; others are skipped.

        Raises :class:`LockError` for more than a tree can have, and for a file with different
        contents in two packages.
        """
        prefix = next((k for k in _KEPT if _lower(parts[: len(k)]) == _lower(k)), None)
        if prefix is None or parts[-1].lower() in LEFT_OUT:
            return
        path = self._place([*prefix, *parts[len(prefix) :]])
        self._files += 1
        if self._files > _FILES:
            raise _refused(package, f"more than {_FILES} files")
        part = path.with_name(f"{path.name}.part")
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as out:
            while piece := stream.read(1 << 20):
                self._bytes += len(piece)
                if self._bytes > _BYTES:
                    raise _refused(package, f"more than {_BYTES >> 30} GiB")
                out.write(piece)
        if path.exists() and sha256_of(path) != sha256_of(part):
            raise _refused(package, f"a different {path.relative_to(self.root)} from the others")
        part.replace(path)

    def _place(self, parts: Sequence[str]) -> Path:
        """Its path, with the case of existing folders."""
        path = self.root
        for depth, name in enumerate(parts, 1):
            path /= self._names.setdefault(_lower(parts[:depth]), name)
        return path


def _lower(parts: Sequence[str]) -> tuple[str, ...]:
    return tuple(part.lower() for part in parts)


def _refused(package: str, why: str) -> LockError:
    return LockError(f"{package} was not unpacked: it has {why}", hint="Do not use it.")


def unpack_vsix(archive: Path, target: Target) -> None:
    """Unpack the files below ``Contents``; their names are quoted as in a URL.

    Raises :class:`LockError` for an invalid archive, and what :meth:`Target.put` does.
    """
    try:
        with zipfile.ZipFile(archive) as members:
            for member in members.infolist():
                name = unquote(member.filename).replace("\\", "/")
                top, _, rest = name.partition("/")
                if top == "Contents" and not name.endswith("/"):
                    with members.open(member) as stream:
                        target.put(member_parts(rest, archive.name), stream, archive.name)
    except (zipfile.BadZipFile, ValueError) as error:
        raise _refused(archive.name, line(str(error), 200)) from None


def require_msitools() -> None:
    """Raise :class:`SetupError` unless the programs that read .msi files are installed."""
    if not all(shutil.which(tool) for tool in ("msiextract", "msiinfo")):
        raise SetupError(
            "msiextract and msiinfo are not installed; they are needed to read Microsoft's .msi "
            "files",
            hint="Type: sudo apt-get install msitools (dnf, pacman, zypper: the same name)",
        )


def cabinets(installer: Path) -> list[str]:
    """The .cab files an installer needs in its directory, according to itself."""
    rows = _run(["msiinfo", "export", str(installer), "Media"]).splitlines()
    names = rows[0].split("\t") if rows else []
    if "Cabinet" not in names:
        raise _refused(installer.name, "no table Media")
    column = names.index("Cabinet")
    result = [row.split("\t")[column] for row in rows[3:] if row.count("\t") >= column]
    return [name for name in result if name and not name.startswith("#")]  # "#": embedded


def unpack_msi(installer: Path, cabinet_files: Mapping[str, Path], target: Target) -> None:
    """Unpack the files of an installer; ``cabinet_files``: its .cab files by name.

    Raises :class:`LockError` for what msiextract cannot read, and what :meth:`Target.put` does.
    """
    with tempfile.TemporaryDirectory(prefix=".msi-", dir=target.root) as scratch:
        source, out = Path(scratch, "given"), Path(scratch, "out")
        source.mkdir()
        out.mkdir()
        for name, path in {installer.name: installer, **cabinet_files}.items():
            (source / "/".join(member_parts(name, installer.name))).symlink_to(path)
        _run(["msiextract", "-C", str(out), str(source / installer.name)])
        for path in _files(out):
            parts = list(path.relative_to(out).parts)
            if parts[0].lower() in _PROGRAMS:
                del parts[0]
            try:
                parts = member_parts("/".join(parts), installer.name)
            except ValueError as error:
                raise _refused(installer.name, line(str(error), 200)) from None
            with path.open("rb") as stream:
                target.put(parts, stream, installer.name)


def _files(folder: Path) -> Iterator[Path]:
    """Only regular files: msiextract creates no links, and none is followed."""
    return (p for p in sorted(folder.rglob("*")) if p.is_file() and not p.is_symlink())


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LockError(f"{command[0]} hung for {_TIMEOUT} s") from None
    # msiextract exits with 0 when a cabinet is missing, and prints a message.
    if done.returncode or "CRITICAL" in done.stderr or "error" in done.stderr.lower():
        raise LockError(
            f"{command[0]} could not read {Path(command[-1]).name}: {line(done.stderr, 300)}",
            hint="msitools older than 0.101 cannot read it; otherwise the file is not an "
            "installer.",
        )
    return done.stdout
