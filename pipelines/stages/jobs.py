"""What runs or ran on a host: shown, followed, ended."""

from __future__ import annotations

import re
import sys
import time
from typing import Any

from rich.table import Table
from rich.text import Text

from pipelines import units
from pipelines.console import console, host_line, say
from pipelines.errors import ConfigError, HostError
from pipelines.hosttext import safe
from pipelines.remote.jobs import follow as remote_follow
from pipelines.remote.jobs import store
from pipelines.stages.detached import Listed, State, checked
from pipelines.stages.line import Line
from pipelines.stages.logs import log_lines

_COLOURS = {"running": "green", "ended": "", "lost": "yellow", "cancelled": "yellow"}


def show(line: Line) -> None:
    """Print the host's jobs as a table, the latest first."""
    jobs = _jobs(line)
    if not jobs:
        say(f"no jobs at {line.plan.host.name}")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("job", "what", "state", "try", "started", "took", "way"):
        table.add_column(column, no_wrap=column not in ("what", "way"), overflow="fold")
    for job in jobs:
        table.add_row(*_row(job))
    console.print(table)


def told(line: Line) -> dict[str, Any]:
    """For programs: ``schema`` 1, and the host's jobs; times are seconds since 1970."""
    return {
        "schema": 1,
        "host": line.plan.host.name,
        "jobs": [_told(job) for job in _jobs(line)],
    }


def _told(job: Listed) -> dict[str, Any]:
    end = job.result
    code = end.result.get("exit") if end and not end.cancelled else None
    return {
        "id": job.id,
        "what": safe(job.title, 200),
        "state": job.state,
        "attempt": job.attempt,
        "started": job.started or None,
        "ended": end.ended if end else None,
        "exit": code if isinstance(code, int) else None,
        "cancelled": bool(end and end.cancelled),
        "directory": safe(job.directory, 400),
        "way": safe(job.way, 40),
    }


def follow(line: Line, name: str) -> None:
    """Print a job's log from its beginning until it ends; leaving does not end the job."""
    job = _find(line, name)
    items = line.session.stream(
        remote_follow.follow, directory=job.directory, attempt=job.attempt, offset=0
    )
    with open("/dev/null" if sys.platform != "win32" else "nul", "wb") as nowhere:  # noqa: PTH123
        for item in log_lines(iter(items), nowhere):
            if isinstance(item, dict):
                say(f"{job.id}: {_word(checked(line.plan.host.name, item, State))}")
            else:
                host_line(item)


def cancel(line: Line, name: str) -> None:
    """End a job and everything it started; finished units are kept."""
    job = _find(line, name)
    told = line.session.call(remote_follow.cancel, directory=job.directory)
    now = checked(line.plan.host.name, told, State)
    if now.state == "running":
        raise HostError(
            f"{line.plan.host.name}: job {job.id} does not end",
            advice="Restart the host, or end its processes there by hand.",
        )
    say(f"{job.id}: {_word(now)}", style="green")


def _jobs(line: Line) -> list[Listed]:
    found = line.session.call(store.listed, root=line.plan.layout.build_root)
    jobs = []
    for job in found:
        try:
            jobs.append(checked(line.plan.host.name, job, Listed))
        except HostError as error:  # one does not hide the others
            say(error.message, style="yellow")
    return jobs


def _find(line: Line, name: str) -> Listed:
    """The job whose id begins with ``name``, or :class:`ConfigError` with the ones there are."""
    jobs = _jobs(line)
    found = [job for job in jobs if name and job.id.startswith(name)]
    if len(found) == 1:
        return found[0]
    there = ", ".join(job.id for job in (found or jobs)[:8]) or "none"
    what = "more than one job" if found else "no job"
    raise ConfigError(f"{what} {name!r} at {line.plan.host.name}", advice=f"There are: {there}")


def _word(job: State) -> str:
    """The state, with its outcome."""
    if job.result is None:
        return job.state
    if job.result.cancelled:
        return "cancelled"
    code = job.result.result.get("exit")
    return job.state if code is None else safe(f"{job.state}, exit {code}", 40)


def _row(job: Listed) -> tuple[Text, ...]:
    word = _word(job)
    ended = job.result.ended if job.result else time.time()
    known = job.started > 0
    return (
        _text(job.id),
        _text(job.title),
        Text(word, style=_COLOURS.get(re.split(r"\W", word)[0], "")),
        _text(str(job.attempt)),
        Text(time.strftime("%m-%d %H:%M", time.localtime(job.started)) if known else ""),
        Text(units.elapsed(ended - job.started) if known else ""),
        _text(job.way),
    )


def _text(value: str) -> Text:
    """A word of the host's, in one line, never markup."""
    return Text(" ".join(safe(value, 40).split()))
