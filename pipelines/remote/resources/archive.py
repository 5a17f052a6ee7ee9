"""Archives unpacked into one directory; wheels, zips and tars.

A list of the unpacked archives is written last, so that partial results do not count. With it is a
record of the files: later damage is detected, and restored from its own archive.
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
    """The desired state."""

    path: str
    archives: list[Packed]
    proof: str
    """A file below ``path`` that must exist afterwards."""
    unwatched: list[str]
    """Globs of files below ``path`` that may change."""


def _read_archive_list(path: pathlib.Path) -> dict[str, str]:
    try:
        data = json.loads((path / _LIST).read_text("utf-8"))
        return {str(name): str(value) for name, value in data.items()}
    except (OSError, ValueError, AttributeError):
        return {}


def check(spec: Spec) -> Check:
    """Whether the archives are unpacked there, with unchanged files.

    Values are the archives' sha256.
    """
    path, expected = pathlib.Path(spec["path"]), _expected_archive_hashes(spec)
    listed = _read_archive_list(path)
    if not listed:
        begun = path.exists() and not spec.get("shared", False)
        state = "half-unpacked" if begun else "missing"
        return {"ok": False, "found": state, "values": {}}
    same = sum(listed.get(name) == sha256 for name, sha256 in expected.items())
    text = f"{same} of {len(expected)} archives"
    if listed != expected:
        return {"ok": False, "found": text, "values": listed}
    record = unpacked.read(spec["path"], expected)
    if record is None:
        text += ", without a record of their files"
        answer: Check = {"ok": False, "found": text, "values": listed}
        return {**answer, "uploads": []} if _adoptable(spec) else answer
    many = len(record["files"])
    wrong = unpacked.differing(spec["path"], record, thorough=_thorough(spec))
    wrong |= _unknown_files(spec, record)
    if wrong:
        text = f"{len(wrong)} of {many} files have changed: {_summarize_changed_files(wrong)}"
        answer = {"ok": False, "found": text, "values": listed}
        return {**answer, "uploads": _origins(record, wrong)} if record["compared"] else answer
    text += f", {many} files"
    if record["compared"]:
        return {"ok": True, "found": text, "values": listed}
    doubt = "its files were never compared with the archives"
    return {
        "ok": not _thorough(spec),
        "found": f"{text}; {doubt}",
        "values": listed,
        "doubt": doubt,
    }


def plan(spec: Spec) -> str:
    """The directory, and the files if only some are restored."""
    path, expected = spec["path"], _expected_archive_hashes(spec)
    if _read_archive_list(pathlib.Path(path)) == expected:
        record = unpacked.read(path, expected)
        if record is None and _adoptable(spec):
            return f"record the current files in {path}"
        wrong = unpacked.differing(path, record) | _unknown_files(spec, record) if record else {}
        if record and record["compared"]:
            return f"restore {len(wrong)} files in {path}: {_summarize_changed_files(wrong)}"
    return f"unpack {len(expected)} archive{'s' * (len(expected) > 1)} into {path}"


def apply(spec: Spec) -> None:
    """Unpack them into a fresh directory; if already unpacked, restore damaged files."""
    path, expected = pathlib.Path(spec["path"]), _expected_archive_hashes(spec)
    if _read_archive_list(path) == expected:
        record = unpacked.read(spec["path"], expected)
        if record is None and _adoptable(spec):
            adopted = unpacked.record_existing(spec["path"], expected, spec["unwatched"])
            unpacked.write(spec["path"], adopted)
            return
        if record is not None and record["compared"]:
            _repair(spec, record)
            return
    _unpack_all_archives(spec, path)


def forget(spec: Spec) -> None:
    """Mark it as incomplete."""
    (pathlib.Path(spec["path"]) / _LIST).unlink(missing_ok=True)


def _expected_archive_hashes(spec: Spec) -> dict[str, str]:
    return {archive["name"]: archive["sha256"] for archive in spec["archives"]}


def _thorough(spec: Spec) -> bool:
    return spec.get("thorough", False)


def _unknown_files(spec: Spec, record: unpacked.Record) -> dict[str, str]:
    """Files a build may have left in a directory that is ours alone; searched by a repair."""
    if not (_thorough(spec) and record["compared"]) or spec.get("shared", False):
        return {}
    strange = unpacked.unknown_files(spec["path"], record["files"], spec["unwatched"])
    return dict.fromkeys(strange, "unknown")


def _adoptable(spec: Spec) -> bool:
    """Whether existing files without a record may be accepted."""
    return not _thorough(spec) and (pathlib.Path(spec["path"]) / spec["proof"]).is_file()


def _summarize_changed_files(wrong: dict[str, str]) -> str:
    """The first few, and the number of others."""
    more = len(wrong) - _NAMED
    named = ", ".join(f"{name} {state}" for name, state in [*wrong.items()][:_NAMED])
    return named + (f" and {more} more" if more > 0 else "")


def _origins(record: unpacked.Record, wrong: dict[str, str]) -> list[str]:
    """The archives these files came from."""
    return sorted({record["files"][name]["archive"] for name in wrong if name in record["files"]})


def _unpack_all_archives(spec: Spec, path: pathlib.Path) -> None:
    if not spec.get("shared", False):
        remove_tree(str(path))
    files: dict[str, unpacked.Entry] = {}
    for archive in spec["archives"]:
        files |= _unpack_archive(_verified(archive), path, archive["strip"], archive["name"])
    if not (path / spec["proof"]).is_file():
        raise RefusedError(f"the archives hold no {spec['proof']}")
    by_case = {os.path.normcase(name): name for name in files}  # of two such, the later one wins
    unwatched = spec["unwatched"]
    watched = {n: files[n] for n in by_case.values() if unpacked.is_watched(n, unwatched)}
    unpacked.record_times(str(path), watched, watched)
    unpacked.write(
        str(path), {"archives": _expected_archive_hashes(spec), "compared": True, "files": watched}
    )
    part = path / f"{_LIST}.part"
    part.write_text(json.dumps(_expected_archive_hashes(spec)), "utf-8")
    replace(str(part), str(path / _LIST))
    _tidy(spec)


def _repair(spec: Spec, record: unpacked.Record) -> None:
    """Restore damaged files; each file's own archive was uploaded."""
    path = pathlib.Path(spec["path"])
    wrong = unpacked.differing(spec["path"], record)  # the check was as thorough as requested
    for archive in spec["archives"]:
        some = {n for n in wrong if record["files"][n]["archive"] == archive["name"]}
        for name in some:
            remove_tree(str(path / name))  # also a link, which points elsewhere
        if some:
            _unpack_archive(_verified(archive), path, archive["strip"], archive["name"], some)
    for name in _unknown_files(spec, record):
        remove_tree(str(path / name))
    unpacked.record_times(spec["path"], record["files"], wrong)
    unpacked.write(spec["path"], record)
    _tidy(spec)


def _verified(archive: Packed) -> pathlib.Path:
    """The archive's file; :class:`RefusedError` unless it matches its pin."""
    actual = sha256(archive["file"])
    if actual != archive["sha256"]:
        raise RefusedError(
            f"{archive['file']} has sha256 {actual}, pinned is {archive['sha256']}",
            hint="It was changed on the host after the upload: provision again.",
        )
    return pathlib.Path(archive["file"])


def _tidy(spec: Spec) -> None:
    for archive in spec["archives"]:
        pathlib.Path(archive["file"]).unlink(missing_ok=True)


def _read_archive_members(archive: pathlib.Path) -> Iterator[tuple[str, IO[bytes]]]:
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


def _unpack_archive(
    archive: pathlib.Path,
    target: pathlib.Path,
    strip: str,
    origin: str = "",
    only: Container[str] | None = None,
) -> dict[str, unpacked.Entry]:
    """Unpack an archive, or ``only`` some of its files; the files written, without times."""
    prefix = strip.rstrip("/") + "/" if strip else ""
    protected_dirs.make(target, readable=True)
    made: set[pathlib.Path] = set()
    written: dict[str, unpacked.Entry] = {}
    for name, source in _read_archive_members(archive):
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
