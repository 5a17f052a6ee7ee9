"""Sessions with this machine: with a Python of its own, and with none at all."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from wheels import MACHINE

from pipelines.core.errors import PipelineError
from pipelines.core.files import sha256_of
from pipelines.remote import facts as remote_facts
from pipelines.remote import rpc
from pipelines.remote.jobs import follow, launch, store
from pipelines.session.base import Given, Item, Progress, Result, Session
from pipelines.session.bootstrap import bootstrap_argv
from pipelines.session.channel import open_session
from pipelines.session.transports.popen import PopenStream

Function = Callable[..., Any]


def connect() -> Session:
    return open_session(PopenStream(bootstrap_argv(sys.executable)), name="here")


class Here:
    """A session with this very process: functions are run at once, files are copied.

    ``answers``: what a function says instead of being run, or what is run instead of it. A detached
    job runs while it is followed; ``job`` is what runs instead of the function that was asked for.
    """

    def __init__(
        self, job: Function | None = None, answers: Mapping[Function, Any] | None = None
    ) -> None:
        self.job = job
        self.answers: dict[Function, Any] = {
            remote_facts.facts: self._facts,
            store.state: self._state,
            launch.start: self._start,
            follow.follow: self._follow,
            **(answers or {}),
        }
        self.asked: list[tuple[Function, dict[str, Any]]] = []
        self.sent: list[str] = []
        self.jobs: dict[str, dict[str, Any]] = {}
        self.closed = 0

    def _facts(self, **arguments: Any) -> dict[str, Any]:
        return {**remote_facts.facts(**arguments), "machine": MACHINE}

    def times(self, function: Function) -> int:
        """How often the function was asked for."""
        return sum(asked is function for asked, _ in self.asked)

    def call(
        self, function: Callable[Given, Result], /, *args: Given.args, **arguments: Given.kwargs
    ) -> Result:
        self.asked.append((function, dict(arguments)))
        answer = self.answers.get(function, function)
        result: Result = answer(**arguments) if callable(answer) else answer
        return result

    def stream(
        self,
        function: Callable[Given, Iterator[Item]],
        /,
        *args: Given.args,
        **arguments: Given.kwargs,
    ) -> Iterator[Item]:
        return self.call(function, *args, **arguments)

    def put(self, source: Path, target: str, *, progress: Progress | None = None) -> str:
        self.sent.append(target)
        shutil.copyfile(source, target)
        return sha256_of(source)

    def get(self, source: str, target: Path, *, progress: Progress | None = None) -> str:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        return sha256_of(target)

    def close(self) -> None:
        self.closed += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- detached jobs -----------------------------------------------------------------------------

    def _state(self, directory: str) -> dict[str, Any]:
        return dict(self.jobs.get(directory, {"state": "absent", "attempt": 0}))

    def _start(
        self, directory: str, spec: dict[str, Any], beyond: int, secrets: dict[str, str]
    ) -> dict[str, Any]:
        now = self._state(directory)
        if now["state"] != "running" and now["attempt"] <= beyond:
            given = {"spec": spec, "secrets": secrets, "way": "here"}
            self.jobs[directory] = {**given, "state": "running", "attempt": now["attempt"] + 1}
        return self._state(directory)

    def _follow(self, directory: str, attempt: int, offset: int) -> Iterator[Any]:
        job = self.jobs[directory]
        if job["state"] == "running":
            result: Mapping[str, Any] = {}
            function: Function = self.job or rpc.resolve(job["spec"]["function"])
            try:
                for item in function(**job["spec"]["arguments"]):
                    if isinstance(item, bytes):
                        yield item
                    else:
                        result = item
            except PipelineError:  # of the connection: the job goes on
                raise
            except Exception as error:
                result = {"error": rpc.describe(error)}
            ended = {"attempt": attempt, "cancelled": False, "ended": 2.0, "result": result}
            job |= {"state": "ended", "result": ended}
        yield self._state(directory)
