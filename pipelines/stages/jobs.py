"""What runs or ran on a host: shown, followed, ended."""

from __future__ import annotations

import re
import sys
import time
from typing import Any

from rich.markup import escape

from pipelines.core import units
from pipelines.core.console import console, host_line, say
from pipelines.core.errors import ConfigError, HostError
from pipelines.core.hosttext import safe_text
from pipelines.core.tables import print_columns
from pipelines.remote.jobs import follow as remote_follow
from pipelines.remote.jobs import store
from pipelines.stages.detached import Listed, State, decode_log_lines, validate_job_state
from pipelines.stages.line import Line

_COLOURS = {"running": "green", "ended": "", "lost": "yellow", "cancelled": "yellow"}


def show(line: Line) -> None:
    """Print the host's jobs as a table, the latest first."""
    jobs = _valid_host_jobs(line)
    if not jobs:
        why = line.plan.host.unmade()
        say(f"no jobs on {line.plan.host.name}{why and f': {why}'}")
        return
    spare = ("way", "try", "started", "took")
    if without := print_columns(console, [_job_table_row(job) for job in jobs], spare=spare):
        say(f"Columns hidden to fit: {', '.join(without)} (see --json).", "dim")


def as_json(line: Line) -> dict[str, Any]:
    """For programs: ``schema`` 1, and the host's jobs; times are seconds since 1970."""
    return {
        "schema": 1,
        "host": line.plan.host.name,
        "jobs": [_job_json(job) for job in _valid_host_jobs(line)],
    }


def _job_json(job: Listed) -> dict[str, Any]:
    end = job.result
    code = end.result.get("exit") if end and not end.cancelled else None
    return {
        "id": job.id,
        "what": safe_text(job.title, 200),
        "state": job.state,
        "attempt": job.attempt,
        "started": job.started or None,
        "ended": end.ended if end else None,
        "exit": code if isinstance(code, int) else None,
        "cancelled": bool(end and end.cancelled),
        "directory": safe_text(job.directory, 400),
        "way": safe_text(job.way, 40),
    }


def follow(line: Line, name: str) -> None:
    """Print a job's log from its beginning until it ends; leaving does not end the job."""
    job = _find_job_by_prefix(line, name)
    items = line.session.stream(
        remote_follow.follow, directory=job.directory, attempt=job.attempt, offset=0
    )
    with open("/dev/null" if sys.platform != "win32" else "nul", "wb") as nowhere:  # noqa: PTH123
        for item in decode_log_lines(iter(items), nowhere):
            if isinstance(item, dict):
                say(f"{job.id}: {_word(validate_job_state(line.plan.host.name, item, State))}")
            else:
                host_line(item)


def cancel(line: Line, name: str) -> None:
    """End a job and everything it started; finished units are kept."""
    job = _find_job_by_prefix(line, name)
    answer = line.session.call(remote_follow.cancel, directory=job.directory)
    now = validate_job_state(line.plan.host.name, answer, State)
    if now.state == "running":
        raise HostError(
            f"{line.plan.host.name}: job {job.id} does not stop",
            hint="Restart the host, or kill its processes there by hand.",
        )
    say(f"{job.id}: {_word(now)}", style="green")


def running_jobs(line: Line) -> list[str]:
    """The running jobs: id and purpose; :class:`HostError` if one cannot be read."""
    jobs = [validate_job_state(line.plan.host.name, job, Listed) for job in _query_host_jobs(line)]
    return [
        " ".join(safe_text(f"{job.id} {job.title}", 80).split())
        for job in jobs
        if job.state == "running"
    ]


def _query_host_jobs(line: Line) -> list[store.Listed]:
    line.plan.host.inspect_only()
    if line.plan.host.unmade():
        return []
    return line.session.call(store.listed, root=line.plan.layout.build_root)


def _valid_host_jobs(line: Line) -> list[Listed]:
    jobs = []
    for job in _query_host_jobs(line):
        try:
            jobs.append(validate_job_state(line.plan.host.name, job, Listed))
        except HostError as error:  # one does not hide the others
            say(error.message, style="yellow")
    return jobs


def _find_job_by_prefix(line: Line, name: str) -> Listed:
    """The job whose id begins with ``name``, or :class:`ConfigError` with the ones there are."""
    jobs = _valid_host_jobs(line)
    found = [job for job in jobs if name and job.id.startswith(name)]
    if len(found) == 1:
        return found[0]
    there = ", ".join(job.id for job in (found or jobs)[:8]) or "none"
    what = "more than one job matches" if found else "no job matches"
    raise ConfigError(f"{what} {name!r} on {line.plan.host.name}", hint=f"Its jobs: {there}")


def _word(job: State) -> str:
    """The state, with its outcome."""
    if job.result is None:
        return job.state
    if job.result.cancelled:
        return "cancelled"
    code = job.result.result.get("exit")
    return job.state if code is None else safe_text(f"{job.state}, exit {code}", 40)


def _job_table_row(job: Listed) -> dict[str, str]:
    """As markup, by column."""
    word = _word(job)
    style = _COLOURS.get(re.split(r"\W", word)[0])
    ended = job.result.ended if job.result else time.time()
    known = job.started > 0
    begun = time.strftime("%m-%d %H:%M", time.localtime(job.started)) if known else ""
    return {
        "job": _escape_job_text(job.id),
        # A smoke suite is called as its run is, which begins with its time: there is a column.
        "what": _escape_job_text(re.sub(r"^\d{8}-\d{6}-", "", job.title)),
        "state": f"[{style}]{escape(word)}[/]" if style else escape(word),
        "try": str(job.attempt),
        "started": begun,
        "took": units.format_elapsed(ended - job.started) if known else "",
        "way": _escape_job_text(job.way),
    }


def _escape_job_text(value: str) -> str:
    """A word of the host's, in one line, never markup."""
    return escape(" ".join(safe_text(value, 48).split()))
