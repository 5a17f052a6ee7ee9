"""Whether what a ledger calls done is still there: by the run's record and the files' sha256."""

from __future__ import annotations

from pathlib import Path

from pipelines.errors import PipelineError
from pipelines.files import sha256_of
from pipelines.fleet.entries import Attempt
from pipelines.fleet.ledger import Ledger
from pipelines.fleet.model import Work
from pipelines.hosttext import line
from pipelines.record import AuditResult, CollectResult, SkipResult
from pipelines.run import Run
from pipelines.stages.line import require_audited


def begin_lost(ledger: Ledger, at: float) -> dict[str, str]:
    """Have what was done and is not here any more begin anew: key -> what is wrong.

    The ledger is held. A share is looked at only while its link is to be done.
    """
    entries = ledger.works()
    attempts = {one.span.key: one for one in ledger.attempts()}
    lost: dict[str, str] = {}
    for shards in (False, True):
        open_ones = [one for one in entries if one.stand != "done" or one.work.key in lost]
        wanted = {key for one in open_ones for key in one.work.after}
        for entry in entries:
            work = entry.work
            if entry.stand != "done" or (work.kind == "shard") is not shards:
                continue
            if (not shards or work.key in wanted) and (why := _lacks(work, attempts.get(work.key))):
                lost[work.key] = why
    if lost:
        with ledger.change(at) as change:
            for entry in entries:
                if entry.work.key in lost:
                    change.work(entry, stand="waiting", bound="", error=None)
                    change.event("not there", entry.work.key, said=lost[entry.work.key])
    return lost


def _lacks(work: Work, attempt: Attempt | None) -> str:
    """Why a work is not done though the ledger says so; empty: it is."""
    if attempt is None or attempt.span.outcome != "done" or not attempt.span.run:
        return "no attempt at it came to its end"
    folder = Path(attempt.span.run)
    if not (folder / "record.sqlite").is_file():
        return f"its run {line(folder.name, 100)} is gone"
    try:
        return "" if work.kind == "test" else _differs(Run(folder), share=work.kind == "shard")
    except PipelineError as error:
        return line(error.message)
    except OSError as error:
        return f"its run {line(folder.name, 100)} cannot be read: {error.strerror}"


def _files_of(run: Run, *, share: bool) -> dict[str, str]:
    """What a run was made for: path -> sha256; :class:`BuildError` for what nobody has audited."""
    if run.result(SkipResult) is not None:
        return {}
    came = (run.result(CollectResult) or CollectResult()).files
    files = {one.path: one.sha256 for one in came}
    if share:
        return files
    require_audited(run)
    audited = {one.file: one.sha256 for one in (run.result(AuditResult) or AuditResult()).files}
    paths = [*files] or [f"wheels/{name}" for name in audited]  # taken, or built and brought
    return {path: audited.get(Path(path).name, "") for path in paths}


def _differs(run: Run, *, share: bool) -> str:
    """The first file that is not as the run has recorded it; raises what reading it does."""
    for path, sha256 in _files_of(run, share=share).items():
        name = line(Path(path).name, 100)
        if not (run.path / path).is_file():
            return f"{name} is not in its run {run.id}"
        if sha256_of(run.path / path) != sha256:
            return f"{name} in its run {run.id} is not the file that was made"
    return ""
