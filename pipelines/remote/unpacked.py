"""The files unpacked into a directory, and their changes since.

The record is stored with them. A file counts as unchanged while its size and time are the same; one
with another time is hashed, and a thorough check hashes every file. Other files in the directory
are ignored here.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

from .files import long_path, replace, sha256

NAME, ARCHIVES = ".files.json", ".archives.json"
#: Python writes these next to its modules and validates them itself.
_COMPILED = "__pycache__"
#: In a recorded name: it would be removed and written elsewhere.
_OUTSIDE = re.compile(r"^/|(^|/)\.{0,2}(/|$)|[\\:]")


class Entry(TypedDict):
    """One file."""

    archive: str
    """The name of the archive that it came from; empty if unknown."""
    size: int
    mtime: int
    """When it was last changed, in ns since the epoch; 0: unreliable."""
    sha256: str


class Record(TypedDict):
    """A directory."""

    archives: dict[str, str]
    """Name -> sha256 of the archives unpacked there."""
    compared: bool
    """Whether the files match the archives; otherwise they are those found there at one time."""
    files: dict[str, Entry]
    """By their paths below the directory, with ``/``."""


def is_watched(name: str, unwatched: Iterable[str]) -> bool:
    """Whether that file must only change by unpacking; ``unwatched`` has globs."""
    if _COMPILED in name.split("/"):
        return False
    return not any(fnmatch.fnmatch(name, glob) for glob in unwatched)


def read(root: str, archives: Mapping[str, str]) -> Record | None:
    """The record of a directory; ``None`` without one, or if it is for other archives.

    One without files, or with a name that leads out of the directory, is invalid too.
    """
    try:
        with open(os.path.join(root, NAME), encoding="utf-8") as file:  # noqa: PTH118, PTH123
            data = json.load(file)
        files: dict[str, Entry] = {
            str(name): {
                "archive": str(row["archive"]),
                "size": int(row["size"]),
                "mtime": int(row["mtime"]),
                "sha256": str(row["sha256"]),
            }
            for name, row in data["files"].items()
        }
        record: Record = {
            "archives": dict(data["archives"]),
            "compared": data["compared"] is True,
            "files": files,
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    if not files or any(_OUTSIDE.search(name) for name in files):
        return None
    return record if record["archives"] == archives else None


def write(root: str, record: Record) -> None:
    """Write it atomically."""
    path = os.path.join(root, NAME)  # noqa: PTH118
    with open(f"{path}.part", "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump(record, file)
    replace(f"{path}.part", path)


def record_times(root: str, files: dict[str, Entry], names: Iterable[str]) -> None:
    """Record the times of files just written; missing ones are dropped."""
    names = list(names)
    seen = _sizes_and_times(root, names)
    for name in names:
        files[name]["mtime"] = seen.get(os.path.normcase(name), (0, 0))[1]


def differing(root: str, record: Record, *, thorough: bool = False) -> dict[str, str]:
    """The files that have changed: path -> ``missing`` or ``changed``."""
    seen = _sizes_and_times(root, record["files"])
    wrong: dict[str, str] = {}
    learned = False
    for name, entry in record["files"].items():
        now = seen.get(os.path.normcase(name))
        if now is None:
            wrong[name] = "missing"
        elif now[0] != entry["size"]:
            wrong[name] = "changed"
        elif thorough or now[1] != entry["mtime"]:
            if sha256(os.path.join(root, name)) != entry["sha256"]:  # noqa: PTH118
                wrong[name] = "changed"
            # A damaged file with the right time must not be trusted by later checks either.
            believed = 0 if name in wrong else now[1]
            if believed != entry["mtime"]:
                entry["mtime"], learned = believed, True
    if learned:
        with contextlib.suppress(OSError):  # it is hashed again next time
            write(root, record)
    return wrong


def unknown_files(root: str, known: Iterable[str], unwatched: Iterable[str] = ()) -> list[str]:
    """Files below the directory that are not ``known``, by their paths there.

    Includes byte code: it is run in place of its source, and is not compared. Excludes our own
    records, and the globs of ``unwatched``.
    """
    expected, strange = {os.path.normcase(name) for name in known}, []
    for folder, _, names in os.walk(root):
        below = os.path.relpath(folder, root).replace(os.sep, "/") + "/"
        for name in [below.removeprefix("./") + file for file in names]:
            ours = name in (NAME, ARCHIVES) or os.path.normcase(name) in expected
            if not ours and not any(fnmatch.fnmatch(name, glob) for glob in unwatched):
                strange.append(name)
    return sorted(strange)


def _sizes_and_times(root: str, names: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Size and time of every file in the directories of ``names``.

    A directory's listing has both: on Windows that is much faster than opening each file.
    """
    files: dict[str, tuple[int, int]] = {}
    for folder in {name.rpartition("/")[0] for name in names}:
        above = f"{folder}/" if folder else ""
        try:
            entries = os.scandir(long_path(os.path.join(root, folder)))  # noqa: PTH118
        except (FileNotFoundError, NotADirectoryError):
            continue
        with entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    place = os.path.normcase(above + entry.name)
                    files[place] = (status.st_size, status.st_mtime_ns)
    return files


def record_existing(root: str, archives: Mapping[str, str], unwatched: Sequence[str]) -> Record:
    """The record of the files there now: not proof that they are the unpacked ones."""
    files: dict[str, Entry] = {}
    for folder, _, names in os.walk(root):
        below = os.path.relpath(folder, root).replace(os.sep, "/")
        for file in names:
            name = file if below == "." else f"{below}/{file}"
            if below == "." and file.startswith("."):  # ours
                continue
            path = os.path.join(folder, file)  # noqa: PTH118
            if is_watched(name, unwatched) and not os.path.islink(path):  # noqa: PTH114
                size = os.stat(path).st_size  # noqa: PTH116
                files[name] = {"archive": "", "size": size, "mtime": 0, "sha256": sha256(path)}
    record_times(root, files, files)
    return {"archives": dict(archives), "compared": False, "files": files}
