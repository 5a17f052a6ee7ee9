"""Archives unpacked into one directory; wheels, zips and tars.

A list of what is unpacked is written last, so that half of it does not count. With it is a record
of the files: what is damaged later shows, and is put back from its own archive.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import stat
import tarfile
import zipfile
from collections.abc import Container, Iterator
from typing import IO

from .. import protected_dirs, unpacked
from ..files import remove_tree, replace, sha256, writing
from ..safe_paths import member_parts, refusal
from . import Check, Pin, Proven, RefusedError

_LIST = unpacked.ARCHIVES
_NAMED = 3  # files in one message


class Packed(Pin):
    """An archive."""

    strip: str
    """Only members below it are unpacked, without that prefix."""


class _Optional(Proven, total=False):
    shared: bool
    """Whether others have files in ``path``, which are left alone."""


class Spec(_Optional):
    """What is wanted."""

    path: str
    archives: list[Packed]
    proof: str
    """A file below ``path`` that must be there afterwards."""
    unwatched: list[str]
    """Globs of files below ``path`` that others change."""


def _listed(path: pathlib.Path) -> dict[str, str]:
    try:
        found = json.loads((path / _LIST).read_text("utf-8"))
        return {str(name): str(value) for name, value in found.items()}
    except (OSError, ValueError, AttributeError):
        return {}


def check(spec: Spec) -> Check:
    """Whether the wanted archives are unpacked there, and their files as they were unpacked.

    Values are the archives' sha256.
    """
    path, wanted = pathlib.Path(spec["path"]), _wanted(spec)
    found = _listed(path)
    if not found:
        begun = path.exists() and not spec.get("shared", False)
        state = "half-unpacked" if begun else "missing"
        return {"ok": False, "found": state, "values": {}}
    same = sum(found.get(name) == sha256 for name, sha256 in wanted.items())
    said = f"{same} of {len(wanted)} archives"
    if found != wanted:
        return {"ok": False, "found": said, "values": found}
    record = unpacked.read(spec["path"], wanted)
    if record is None:
        said += ", but no record of their files"
        told: Check = {"ok": False, "found": said, "values": found}
        return {**told, "uploads": []} if _adoptable(spec) else told
    many = len(record["files"])
    wrong = unpacked.differing(spec["path"], record, thorough=_thorough(spec))
    wrong |= _strangers(spec, record)
    if wrong:
        said = f"{len(wrong)} of {many} files are not as they were: {_named(wrong)}"
        told = {"ok": False, "found": said, "values": found}
        return {**told, "uploads": _origins(record, wrong)} if record["compared"] else told
    said += f", {many} files"
    if record["compared"]:
        return {"ok": True, "found": said, "values": found}
    doubt = "its files were never compared with the archives"
    return {"ok": not _thorough(spec), "found": f"{said}; {doubt}", "values": found, "doubt": doubt}


def plan(spec: Spec) -> str:
    """The directory, and the files where only some are put back."""
    path, wanted = spec["path"], _wanted(spec)
    if _listed(pathlib.Path(path)) == wanted:
        record = unpacked.read(path, wanted)
        if record is None and _adoptable(spec):
            return f"record the files in {path} as they are"
        wrong = unpacked.differing(path, record) | _strangers(spec, record) if record else {}
        if record and record["compared"]:
            return f"restore {len(wrong)} files in {path}: {_named(wrong)}"
    return f"unpack {len(wanted)} archives into {path}"


def apply(spec: Spec) -> None:
    """Unpack them into a fresh directory; where they are unpacked already, what is damaged."""
    path, wanted = pathlib.Path(spec["path"]), _wanted(spec)
    if _listed(path) == wanted:
        record = unpacked.read(spec["path"], wanted)
        if record is None and _adoptable(spec):
            found = unpacked.adopted(spec["path"], wanted, spec["unwatched"])
            unpacked.write(spec["path"], found)
            return
        if record is not None and record["compared"]:
            _mend(spec, record)
            return
    _fresh(spec, path)


def forget(spec: Spec) -> None:
    """Count it as half-unpacked."""
    (pathlib.Path(spec["path"]) / _LIST).unlink(missing_ok=True)


def _wanted(spec: Spec) -> dict[str, str]:
    return {archive["name"]: archive["sha256"] for archive in spec["archives"]}


def _thorough(spec: Spec) -> bool:
    return spec.get("thorough", False)


def _strangers(spec: Spec, record: unpacked.Record) -> dict[str, str]:
    """What a build may have left in a directory that is ours alone; looked for by a repair."""
    if not (_thorough(spec) and record["compared"]) or spec.get("shared", False):
        return {}
    found = unpacked.strangers(spec["path"], record["files"], spec["unwatched"])
    return dict.fromkeys(found, "unknown")


def _adoptable(spec: Spec) -> bool:
    """Whether what is there without a record may be taken as it is."""
    return not _thorough(spec) and (pathlib.Path(spec["path"]) / spec["proof"]).is_file()


def _named(wrong: dict[str, str]) -> str:
    """The first few, and how many more."""
    more = len(wrong) - _NAMED
    named = ", ".join(f"{name} {state}" for name, state in [*wrong.items()][:_NAMED])
    return named + (f" and {more} more" if more > 0 else "")


def _origins(record: unpacked.Record, wrong: dict[str, str]) -> list[str]:
    """The archives that those files came from."""
    return sorted({record["files"][name]["archive"] for name in wrong if name in record["files"]})


def _fresh(spec: Spec, path: pathlib.Path) -> None:
    if not spec.get("shared", False):
        remove_tree(str(path))
    files: dict[str, unpacked.Entry] = {}
    for archive in spec["archives"]:
        files |= _unpack(_right(archive), path, archive["strip"], archive["name"])
    if not (path / spec["proof"]).is_file():
        raise RefusedError(f"the archives hold no {spec['proof']}")
    one = {os.path.normcase(name): name for name in files}  # of two such, the later one is there
    unwatched = spec["unwatched"]
    kept = {n: files[n] for n in one.values() if unpacked.is_watched(n, unwatched)}
    unpacked.settle(str(path), kept, kept)
    unpacked.write(str(path), {"archives": _wanted(spec), "compared": True, "files": kept})
    part = path / f"{_LIST}.part"
    part.write_text(json.dumps(_wanted(spec)), "utf-8")
    replace(str(part), str(path / _LIST))
    _tidy(spec)


def _mend(spec: Spec, record: unpacked.Record) -> None:
    """Put back what is damaged; each file's own archive was uploaded."""
    path = pathlib.Path(spec["path"])
    wrong = unpacked.differing(spec["path"], record)  # the check has looked as asked
    for archive in spec["archives"]:
        some = {n for n in wrong if record["files"][n]["archive"] == archive["name"]}
        for name in some:
            remove_tree(str(path / name))  # whatever stands there: a link leads elsewhere
        if some:
            _unpack(_right(archive), path, archive["strip"], archive["name"], some)
    for name in _strangers(spec, record):
        remove_tree(str(path / name))
    unpacked.settle(spec["path"], record["files"], wrong)
    unpacked.write(spec["path"], record)
    _tidy(spec)


def _right(archive: Packed) -> pathlib.Path:
    """The archive's file; :class:`RefusedError` unless it is what was pinned."""
    found = sha256(archive["file"])
    if found != archive["sha256"]:
        raise RefusedError(
            f"{archive['file']} has sha256 {found}, pinned is {archive['sha256']}",
            hint="Something on the host changed it after it came: provision again.",
        )
    return pathlib.Path(archive["file"])


def _tidy(spec: Spec) -> None:
    for archive in spec["archives"]:
        pathlib.Path(archive["file"]).unlink(missing_ok=True)


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


def _unpack(
    archive: pathlib.Path,
    target: pathlib.Path,
    strip: str,
    origin: str = "",
    only: Container[str] | None = None,
) -> dict[str, unpacked.Entry]:
    """Unpack an archive, or ``only`` some of its files; what was written, without times."""
    prefix = strip.rstrip("/") + "/" if strip else ""
    protected_dirs.make(target, readable=True)
    made: set[pathlib.Path] = set()
    written: dict[str, unpacked.Entry] = {}
    for name, source in _members(archive):
        if not name.startswith(prefix):
            continue
        parts = member_parts(name[len(prefix) :].replace("\\", "/"), archive.name)
        below = "/".join(parts)
        if only is not None and below not in only:
            continue
        path = target.joinpath(*parts)
        if path.parent not in made:
            path.parent.mkdir(parents=True, exist_ok=True)
            made.add(path.parent)
        digest, size = hashlib.sha256(), 0
        with writing(str(path)), path.open("wb") as sink:
            while data := source.read(1 << 20):
                digest.update(data)
                size += sink.write(data)
        written[below] = {"archive": origin, "size": size, "mtime": 0, "sha256": digest.hexdigest()}
    return written
