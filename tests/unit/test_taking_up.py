"""A detached job that another process has begun: continued, used as it is, or started again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jobscripts import ENDED, LINE, Script, finish, job, kept
from plans import Lab

from pipelines.hosts.live import LiveSession
from pipelines.record.job import JobRecord
from pipelines.stages.detached import Job


def again(made: Job, script: Script, **changes: Any) -> Job:
    """Another process goes on with the same run."""
    host = LiveSession(Lab(script))
    return Job(host, made.run, made.spec, made.log, **changes)


def left_at(tmp_path: Path, *, log: bytes = LINE, **record: Any) -> Job:
    """A job of which a process before this one has left a record and some log."""
    made = job(tmp_path, Script())
    known = {"host": "lab", "directory": "/j", "attempt": 1, "base": 0, "offset": len(log)}
    made.run.put_job("build", JobRecord.model_validate(known | record))
    made.log.write_bytes(log)
    return made


def test_a_job_that_runs_is_taken_up(tmp_path: Path) -> None:
    script = Script("ended", there="running", attempt=2)
    script.logs[2] = LINE + b"another\n"
    log = b"of attempt 1\n" + LINE
    made = left_at(
        tmp_path, log=log, attempt=2, base=len(log) - len(LINE), lost=("restarted",), way="shell"
    )
    second = again(made, script)
    assert finish(second) == ENDED
    assert made.log.read_bytes() == log + b"another\n"
    assert "jobs.launch.start" not in script.asked
    assert (kept(second).lost, kept(second).way) == (("restarted",), "shell")


def test_another_log_than_the_hosts_is_fetched_anew(tmp_path: Path) -> None:
    script = Script("ended", there="running", attempt=1)
    made = left_at(tmp_path, log=b"0 begin 2\n", base=2)
    finish(again(made, script))
    assert made.log.read_bytes() == b"0 " + LINE


@pytest.mark.parametrize(
    "record",
    [
        {"directory": "/other"},
        {"attempt": 2},
        {"base": 100},
    ],
    ids=["another job", "the host knows less", "the log is shorter"],
)
def test_what_does_not_fit_is_not_taken_up(tmp_path: Path, record: dict[str, Any]) -> None:
    script = Script("ended", there="running", attempt=1)
    made = left_at(tmp_path, log=b"of something else\n", **record)
    second = again(made, script)
    assert finish(second) == ENDED
    assert made.log.read_bytes() == LINE
    assert second.base == 0


def test_what_the_host_has_no_more_is_begun_anew(tmp_path: Path) -> None:
    script = Script("ended")
    made = left_at(tmp_path, log=b"before\n", attempt=0)
    finish(again(made, script))
    assert made.log.read_bytes() == LINE
    assert "jobs.store.prefix_digest" not in script.asked


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("cancelled", [True, False])
def test_a_job_that_has_ended_is_taken_if_it_is_good(
    tmp_path: Path, wanted: bool, cancelled: bool
) -> None:
    script = Script("ended", there="ended", attempt=3)
    result = {"attempt": 3, "cancelled": cancelled, "ended": 2.0, "result": ENDED}
    script.more = lambda _: {"result": result} if script.attempt == 3 else {}
    seen: list[dict[str, Any]] = []

    def keep(left: dict[str, Any]) -> bool:
        seen.append(left)
        return wanted

    made = job(tmp_path, script, keep=keep)
    assert finish(made) == ENDED
    good = wanted and not cancelled
    assert (made.kept, made.attempt) == (good, 3 if good else 4)
    assert seen == ([] if cancelled else [ENDED])
    assert made.log.read_bytes() == LINE


@pytest.mark.parametrize("fresh", [True, False])
def test_another_attempt_comes_after_what_is_here(tmp_path: Path, fresh: bool) -> None:
    """When one is asked for, or when the time of the one before was up."""
    script = Script("ended", there="ended", attempt=1)
    made = left_at(tmp_path)
    if not fresh:
        up = {"exit": 1, "timed_out": True}
        first = {"attempt": 1, "cancelled": False, "ended": 2.0, "result": up}
        script.more = lambda _: {"result": first} if script.attempt == 1 else {}
    second = again(made, script, fresh=fresh, keep=lambda _: True)
    assert finish(second) == ENDED
    assert (second.attempt, second.base, second.kept) == (2, len(LINE), False)
    assert made.log.read_bytes() == LINE + LINE


def test_an_attempt_that_is_of_no_interest_is_not_followed(tmp_path: Path) -> None:
    """The host may still tell of the one before while the next one begins."""
    script = Script("ended", there="ended", attempt=1)

    def late(beyond: int) -> dict[str, Any]:
        first = script.asked.count("jobs.launch.start") == 1
        return script.state("ended") if first else script.start(beyond)

    script.begin = late
    made = job(tmp_path, script, fresh=True)
    assert finish(made) == ENDED
    assert made.attempt == 2


def test_a_later_attempt_of_somebody_else_is_followed(tmp_path: Path) -> None:
    """Its result is not that of the one that was followed until then."""
    script = Script("ended", "ended")

    def overtaken(attempt: int, offset: int) -> Iterator[Any]:
        if attempt == 1:
            script.attempt, script.there = 2, "running"
        return script.follow(attempt, offset)

    script.read = overtaken
    made = job(tmp_path, script)
    assert finish(made) == ENDED
    assert (made.attempt, made.lost) == (2, [])
    assert made.log.read_bytes() == LINE + LINE
