"""Which files were unpacked into a directory, and what has become of them since.

The record lies beside them. A file is believed as long as its size and time are as they were; with
another time it is hashed, and so is every file for whoever looks thoroughly. What came there by
other ways is nobody's business here.
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
#: Beside the modules that it was made of Python leaves what it looks after itself.
_COMPILED = "__pycache__"
#: Of a name in a record: it would be removed and written elsewhere.
_OUTSIDE = re.compile(r"^/|(^|/)\.{0,2}(/|$)|[\\:]")


class Entry(TypedDict):
    """One file."""

    archive: str
    """The name of the archive that it came from; empty where that is not known."""
    size: int
    mtime: int
    """When it was last changed, in ns since the epoch; 0: not to be believed."""
    sha256: str


class Record(TypedDict):
    """A directory."""

    archives: dict[str, str]
    """Name -> sha256 of what was unpacked there."""
    compared: bool
    """Whether the files are those of the archives; else they are what was found there once."""
    files: dict[str, Entry]
    """By their paths below the directory, with ``/``."""


def is_watched(name: str, unwatched: Iterable[str]) -> bool:
    """Whether nothing but unpacking is to change that file; ``unwatched`` has globs."""
    if _COMPILED in name.split("/"):
        return False
    return not any(fnmatch.fnmatch(name, glob) for glob in unwatched)


def read(root: str, archives: Mapping[str, str]) -> Record | None:
    """The record of a directory; ``None`` without one, or when it is of other archives.

    One without files, or with a name that leads out of the directory, is none either.
    """
    try:
        with open(os.path.join(root, NAME), encoding="utf-8") as file:  # noqa: PTH118, PTH123
            told = json.load(file)
        files: dict[str, Entry] = {
            str(name): {
                "archive": str(row["archive"]),
                "size": int(row["size"]),
                "mtime": int(row["mtime"]),
                "sha256": str(row["sha256"]),
            }
            for name, row in told["files"].items()
        }
        record: Record = {
            "archives": dict(told["archives"]),
            "compared": told["compared"] is True,
            "files": files,
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    if not files or any(_OUTSIDE.search(name) for name in files):
        return None
    return record if record["archives"] == archives else None


def write(root: str, record: Record) -> None:
    """Keep it, whole or not at all."""
    path = os.path.join(root, NAME)  # noqa: PTH118
    with open(f"{path}.part", "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump(record, file)
    replace(f"{path}.part", path)


def settle(root: str, files: dict[str, Entry], names: Iterable[str]) -> None:
    """Note the times of files that have just been written; what is not there any more has none."""
    names = list(names)
    seen = _seen(root, names)
    for name in names:
        files[name]["mtime"] = seen.get(os.path.normcase(name), (0, 0))[1]


def differing(root: str, record: Record, *, thorough: bool = False) -> dict[str, str]:
    """The files that are not as they were: path -> ``missing`` or ``changed``."""
    seen = _seen(root, record["files"])
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
            # What is wrong in spite of its time is not believed by others either.
            believed = 0 if name in wrong else now[1]
            if believed != entry["mtime"]:
                entry["mtime"], learned = believed, True
    if learned:
        with contextlib.suppress(OSError):  # it is hashed again the next time
            write(root, record)
    return wrong


def strangers(root: str, known: Iterable[str], unwatched: Iterable[str] = ()) -> list[str]:
    """Files below the directory that are not ``known``, by their paths there.

    What Python compiled is among them: it is run in place of its source, and nothing compares it.
    Not among them: our own records, and what the globs of ``unwatched`` name.
    """
    wanted, found = {os.path.normcase(name) for name in known}, []
    for folder, _, names in os.walk(root):
        below = os.path.relpath(folder, root).replace(os.sep, "/") + "/"
        for name in [below.removeprefix("./") + file for file in names]:
            ours = name in (NAME, ARCHIVES) or os.path.normcase(name) in wanted
            if not ours and not any(fnmatch.fnmatch(name, glob) for glob in unwatched):
                found.append(name)
    return sorted(found)


def _seen(root: str, names: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Size and time of every file in the directories that ``names`` are in.

    A directory's listing has both: on Windows that is far less than opening each file.
    """
    found: dict[str, tuple[int, int]] = {}
    for folder in {name.rpartition("/")[0] for name in names}:
        above = f"{folder}/" if folder else ""
        try:
            entries = os.scandir(long_path(os.path.join(root, folder)))  # noqa: PTH118
        except (FileNotFoundError, NotADirectoryError):
            continue
        with entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    told = entry.stat(follow_symlinks=False)
                    place = os.path.normcase(above + entry.name)
                    found[place] = (told.st_size, told.st_mtime_ns)
    return found


def adopted(root: str, archives: Mapping[str, str], unwatched: Sequence[str]) -> Record:
    """The record of what is found there now: nothing says that it is what was unpacked."""
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
    settle(root, files, files)
    return {"archives": dict(archives), "compared": False, "files": files}
