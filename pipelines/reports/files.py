"""The files of a run with their sha256."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

from pipelines.hosttext import line
from pipelines.reports.read import mapping, number, rows
from pipelines.reports.views import FileView

#: Made from the record, or the record itself: not told of in a report.
NOT_TOLD = ("report.html", "summary.md", "manifest.json")
_MOST = 500
_LARGE = 16 << 20  # bytes from which the manifest's word is taken for a file that is as it was
_MANIFEST = 16 << 20  # bytes


def files(path: Path) -> tuple[FileView, ...]:
    """Every file of the run in ``path``; also what only ``manifest.json`` knows, as of CI.

    A large file that has the manifest's size and is not younger than it has the sha256 of the
    manifest; every other one is read.
    """
    known, written = _manifest(path / "manifest.json")
    made = []
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path).as_posix()
        hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
        if hidden or name in NOT_TOLD or name.startswith("record.sqlite"):
            continue
        if file.is_file() and not file.is_symlink():
            made.append(_file(file, name, known.pop(name, None), written))
            if len(made) == _MOST:
                break
    made += [
        FileView(line(name), int(number(row.get("size")) or 0), line(row.get("sha256"), 64), note)
        for name, row in known.items()
        if name not in NOT_TOLD
        for note in ["not here; as manifest.json says"]
    ]
    return tuple(sorted(made[:_MOST], key=lambda row: row.path))


def _file(file: Path, name: str, told: dict[str, Any] | None, written: float) -> FileView:
    status = file.stat()
    claimed = str(told.get("sha256")) if told else ""
    same = told is not None and told.get("size") == status.st_size
    if same and status.st_size >= _LARGE and status.st_mtime <= written:
        return FileView(line(name), status.st_size, claimed, "as manifest.json says")
    with file.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    # Logs and reports are written again by a later stage, a wheel never is.
    differs = bool(claimed) and name.endswith(".whl") and claimed != sha256
    note = "differs from manifest.json" if differs else ""
    return FileView(line(name), status.st_size, sha256, note)


def _manifest(path: Path) -> tuple[dict[str, dict[str, Any]], float]:
    """Its rows by path and when it was written; nothing where it cannot be read."""
    try:
        if path.is_symlink() or path.stat().st_size > _MANIFEST:
            return {}, 0.0
        told = mapping(json.loads(path.read_bytes()))
        written = datetime.fromisoformat(str(told.get("written"))).timestamp()
    except (OSError, ValueError, RecursionError):
        return {}, 0.0
    known = {
        str(row.get("path")): row
        for row in rows(told.get("files"))
        if re.fullmatch(r"[0-9a-f]{64}", str(row.get("sha256")))
    }
    return known, written
