"""Brings wheels home and writes the manifest of the run."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipelines import __version__
from pipelines.console import bytes_progress, console
from pipelines.errors import AuditError
from pipelines.files import disk_errors, write_atomic
from pipelines.hosttext import safe
from pipelines.run import Run
from pipelines.stages.work import Work

_SCHEMA = 1


def collect(work: Work, built: dict[str, Any], detail: dict[str, Any]) -> list[Path]:
    """Fetch what the build left, wheels or a crate's library of kernels; it landed by rename.

    A wheel made on a host whose wheels must not be published has to say so in its version.
    """
    wanted: list[tuple[dict[str, Any], Path]] = []
    for row in built["wheels"]:
        # The host names the file: only a plain wheel name may become one of ours.
        name = str(row["path"]).replace("\\", "/").rpartition("/")[2]
        if not name.endswith(".whl") or safe(name) != name or name.startswith("."):
            raise AuditError(f"the host offers a file called {safe(name)!r}, not a wheel")
        wanted.append((row, work.run.path / "wheels" / name))
    library = work.recipe.library
    if library and built.get("library"):
        name = library.names[-1 if work.host.capabilities.windows else 0]
        wanted.append((built["library"], work.run.path / "library" / name))
    with bytes_progress() as progress:
        for row, target in wanted:
            with disk_errors(target.parent):
                target.parent.mkdir(exist_ok=True)
            task = progress.add_task(f"fetch {target.name}", total=row["size"])
            work.session.get(
                row["path"],
                target,
                progress=lambda done, total, bar=task: progress.update(  # type: ignore[misc]
                    bar, completed=done, total=total
                ),
            )
    fetched = [target for _, target in wanted]
    detail["files"] = [str(path.relative_to(work.run.path)) for path in fetched]
    return fetched


def file_row(path: Path, root: Path) -> dict[str, Any]:
    """Name, size in bytes and sha256 of a file of the run."""
    with path.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    return {
        "path": path.relative_to(root).as_posix(),
        "size": path.stat().st_size,
        "sha256": sha256,
    }


def write_manifest(work: Work) -> Path:
    """``manifest.json``: inputs, tools, timings, and every file with size and sha256."""
    run, facts = work.run, work.run.facts()
    kept = [*sorted((run.path / "wheels").glob("*.whl"))]
    kept += sorted((run.path / "library").glob("*"))
    names = ("build.log", "smoke.log", "smoke.xml", "junit.xml", "report.html", "summary.md")
    kept += [run.path / name for name in names]
    tools = facts.get("tools") or {}  # none of a wheel that was taken
    lock = work.cache.lock
    manifest = {
        "schema": _SCHEMA,
        "made_by": f"windows-cuda-wheels {__version__}",
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "run": run.id,
        "publishable": facts["publishable"],
        "inputs": {k: facts[k] for k in ("host", "recipe", "python", "cuda", "archs")}
        | {k: facts.get(k) for k in ("job", "source_sha256", "origin")},
        "host": facts.get("host_facts", {}),
        "evidence": facts["evidence"],
        "tools": {
            name: {"version": lock.tool(name).version, "sha256": lock.tool(name).sha256}
            for name in sorted(tools)
        },
        "seconds": {s.name: round(s.seconds or 0, 3) for s in run.stages().values()},
        "files": [file_row(path, run.path) for path in kept if path.is_file()],
    }
    path = run.path / "manifest.json"
    write_atomic(path, json.dumps(manifest, indent=2).encode() + b"\n")
    return path


def print_files(run: Run) -> None:
    """What the run holds, one line a file."""
    for row in json.loads((run.path / "manifest.json").read_text())["files"]:
        console.print(
            f"  {safe(row['path'])}  [dim]{row['size']:,} bytes  sha256 {row['sha256'][:16]}…[/dim]"
        )
