"""Made-up wheels with anything in them, and their findings."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from foreign_wheels import foreign
from pes import msvc

from pipelines.audit.examination import AuditOptions, audit_wheel
from pipelines.audit.findings import WheelReport
from pipelines.audit.inputs import Input
from pipelines.core.finding import Finding

TAG = "cp311-cp311-win_amd64"


def look(path: Path, *gpus: tuple[str, str], sha256: str = "") -> WheelReport:
    """What ``invoke audit`` finds in it."""
    return audit_wheel(Input(path.name, str(path), path, sha256), AuditOptions(gpus=gpus))


def one(
    folder: Path,
    files: Mapping[str, bytes] | None = None,
    *gpus: tuple[str, str],
    version: str = "1.0",
    tag: str = TAG,
    requires: Sequence[str] = (),
    python: str = "",
) -> WheelReport:
    """What is found in a wheel with these files; without any with one module as MSVC makes it."""
    own = {"other/_C.cp311-win_amd64.pyd": msvc()} if files is None else files
    made = foreign(folder, "other", version, tag, requires=requires, files=own, python=python)
    return look(made, *gpus)


def finding(seen: WheelReport, check: str) -> Finding:
    """The one of that name."""
    (found,) = [each for each in seen.findings if each.label == check]
    return found


def level(seen: WheelReport, check: str) -> str:
    """How bad it is."""
    return finding(seen, check).level


def with_member(path: Path, name: str, data: bytes = b"x") -> Path:
    """The same wheel with one more member, which RECORD does not know."""
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(zipfile.ZipInfo(name), data)
    return path
