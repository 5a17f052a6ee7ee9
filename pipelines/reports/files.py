"""The files of a run with their sha256."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from pipelines.core.files import sha256_of
from pipelines.core.hosttext import line
from pipelines.record.manifest import Schema
from pipelines.record.results import FileResult
from pipelines.reports.views import FileView

#: Generated from the record, or the record itself: not listed in a report.
UNLISTED = ("report.html", "summary.md", "manifest.json")
_MOST = 500
_MANIFEST = 16 << 20  # bytes
_LINK = 1000  # characters


class _Manifest(BaseModel):
    """The relevant part of ``manifest.json``."""

    schema_: Schema
    files: tuple[FileResult, ...]


def files(path: Path) -> tuple[FileView, ...]:
    """Every file of the run in ``path``, and those only in ``manifest.json``, as from CI."""
    known = _manifest(path / "manifest.json")
    made = []
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path).as_posix()
        hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
        if hidden or name in UNLISTED or name.startswith("record.sqlite"):
            continue
        if file.is_file() and not file.is_symlink():
            made.append(_file(file, name, known.pop(name, None)))
            if len(made) == _MOST:
                break
    made += [
        FileView(line(name), row.size, row.sha256, "not here; from manifest.json")
        for name, row in known.items()
        if name not in UNLISTED
    ]
    return tuple(sorted(made[:_MOST], key=lambda row: row.path))


def _file(file: Path, name: str, recorded: FileResult | None) -> FileView:
    status, link = file.stat(), quote(os.fsencode(name))
    link = link if len(link) <= _LINK else ""
    sha256 = sha256_of(file)
    # Logs and reports are rewritten by later stages, wheels are not.
    differs = recorded is not None and name.endswith(".whl") and recorded.sha256 != sha256
    note = "differs from manifest.json" if differs else ""
    return FileView(line(name), status.st_size, sha256, note, differs, link)


def _manifest(path: Path) -> dict[str, FileResult]:
    """Its rows by path; empty if it cannot be read."""
    try:
        if path.is_symlink() or path.stat().st_size > _MANIFEST:
            return {}
        manifest = _Manifest.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return {}
    return {row.path: row for row in manifest.files}
