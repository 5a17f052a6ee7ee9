"""Archives unpacked into one directory; wheels, zips and tars.

A list of what is unpacked is written last, so that half of it does not count.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from typing import IO

from .. import protected_dirs
from ..files import remove_tree, writing
from ..safe_paths import member_parts, refusal
from . import Check, Pin, Proven, RefusedError

_LIST = ".archives.json"


class Packed(Pin):
    """An archive."""

    strip: str
    """Only members below it are unpacked, without that prefix."""


class Spec(Proven):
    """What is wanted."""

    path: str
    archives: list[Packed]
    proof: str
    """A file below ``path`` that must be there afterwards."""


def _unpacked(path: pathlib.Path) -> dict[str, str]:
    try:
        found = json.loads((path / _LIST).read_text("utf-8"))
        return {str(name): str(value) for name, value in found.items()}
    except (OSError, ValueError, AttributeError):
        return {}


def check(spec: Spec) -> Check:
    """Whether exactly the wanted archives are unpacked there; values are their sha256."""
    path = pathlib.Path(spec["path"])
    found = _unpacked(path)
    wanted = {archive["name"]: archive["sha256"] for archive in spec["archives"]}
    if not found:
        state = "half-unpacked" if path.exists() else "missing"
        return {"ok": False, "found": state, "values": {}}
    if not (path / spec["proof"]).is_file():
        return {"ok": False, "found": f"no {spec['proof']}", "values": found}
    same = sum(found.get(name) == sha256 for name, sha256 in wanted.items())
    said = f"{same} of {len(wanted)} archives"
    return {"ok": found == wanted, "found": said, "values": found}


def plan(spec: Spec) -> str:
    """The directory."""
    return f"unpack {len(spec['archives'])} archives into {spec['path']}"


def apply(spec: Spec) -> None:
    """Unpack them into a fresh directory."""
    path = pathlib.Path(spec["path"])
    remove_tree(str(path))
    for archive in spec["archives"]:
        _unpack(pathlib.Path(archive["file"]), path, archive["strip"])
    if not (path / spec["proof"]).is_file():
        raise RefusedError(f"the archives hold no {spec['proof']}")
    listed = {archive["name"]: archive["sha256"] for archive in spec["archives"]}
    part = path / f"{_LIST}.part"
    part.write_text(json.dumps(listed), "utf-8")
    os.replace(part, path / _LIST)  # noqa: PTH105 - replaces on Windows too
    for archive in spec["archives"]:
        pathlib.Path(archive["file"]).unlink(missing_ok=True)


def forget(spec: Spec) -> None:
    """Count it as half-unpacked."""
    (pathlib.Path(spec["path"]) / _LIST).unlink(missing_ok=True)


def _members(archive: pathlib.Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Name and content of every file; ``ValueError`` for links and devices."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            for info in zipped.infolist():
                if stat.S_ISLNK(info.external_attr >> 16):
                    raise refusal(info.filename, archive.name)
                if not info.is_dir():
                    with zipped.open(info) as stream:
                        yield info.filename, stream
        return
    with tarfile.open(archive) as tarred:
        for member in tarred:
            if not (member.isfile() or member.isdir()):
                raise refusal(member.name, archive.name)
            content = tarred.extractfile(member) if member.isfile() else None
            if content is not None:
                yield member.name, content


def _unpack(archive: pathlib.Path, target: pathlib.Path, strip: str) -> None:
    prefix = strip.rstrip("/") + "/" if strip else ""
    made: set[pathlib.Path] = set()
    for name, source in _members(archive):
        if not name.startswith(prefix):
            continue
        parts = member_parts(name[len(prefix) :].replace("\\", "/"), archive.name)
        path = target.joinpath(*parts)
        if path.parent not in made:
            protected_dirs.make(path.parent)
            made.add(path.parent)
        with writing(str(path)), path.open("wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
