"""``manifest.json``: inputs, tools, timings, and the wheels, logs and tests of a run with sha256.

It depends only on the record and those files, and is always the same.
"""

from __future__ import annotations

import json
import pkgutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipelines import __version__
from pipelines.core.console import console, say
from pipelines.core.errors import AuditError
from pipelines.core.extras import find_missing
from pipelines.core.files import sha256_of, write_atomic
from pipelines.core.finding import values_of
from pipelines.core.hosttext import safe_line, safe_text
from pipelines.core.jsonfile import json_differences, parse_json_object, read_bytes
from pipelines.core.units import join_first
from pipelines.record.manifest import SCHEMA
from pipelines.record.results import AuditResult, BuildResult, RebuildResult, SmokeResult
from pipelines.record.run import Run
from pipelines.record.shards import ShardsResult
from pipelines.reports.levels import evidence_of

_NAMES = ("build.log", "smoke.log", "smoke.xml")


def write_manifest(run: Run) -> list[dict[str, Any]]:
    """Write it, and a statement on each wheel; its rows of files.

    :class:`AuditError` if a wheel has changed, or was added, since its audit.
    """
    manifest = manifest_of(run)
    data = _encoded(manifest)
    write_atomic(run.path / "manifest.json", data)
    write_run_statements(run.path, data)
    rows: list[dict[str, Any]] = manifest["files"]
    return rows


def write_run_statements(folder: Path, data: bytes) -> None:
    """Write the statements of a run whose manifest is ``data``."""
    if (missing := find_missing("publish")) is not None:
        say(f"no provenance was written: {missing.message}", style="dim")
        return
    pkgutil.resolve_name("pipelines.publish.provenance.statement:write_statements")(folder, data)


def require_manifest(run: Run) -> bytes:
    """The bytes of ``manifest.json``, if it is as the run's record and files have it."""
    path = run.path / "manifest.json"
    made = _encoded(manifest_of(run))
    try:
        if (data := read_bytes(path)) == made:
            return data
        different = join_first(
            json_differences(parse_json_object(data), parse_json_object(made)), "\n"
        )
    except ValueError as error:
        different = safe_line(error, 300)
    raise AuditError(
        f"{path} differs from the run's record: {different or 'in form'}",
        hint=f"To rewrite it from the record: wcw report {run.path}",
    )


def _encoded(manifest: dict[str, Any]) -> bytes:
    return json.dumps(manifest, indent=2).encode() + b"\n"


def manifest_of(run: Run) -> dict[str, Any]:
    """What ``manifest.json`` says, by the record and the files that are there."""
    facts = run.facts()
    audited = run.result(AuditResult) or AuditResult()
    built = run.result(BuildResult) or BuildResult(job="", directory="", jobs=0)
    known = {one.file: one.sha256 for one in audited.files}
    kept = [*sorted((run.path / "wheels").glob("*.whl")), *sorted((run.path / "library").glob("*"))]
    stages = run.stages()
    if (audit := stages.get(AuditResult.stage)) is not None and audit.state == "passed":
        _refuse_added_wheel(kept, known)
    rows = [_manifest_file_entry(path, run.path, known.get(path.name)) for path in kept]
    others = [run.path / name for name in _NAMES] + sorted(run.path.glob("smoke-torch*.xml"))
    rows += [_manifest_file_entry(path, run.path) for path in others if path.is_file()]
    ends = {one.name: one.started + (one.seconds or 0) for one in stages.values()}
    done = [ends[name] for name in (BuildResult.stage, AuditResult.stage) if name in ends]
    manifest: dict[str, Any] = {
        "schema": SCHEMA,
        "made_by": f"windows-cuda-wheels {__version__}",
        "serial": int(max(ends.values(), default=0) * 1000),
        "run": facts.run,
        "started": facts.created or None,
        "finished": _utc_timestamp(max(done)) if done else None,
        "publishable": facts.publishable,
        "sealers": sorted({*run.sealers.values()}),
        "inputs": facts.target.values()
        | {
            "job": facts.job or None,
            "source_sha256": facts.source_sha256 or None,
            "origin": facts.origin or None,
            "taken_from": dict(sorted(facts.taken_from.items())),
            "checkout": built.checkout.model_dump() if built.checkout else None,
            "reproducible": "fixed place" in built.materials.root,
            "materials": built.materials.model_dump(),
        },
        "toolset": {"asked": facts.toolset or None, "found": _audited_toolsets(audited)},
        "host": {key: value or None for key, value in facts.host} if facts.host else {},
        "evidence": evidence_of(facts, run.result(SmokeResult)),
        "tools": {name: tool.model_dump() for name, tool in sorted(facts.tools.items())},
        "seconds": {s.name: round(s.seconds or 0, 3) for s in stages.values()},
        "stages": {s.name: s.state for s in stages.values()},
        "files": rows,
        "sboms": {one.file: one.sboms for one in audited.files if one.sboms},
    }
    if built.divided is not None:
        manifest["divided"] = _shard_summary(built.divided)
    if (rebuilt := run.result(RebuildResult)) is not None and rebuilt.compared is not None:
        manifest["rebuilt"] = rebuilt.compared.model_dump(mode="json")
    return manifest


def _shard_summary(made: ShardsResult) -> dict[str, Any]:
    """How many of the wheel's compile units which host compiled, and with which programs."""
    return {
        "share": made.share or None,
        "units": len(made.units),
        "compiled_here": len(made.objects if made.mode == "compile" else made.compiled),
        "linked_from": [one.model_dump() for one in made.lent],
        "compilers": made.compilers,
    }


def _utc_timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _audited_toolsets(audited: AuditResult) -> list[str]:
    """The tool sets that the wheels themselves tell; of what was not read there is none."""
    return sorted({tool for file in audited.files for tool in values_of(file.checks, "toolset")})


def print_files(rows: list[dict[str, Any]]) -> None:
    """What the run holds, one line a file."""
    for row in rows:
        console.print(
            f"  {safe_text(row['path'])}  [dim]{row['size']:,} bytes  sha256 "
            f"{row['sha256'][:16]}…[/dim]"
        )


def _refuse_added_wheel(kept: list[Path], audited: dict[str, str]) -> None:
    """Refuse a wheel that the audit has not seen: a statement would say of it that it has."""
    if added := [path.name for path in kept if path.suffix == ".whl" and path.name not in audited]:
        raise AuditError(
            f"{added[0]} was added to the run after its audit",
            hint="It was not built there. Do not use it; remove it from the run.",
        )


def _manifest_file_entry(path: Path, root: Path, audited: str | None = None) -> dict[str, Any]:
    found = sha256_of(path)
    if audited not in (None, found):
        raise AuditError(
            f"{path.name} has sha256 {found}, but the audited file had {audited}",
            hint="The wheel was changed on this machine. Do not use it; build again.",
        )
    name = path.relative_to(root).as_posix()
    return {"path": name, "size": path.stat().st_size, "sha256": found}
