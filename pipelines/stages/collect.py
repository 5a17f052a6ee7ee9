"""Brings wheels home: the very bytes that the builder has hashed."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pipelines.core.console import bytes_progress
from pipelines.core.errors import AuditError, BuildError, TransferError
from pipelines.core.files import disk_errors
from pipelines.core.hosttext import safe_text
from pipelines.hosts.live import LiveSession
from pipelines.plan.matrix.buildplan import BuildPlan
from pipelines.record.results import BuildResult, CollectResult, FileResult, HostFile
from pipelines.record.run import StageLog
from pipelines.stages.hooks import CollectHooks, requested_features


def collect(session: LiveSession, plan: BuildPlan, log: StageLog) -> CollectResult:
    """Download the build's output, wheels or a crate's library; it appears by rename.

    Raises :class:`TransferError` unless it has the sha256 and size that the builder stated.
    """
    built = log.run.result(BuildResult)
    if built is None:
        raise BuildError(f"run {log.run.id} has no build", hint="Type: invoke build")
    log.keep(CollectResult())
    fetched: list[FileResult] = []
    joined = requested_features(CollectHooks, plan)
    wanted = _wanted(plan, built) + [row for one in joined for row in one.wanted(built)]
    with bytes_progress() as progress:
        for row, name in wanted:
            target = log.run.path / name
            with disk_errors(target.parent):
                target.parent.mkdir(exist_ok=True)
            task = progress.add_task(f"fetch {target.name[:40]}", total=row.size)
            show = partial(_update_progress_bar, partial(progress.update, task))
            there = next(filter(None, (one.had(row, target, name) for one in joined)), "")
            arrived = there or session.get(row.path, target, progress=show)
            progress.remove_task(task)
            _require_same(row, arrived, target, plan.host.name)
            fetched.append(FileResult(path=name, size=row.size, sha256=arrived))
            log.keep(CollectResult(files=tuple(fetched)))
    return CollectResult(files=tuple(fetched))


def _update_progress_bar(update: partial[None], done: int, total: int) -> None:
    update(completed=done, total=total)


def _wanted(plan: BuildPlan, built: BuildResult) -> list[tuple[HostFile, str]]:
    """The files on the host, and what they are called in the run."""
    wanted = []
    for row in built.wheels:
        # The host names the file: only a plain wheel name may become one of ours.
        name = row.path.replace("\\", "/").rpartition("/")[2]
        if not name.endswith(".whl") or safe_text(name) != name or name.startswith("."):
            raise AuditError(f"the host offers a file called {safe_text(name)!r}, not a wheel")
        wanted.append((row, f"wheels/{name}"))
    library = plan.recipe.library
    if library and built.library:
        name = library.names[-1 if plan.host.capabilities.windows else 0]
        wanted.append((built.library, f"library/{name}"))
    return wanted


def _require_same(row: HostFile, arrived: str, target: Path, host: str) -> None:
    """Refuse, and remove, what is not the file that the builder has hashed."""
    size = target.stat().st_size
    if (arrived, size) == (row.sha256, row.size):
        return
    target.unlink()
    raise TransferError(
        f"{target.name}: {host} built {row.size} bytes with sha256 {row.sha256}, but {size} "
        f"bytes with {arrived} were downloaded",
        hint="It was changed on the host after the build, by a virus scanner or another user. "
        "Build again.",
    )
