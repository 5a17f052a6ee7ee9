"""A host that answers for its detached jobs from a script, and a clock that never waits."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from plans import Lab

from pipelines.core.errors import HostError, PipelineError, RemoteError
from pipelines.hosts.live import LiveSession
from pipelines.record.job import JobRecord
from pipelines.record.results import RunFacts
from pipelines.record.run import Run
from pipelines.remote import process
from pipelines.remote.rpc import name_of
from pipelines.stages.detached import Job, JobSpec

ENDED = {"exit": 0, "seconds": 1.0}
LINE = b"a line\n"


class Script:
    """A session: what each attempt does, one after the other; before them, what was there."""

    def __init__(self, *attempts: Any, there: str = "absent", attempt: int = 0) -> None:
        self.attempts = list(attempts)
        self.attempt = attempt
        self.there = there
        self.logs: dict[int, bytes] = {}
        self.boot = "boot"
        self.asked: list[str] = []
        self.given: list[dict[str, Any]] = []
        # What a test may put something else in place of:
        self.more: Callable[[str], dict[str, Any]] = lambda _: {}
        self.begin: Callable[[int], dict[str, Any]] = self.start
        self.read: Callable[..., Iterator[Any]] = self.follow

    def call(self, function: Callable[..., object], /, **given: Any) -> Any:
        name = name_of(function)
        self.asked.append(name)
        self.given.append(given)
        if name == "jobs.store.state":
            return self.state("lost" if self.attempt and self.there == "absent" else self.there)
        if name == "jobs.launch.start":
            return self.begin(given["beyond"])
        if name == "jobs.store.prefix_digest":
            log = self.logs.get(given["attempt"], b"")
            return hashlib.sha256(log[: given["size"]]).hexdigest()
        assert name == "reboot.boot_identity", name
        return self.boot

    def stream(self, function: Callable[..., object], /, **given: Any) -> Iterator[Any]:
        self.asked.append(name_of(function))
        return self.read(given["attempt"], given["offset"])

    def start(self, beyond: int) -> dict[str, Any]:
        if self.there in ("running", "ended") and self.attempt > beyond:
            return self.state(self.there)
        self.attempt += 1
        self.there = "absent"
        todo = self.attempts[0]
        if isinstance(todo, RemoteError):
            self.attempts.pop(0)
            raise todo
        return self.state("running")

    def follow(self, attempt: int, offset: int) -> Iterator[Any]:
        todo = self.attempts.pop(0)
        yield self.logs.setdefault(attempt, LINE)[offset:]
        if isinstance(todo, PipelineError):
            if isinstance(todo, HostError):
                self.attempts.insert(0, "ended")  # it went on there
            raise todo
        if todo is not None:
            yield self.state(todo)

    def state(self, word: str) -> dict[str, Any]:
        ended = {"attempt": self.attempt, "cancelled": False, "ended": 2.0, "result": ENDED}
        return {
            "state": word,
            "attempt": self.attempt,
            "boot": "boot",
            "result": ended if word == "ended" else None,
            **self.more(word),
        }

    def close(self) -> None:
        """Nothing to leave."""


class Clock:
    """Advances on request, or by ``step`` seconds each time that it is looked at."""

    def __init__(self) -> None:
        self.now = self.step = 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        self.now += self.step
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def job(tmp_path: Path, script: Script, **changes: Any) -> Job:
    run = Run.create(tmp_path / "out", RunFacts())
    spec = JobSpec("/j", "t", process.stream, {"command": ["x"]})
    return Job(LiveSession(Lab(script)), run, spec, run.path / "build.log", **changes)


def finish(made: Job) -> Any:
    """Follow it to its end, as the stages do: its result."""
    with made.log.open("ab") as log:
        for item in made.follow():
            if isinstance(item, dict):
                return item
            log.write(item)
            log.flush()
    raise AssertionError("no result")


def kept(made: Job) -> JobRecord:
    found = made.run.job("build")
    assert found is not None
    return found
