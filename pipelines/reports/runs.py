"""Lists the runs of a directory with their outcomes, and removes old ones."""

from __future__ import annotations

import calendar
import math
import shutil
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.markup import escape

from pipelines.core import units
from pipelines.core.console import console
from pipelines.core.errors import ConfigError
from pipelines.core.files import disk_errors
from pipelines.core.tables import print_columns
from pipelines.record.run import HELD, Run
from pipelines.remote.locks import claim
from pipelines.reports.brief import Brief, brief_of
from pipelines.reports.views import Verdict, verdict_tone

_DAY = 86400.0
_STYLES: dict[Verdict, str] = {
    "passed": "green",
    "untested": "yellow",
    "unfinished": "yellow",
    "failed": "red",
}
_SPARE = ("evidence", "took", "size")


@dataclass(frozen=True)
class PastRun:
    """A listed run."""

    path: Path
    brief: Brief
    began: float
    """Since the epoch."""
    size: int
    """Size of its directory."""
    running: bool
    """Whether a command is using it now."""
    latest: bool

    def payload(self) -> dict[str, Any]:
        """For programs."""
        facts = self.brief.facts
        return {
            "run": self.path.name,
            "path": str(self.path),
            "began": facts.created or None,
            **facts.target.values(),
            "share": facts.share,
            "verdict": self.brief.verdict,
            "tested": self.brief.tested,
            "headline": self.brief.headline,
            "recorded_by": self.brief.recorded_by,
            "evidence": facts.evidence,
            "origin": facts.origin,
            "seconds": round(self.brief.seconds, 3),
            "bytes": self.size,
            "running": self.running,
            "latest": self.latest,
        }


def runs_in(out: Path) -> list[PastRun]:
    """Every run below ``out``, the latest first, except copies with other names."""
    past = Run.past(out)
    try:
        latest = Run.open(out).path if past else None
    except ConfigError:
        latest = None
    return [_past(run, latest) for run in past]


def runs_payload(runs: Iterable[PastRun]) -> dict[str, Any]:
    """For programs: ``schema`` 1, and the runs; sizes in bytes, times in seconds."""
    return {"schema": 1, "runs": [run.payload() for run in runs]}


def _past(run: Run, latest: Path | None) -> PastRun:
    return PastRun(
        path=run.path,
        brief=brief_of(run),
        began=_began(run.path),
        size=_size(run.path),
        running=_is_held(run.path),
        latest=latest is not None and run.path.resolve() == latest.resolve(),
    )


def _began(path: Path) -> float:
    """The time in its name, or else its last change."""
    try:
        return calendar.timegm(time.strptime(path.name[:15], "%Y%m%d-%H%M%S"))
    except (ValueError, OverflowError):
        return path.stat().st_mtime


def _size(path: Path) -> int:
    total = 0
    for each in path.rglob("*"):
        with suppress(OSError):  # just replaced by a running command
            total += each.lstat().st_size if each.is_file() and not each.is_symlink() else 0
    return total


def _is_held(path: Path) -> bool:
    if not (path / HELD).exists():
        return False
    with suppress(OSError), claim(path / HELD) as free:  # without write access it cannot be locked
        return not free
    return False


def to_remove(
    runs: Sequence[PastRun], *, days: float | None = None, keep: int | None = None
) -> list[PastRun]:
    """The ``runs``, latest first, that began ``days`` ago and are not the last ``keep``.

    The latest of all, and one that a command is at, are never among them.
    """
    before = math.inf if days is None else time.time() - days * _DAY
    return [
        run
        for run in runs[keep or 0 :]
        if run.began <= before and not run.latest and not run.running
    ]


def remove_runs(runs: Iterable[PastRun]) -> list[PastRun]:
    """Remove the directories except those in use; return the removed ones."""
    return [run for run in runs if _remove_run(run.path)]


def _remove_run(path: Path) -> bool:
    with disk_errors(path), ExitStack() as stack:
        if not stack.enter_context(claim(path / HELD)):
            return False
        # The record first, so that an interrupted removal leaves no run.
        for each in sorted(path.iterdir(), key=lambda entry: entry.name != "record.sqlite"):
            if each.is_dir() and not each.is_symlink():
                shutil.rmtree(each)
            elif each.name != HELD:
                each.unlink()
        stack.close()  # Windows cannot remove open files
        shutil.rmtree(path)
    return True


def print_run_table(runs: Sequence[PastRun]) -> list[str]:
    """Print a table of runs; return the columns that did not fit."""
    return print_columns(
        console, [_run_table_row(run) for run in runs], fold=["archs"], spare=_SPARE
    )


def _run_table_row(run: PastRun) -> dict[str, str]:
    brief = run.brief
    word = "running" if run.running else brief.word
    word += ", external" if brief.facts.given else ""
    word += f", shard {brief.facts.share}" if brief.facts.share else ""
    return {
        "run": escape(brief.id),
        "archs": escape(str(brief.facts.target.archs)),
        "verdict": f"[{_STYLES[verdict_tone(brief.verdict, brief.tested)]}]{word}[/]",
        "evidence": brief.facts.evidence.name.lower() if brief.facts.evidence else "",
        "took": units.format_seconds(brief.seconds),
        "size": units.format_size(run.size),
    }
