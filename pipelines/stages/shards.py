"""All shares of one wheel on one host, one after another, and their link."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from pipelines.core import units
from pipelines.core.console import say
from pipelines.plan.matrix.hostfacts import HostFacts
from pipelines.plan.matrix.shares import shares_for
from pipelines.record.shards import Share
from pipelines.stages.line import Line, run_build
from pipelines.stages.pace import cost_of


def run_shards(line: Line) -> Path:
    """Compile every shard of the plan's units, then link; the directory of the link's run.

    A shard with the same inputs is reused, an interrupted one continued. If ``auto`` finds no use
    in dividing, the wheel is built as a whole. The plan's minutes are for all together.
    """
    plan = line.plan
    count = plan.shards or _reckoned(line)
    ends = None if plan.minutes is None else time.monotonic() + plan.minutes * 60
    runs: list[str] = []
    try:
        for share in [Share(number, count) for number in range(1, count + 1) if count > 1]:
            line.plan = replace(plan, share=share, minutes=_minutes_left(ends))
            runs.append(str(run_build(line)))
            line.tell()
        line.plan = replace(plan, objects=tuple(runs), minutes=_minutes_left(ends))
        return run_build(line)
    finally:
        line.plan = plan


def _minutes_left(ends: float | None) -> float | None:
    """Minutes; where there are none left, so few that the next build says so, and keeps its job."""
    return None if ends is None else max((ends - time.monotonic()) / 60, 1 / 60)


def _reckoned(line: Line) -> int:
    """As many shares as ``auto`` stands for on the one host of a line."""
    plan = line.plan
    host = HostFacts.from_session(line.session.facts, name=plan.host.name)
    count, why = shares_for(cost_of(plan), [host], plan.archs.effective, plan.jobs)
    say(f"--shards auto: {units.pluralize(count, 'shard')}, {why}")
    return count
