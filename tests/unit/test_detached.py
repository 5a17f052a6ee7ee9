"""A detached job as the controller sees it, against a host that answers from a script."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from plans import Lab

from pipelines.errors import AuthError, BuildError, HostError, PipelineError, RemoteError
from pipelines.hosts.live import LiveSession
from pipelines.record import JobRecord, RunFacts
from pipelines.remote import process
from pipelines.remote.jobs import launch
from pipelines.remote.rpc import name_of
from pipelines.run import Run
from pipelines.stages import detached
from pipelines.stages.detached import ATTEMPTS, Job, JobSpec

ENDED = {"exit": 0, "seconds": 1.0}


class Script:
    """A session: what each attempt does, one after the other."""

    def __init__(self, *attempts: Any) -> None:
        self.attempts = list(attempts)
        self.attempt = 0
        self.asked: list[str] = []
        self.result: Any = ENDED

    def call(self, function: Callable[..., object], /, **given: Any) -> Any:
        name = name_of(function)
        self.asked.append(name)
        if name == "jobs.store.state":
            return self.state("absent" if not self.attempt else "lost")
        if name == "jobs.launch.start":
            self.attempt += 1
            todo = self.attempts[0]
            if isinstance(todo, RemoteError):
                self.attempts.pop(0)
                raise todo
            return self.state("running")
        assert name == "reboot.boot_identity", name
        return "boot"

    def stream(self, function: Callable[..., object], /, **given: Any) -> Iterator[Any]:
        self.asked.append(name_of(function))
        todo = self.attempts.pop(0)
        yield b"a line\n"
        if isinstance(todo, PipelineError):
            if isinstance(todo, HostError):
                self.attempts.insert(0, "ended")  # it went on there
            raise todo
        yield self.state(todo)

    def state(self, word: str) -> dict[str, Any]:
        ended = {"attempt": self.attempt, "cancelled": False, "ended": 2.0, "result": self.result}
        return {
            "state": word,
            "attempt": self.attempt,
            "boot": "boot",
            "result": ended if word == "ended" else None,
        }

    def close(self) -> None:
        """Nothing to leave."""


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detached, "_PAUSES", (0.0,))


def job(tmp_path: Path, script: Script) -> Job:
    run = Run.create(tmp_path / "out", RunFacts())
    spec = JobSpec("/j", "t", process.stream, {"command": ["x"]})
    return Job(LiveSession(Lab(script)), run, spec, run.path / "build.log")


def finish(made: Job) -> Any:
    items = list(made.follow())
    return items[-1]


def test_a_lost_attempt_is_gone_on_with(tmp_path: Path) -> None:
    made = job(tmp_path, Script("lost", "ended"))
    assert finish(made) == ENDED
    assert (made.attempt, made.lost) == (2, ["its process was ended"])
    kept = made.run.job("build")
    assert isinstance(kept, JobRecord)
    assert (kept.attempt, kept.host, kept.lost) == (2, "lab", ("its process was ended",))


def test_attempts_that_may_be_lost_are_counted(tmp_path: Path) -> None:
    made = job(tmp_path, Script(*["lost"] * (ATTEMPTS - 1), "ended"))
    assert finish(made) == ENDED
    made = job(tmp_path, Script(*["lost"] * ATTEMPTS, "ended"))
    with pytest.raises(BuildError, match=f"lost the job {ATTEMPTS} times"):
        finish(made)
    assert made.attempt == ATTEMPTS


def test_a_runner_that_does_not_come_up_is_a_lost_attempt(tmp_path: Path) -> None:
    missing = RemoteError("no runner", kind=launch.NoRunnerError.__name__)
    made = job(tmp_path, Script(missing, "ended"))
    assert finish(made) == ENDED
    assert made.lost == ["no runner"]


def test_an_error_of_another_kind_is_told_at_once(tmp_path: Path) -> None:
    made = job(tmp_path, Script(RemoteError("broken", kind="ValueError"), "ended"))
    with pytest.raises(RemoteError, match="broken"):
        finish(made)


def test_a_connection_that_breaks_is_waited_for(tmp_path: Path) -> None:
    script = Script(HostError("reset by peer"), "ended")
    assert finish(job(tmp_path, script)) == ENDED
    assert script.attempt == 1, "the job went on meanwhile: it was not started again"


def test_a_refused_sign_in_is_never_waited_out(tmp_path: Path) -> None:
    """Each further try brings the account nearer to being locked."""
    script = Script(AuthError("refused", advice="Correct the password."), "ended")
    with pytest.raises(AuthError, match="refused") as caught:
        finish(job(tmp_path, script))
    assert caught.value.advice.startswith("Correct the password. The job goes on at lab")
    assert script.asked.count("jobs.follow.follow") == 1


def test_a_host_without_a_word_for_too_long(tmp_path: Path) -> None:
    made = job(tmp_path, Script(HostError("gone"), "ended"))
    made.patience = -1.0
    with pytest.raises(HostError, match="gone") as caught:
        finish(made)
    assert "invoke jobs shows it" in caught.value.advice


@pytest.mark.parametrize("error", ["x", {"kind": "ValueError"}, {"kind": 1, "message": "m"}])
def test_an_error_that_is_none_ends_it_with_a_message(tmp_path: Path, error: object) -> None:
    script = Script("ended")
    script.result = {"error": error}
    with pytest.raises(HostError, match="lab sent what is no error of a job"):
        finish(job(tmp_path, script))


def test_a_state_that_is_none_is_not_asked_for_again_and_again(tmp_path: Path) -> None:
    """It is no lost connection, though the host is to blame: the host answers at once."""
    script = Script("ended")
    script.result = None  # a job that has ended with nothing
    with pytest.raises(HostError, match="no state of a job"):
        finish(job(tmp_path, script))
    assert script.asked.count("jobs.follow.follow") == 1
