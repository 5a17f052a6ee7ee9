"""A run as one file, to be sent: what arrives is what was packed, in a directory of its own."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

from pipelines import units
from pipelines.errors import TransferError
from pipelines.files import disk_errors, sha256_of
from pipelines.fleet.cluster.commission import Parcel
from pipelines.fleet.kept import files_of
from pipelines.fleet.lines import JOBS
from pipelines.hosttext import line
from pipelines.remote.safe_paths import unpack_member
from pipelines.run import Run
from pipelines.stages.objects import LIST, write_list

RECORD = "record.sqlite"
#: Bytes that are sent at a time.
PIECE = 4 << 20
#: Of one run, unpacked; flash-attn's wheel has 0.2 GB, its objects 0.5 GB.
_MOST_BYTES, _MOST_FILES = 16 << 30, 20_000


def seal_of(run: Run) -> str:
    """What is inside of it for later works, whatever it is called and wherever it lies."""
    files = files_of(run, share=bool(run.facts().share))
    told = {"cell": {**run.facts().target.values(), "host": ""}, "files": files}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def pack(run: Run, folder: Path) -> tuple[Path, Parcel]:
    """Pack a run that nobody writes to into ``folder``; the file is called by its sha256."""
    part = folder / f".{run.id}.part"
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        record = folder / f".{run.id}.record"
        try:
            # Its newest changes may stand in a file beside it.
            record.unlink(missing_ok=True)
            with (
                closing(sqlite3.connect(run.path / RECORD, timeout=10)) as database,
                closing(sqlite3.connect(record)) as copy,
            ):
                database.backup(copy)
                copy.execute("PRAGMA journal_mode=DELETE")
            with tarfile.open(part, "w", format=tarfile.PAX_FORMAT) as archive:
                for path in sorted(run.path.rglob("*")):
                    name = path.relative_to(run.path).as_posix()
                    if path.is_file() and not path.is_symlink() and not _is_own(name):
                        archive.add(path, name, recursive=False)
                archive.add(record, RECORD, recursive=False)
            made = Parcel(sha256=sha256_of(part), size=part.stat().st_size, run=run.id)
            part.replace(at(folder, made))
        finally:
            part.unlink(missing_ok=True)
            record.unlink(missing_ok=True)
    return at(folder, made), made


def _is_own(name: str) -> bool:
    """Whether a file means nothing without the process, or the record, that it belongs to."""
    return name.startswith((".", RECORD)) or name.endswith(".part")


def at(folder: Path, parcel: Parcel) -> Path:
    """Where a packed run lies."""
    return folder / f"{parcel.sha256}.tar"


def require_bounded(parcel: Parcel) -> None:
    """Raise :class:`TransferError` for more than any run has, before a byte of it is taken."""
    if parcel.size > _MOST_BYTES:
        raise TransferError(
            f"{parcel.run} is to be {units.size(parcel.size)}; a run is at most "
            f"{units.size(_MOST_BYTES)}",
            advice="Nothing of it was taken. Look at who is a member of this cluster.",
        )


def require_whole(path: Path, parcel: Parcel) -> None:
    """Raise :class:`TransferError` unless the file is the one that was packed."""
    size, sha256 = path.stat().st_size, sha256_of(path)
    if (size, sha256) != (parcel.size, parcel.sha256):
        raise TransferError(
            f"{parcel.run} arrived as {size} bytes with sha256 {sha256[:16]}..., and "
            f"{parcel.size} with {parcel.sha256[:16]}... were sent",
            advice="It is fetched again when the work is begun again.",
        )


def unpack(path: Path, parcel: Parcel, into: Path) -> Run:
    """Unpack a file that is whole into ``into``, which is made anew; the run.

    Raises :class:`TransferError` for anything but plain files below it, or too much of them.
    """
    require_whole(path, parcel)
    shutil.rmtree(into, ignore_errors=True)
    try:
        with disk_errors(into.parent), tarfile.open(path, "r:") as archive:
            into.mkdir(parents=True)
            _unpack_files(archive, into)
    except (ValueError, FileExistsError, IsADirectoryError, NotADirectoryError) as error:
        raise TransferError(
            f"{parcel.run}: {line(error, 300)}",
            advice="Nothing of it was taken. Look at who is a member of this cluster.",
        ) from None
    except tarfile.TarError as error:
        raise TransferError(f"{parcel.run} cannot be unpacked: {line(error, 200)}") from None
    if not (into / RECORD).is_file():
        raise TransferError(f"{parcel.run} holds no run: it has no {RECORD}")
    return Run(into)


def _unpack_files(archive: tarfile.TarFile, into: Path) -> None:
    size = 0
    for number, member in enumerate(archive):
        size += member.size
        if not member.isfile() or number >= _MOST_FILES or size > _MOST_BYTES:
            raise ValueError(
                f"{member.name!r} is not a plain file of a run, or the run has more than "
                f"{units.size(_MOST_BYTES)} or {_MOST_FILES:,} files"
            )
        unpack_member(archive, member, into, "the archive")


def call_host(run: Run, name: str) -> None:
    """Have a run tell of its host by the name that it has here: another may have its old one."""
    facts = run.facts()
    run.note(target=facts.target.model_copy(update={"host": name}).model_dump(mode="json"))
    for one in JOBS:
        if (job := run.job(one)) is not None:
            run.put_job(one, job.model_copy(update={"host": name}))
    if facts.share and (run.path / LIST).is_file():
        write_list(run)
