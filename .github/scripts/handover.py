"""Packs a build directory for the next attempt, and unpacks it there.

    python handover.py pack FOLDER ARCHIVE      python handover.py unpack ARCHIVE FOLDER
    python handover.py make FOLDER              as the pipeline makes it: others may not change it

An artifact does not keep times of change, and ninja decides by them what is up to date. It compares
them to the last digit: a unit whose time comes back 100 ns later is compiled again, because what
ninja noted of its headers is then older than the unit. A tar's times are fractions of a second,
rounded, so the nanoseconds go along in a field of their own. Python and not tar, also because it
depends on the path of a Windows which tar that is, and GNU's takes ``C:`` for another machine.
"""

from __future__ import annotations

import os
import sys
import tarfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from pipelines.remote import protected_dirs
from pipelines.remote.jobs.prune import ENVIRONMENTS
from pipelines.remote.safe_paths import unpack_member

_USAGE = 2
_TIME = "WCW.mtime_ns"


def pack(folder: Path, archive: Path) -> int:
    """Write everything in ``folder`` to ``archive``, which appears by rename; the file count.

    Files that are gone by the time it is their turn are left out: a compiler's temporary ones. So
    are those that one which runs still writes to, and links: a build makes them again.
    The environments of builds are left out as well: gigabytes that are made again.
    Without a folder there is no archive, and the count is 0.
    """
    count = 0
    if not folder.is_dir():
        return count
    part = archive.with_name(archive.name + ".part")
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(part, "w", format=tarfile.PAX_FORMAT) as tar:
        for place, folders, files in os.walk(folder):
            folders[:] = sorted(n for n in folders if Path(place, n) != folder / ENVIRONMENTS)
            # Folders too: a build expects the empty ones that it made.
            for name in (*folders, *sorted(files)):
                path = Path(place) / name
                try:
                    count += _add(tar, path, path.relative_to(folder).as_posix())
                except (FileNotFoundError, PermissionError):
                    continue
    part.replace(archive)
    return count


def _add(tar: tarfile.TarFile, path: Path, name: str) -> bool:
    """Add one entry with its exact time; whether it is a file."""
    member = tar.gettarinfo(path, name)
    if not (member.isfile() or member.isdir()):
        return False
    member.pax_headers = {_TIME: str(path.lstat().st_mtime_ns)}
    if not member.isfile():
        tar.addfile(member)
        return False
    with path.open("rb") as file:
        tar.addfile(member, file)
    return True


def unpack(archive: Path, folder: Path) -> int:
    """Put back what :func:`pack` wrote; the file count. Nothing lands outside ``folder``.

    Raises :class:`tarfile.TarError` for an archive that is damaged, ``ValueError`` for one that
    reaches outside.
    """
    protected_dirs.make(folder)
    count = 0
    with tarfile.open(archive, "r:") as tar:
        times = []
        for member in tar:
            path = unpack_member(tar, member, folder, archive.name)
            count += member.isfile()
            if _TIME in member.pax_headers:
                times.append((path, int(member.pax_headers[_TIME])))
        for path, time_ns in reversed(times):  # a folder after what was put into it
            os.utime(path, ns=(time_ns, time_ns))
    return count


def main(arguments: list[str]) -> int:
    """Run one of them; 0, 2 for a wrong command line."""
    if len(arguments) == 2 and arguments[0] == "make":  # noqa: PLR2004
        protected_dirs.make(arguments[1])
        return 0
    if len(arguments) != 3 or arguments[0] not in ("pack", "unpack"):  # noqa: PLR2004
        print(__doc__, file=sys.stderr)
        return _USAGE
    command, source, target = arguments
    began = time.monotonic()
    count = {"pack": pack, "unpack": unpack}[command](Path(source), Path(target))
    archive = Path(target if command == "pack" else source)
    if not archive.is_file():
        print(f"there is no {source}: nothing to hand over")
        return 0
    print(
        f"{command}ed {count} files, {archive.stat().st_size / 2**20:,.1f} MiB, "
        f"in {time.monotonic() - began:.1f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
