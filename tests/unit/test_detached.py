"""A detached job as the controller sees it, against a host that answers from a script."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jobscripts import ENDED, LINE, Clock, Script, finish, job, kept
from plans import Lab

from pipelines.core.errors import AuthError, BuildError, HostError, RemoteError
from pipelines.record.job import JobRecord
from pipelines.remote import process
from pipelines.remote.jobs import launch
from pipelines.session.base import DeadHostError
from pipelines.stages import detached
from pipelines.stages.detached import ATTEMPTS, HOUR, Job, JobSpec


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(detached, "time", made)
    return made


# -- attempts that are lost ------------------------------------------------------------------------


def test_a_lost_attempt_is_gone_on_with(tmp_path: Path) -> None:
    made = job(tmp_path, Script("lost", "ended"))
    assert finish(made) == ENDED
    assert (made.attempt, made.lost) == (2, ["its process was killed"])
    assert kept(made) == JobRecord(
        host="lab",
        directory="/j",
        attempt=2,
        base=len(LINE),
        offset=len(LINE),
        lost=("its process was killed",),
    )
    assert made.log.read_bytes() == LINE + LINE


def test_the_log_of_what_was_lost_before_it_was_followed_is_here(tmp_path: Path) -> None:
    """A controller that is killed when an attempt has just begun has read nothing of it."""

    class Killed(BaseException):
        pass

    script = Script()
    made = job(tmp_path, script)

    def killed(beyond: int) -> dict[str, Any]:
        begun = script.start(beyond)
        script.logs[begun["attempt"]] = b"what the first one said\n"
        raise Killed

    script.attempts = ["lost", "ended"]
    script.begin = killed
    with pytest.raises(Killed):
        finish(made)
    script.begin = script.start
    again = Job(made.session, made.run, made.spec, made.log)
    assert finish(again) == ENDED
    assert again.log.read_bytes() == b"what the first one said\n" + LINE
    assert again.lost == ["its process was killed"]


def test_each_of_several_attempts_is_read(tmp_path: Path) -> None:
    """Whoever follows may have been away while others began one after the other."""
    script = Script("lost", "lost", "ended")
    made = job(tmp_path, script)

    def twice(beyond: int) -> dict[str, Any]:
        first = script.start(beyond)
        if first["attempt"] == 1:
            script.logs[1] = b"of the first\n"
            return first
        script.logs[2], script.logs[3] = b"of the second\n", b"of the third\n"
        return script.start(beyond)

    script.begin = twice
    assert finish(made) == ENDED
    assert made.log.read_bytes() == b"of the first\nof the second\nof the third\n"


@pytest.mark.parametrize(
    ("boot", "more", "told"),
    [
        ("another", {}, "the host was restarted"),
        ("boot", {"why": "one of its programs was killed"}, "one of its programs was killed"),
    ],
)
def test_why_an_attempt_was_lost_is_told(
    tmp_path: Path, boot: str, more: dict[str, str], told: str
) -> None:
    script = Script("lost", "ended")
    script.boot = boot
    script.more = lambda word: more if word == "lost" else {}
    made = job(tmp_path, script)
    assert finish(made) == ENDED
    assert made.lost == [told]


@pytest.mark.parametrize("left", [{"exit": 1}, {"error": {"kind": "OSError", "message": "no"}}])
def test_a_failure_before_a_restart_says_nothing(tmp_path: Path, left: dict[str, Any]) -> None:
    """Programs end before the runner does, and before anybody has read what it makes of that."""
    script = Script("ended", "ended")
    script.boot = "another"
    failed = {"attempt": 1, "cancelled": False, "ended": 2.0, "result": left}

    def more(word: str) -> dict[str, Any]:
        if script.attempt > 1:
            return {"boot": "another"}
        return {"result": failed} if word == "ended" else {}

    def start(beyond: int) -> dict[str, Any]:
        """One that has ended is left alone, unless its attempt is ``beyond`` or earlier."""
        return script.state("ended") if script.attempt > beyond else script.start(beyond)

    script.more, script.begin = more, start
    made = job(tmp_path, script)
    assert finish(made) == ENDED
    assert (made.attempt, made.lost) == (2, ["the host was restarted"])


@pytest.mark.parametrize(
    ("boot", "left"),
    [("boot", {"exit": 1}), ("another", ENDED), ("another", {"exit": 1, "timed_out": True})],
)
def test_any_other_result_counts(tmp_path: Path, boot: str, left: dict[str, Any]) -> None:
    script = Script("ended")
    script.boot = boot
    result = {"attempt": 1, "cancelled": False, "ended": 2.0, "result": left}
    script.more = lambda word: {"result": result} if word == "ended" else {}
    made = job(tmp_path, script)
    assert finish(made) == left
    assert made.lost == []


def test_attempts_that_may_be_lost_are_counted(tmp_path: Path) -> None:
    made = job(tmp_path, Script(*["lost"] * (ATTEMPTS - 1), "ended"))
    assert finish(made) == ENDED
    made = job(tmp_path, Script(*["lost"] * ATTEMPTS, "ended"))
    with pytest.raises(BuildError, match=f"lost the job {ATTEMPTS} times"):
        finish(made)
    assert made.attempt == ATTEMPTS
    assert len(kept(made).lost) == ATTEMPTS


def test_what_was_lost_hours_ago_does_not_count(tmp_path: Path, clock: Clock) -> None:
    clock.step = HOUR
    made = job(tmp_path, Script(*["lost"] * (ATTEMPTS + 2), "ended"))
    assert finish(made) == ENDED


def test_an_attempt_is_lost_once(tmp_path: Path) -> None:
    """The host may say so again before the next one has begun."""
    script = Script("lost", "lost", "ended")

    def late(beyond: int) -> dict[str, Any]:
        second = script.asked.count("jobs.launch.start") == 2
        return script.state("running") if second else script.start(beyond)

    script.begin = late
    made = job(tmp_path, script)
    assert finish(made) == ENDED
    assert made.lost == ["its process was killed"]
    assert made.attempt == 2


def test_a_runner_that_does_not_come_up_is_a_lost_attempt(tmp_path: Path) -> None:
    missing = RemoteError("no runner", kind=launch.NoRunnerError.__name__)
    made = job(tmp_path, Script(missing, "ended"))
    assert finish(made) == ENDED
    assert made.lost == ["no runner"]


def test_ways_that_did_not_work_are_remembered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = Script("ended")
    script.more = lambda _: {"way": "shell", "failed": {"task": "not allowed"}}
    made = job(tmp_path, script)
    finish(made)
    assert (kept(made).way, kept(made).failed) == ("shell", {"task": "not allowed"})
    assert "started shell: {'task': 'not allowed'}" in capsys.readouterr().out


def test_an_error_of_another_kind_is_told_at_once(tmp_path: Path) -> None:
    made = job(tmp_path, Script(RemoteError("broken", kind="ValueError"), "ended"))
    with pytest.raises(RemoteError, match="broken"):
        finish(made)


# -- connections that are lost ---------------------------------------------------------------------


def test_a_connection_that_breaks_is_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = Script(HostError("reset by peer"), "ended")
    made = job(tmp_path, script)
    assert finish(made) == ENDED
    assert script.attempt == 1, "the job went on meanwhile: it was not started again"
    said = capsys.readouterr().out
    assert "asleep" in said, "nobody can tell whether the job goes on"
    assert script.asked.count("jobs.store.state") == 1
    assert made.log.read_bytes() == LINE, "what was here was not sent again"


def test_a_log_that_ends_without_a_word_is_a_lost_connection(tmp_path: Path) -> None:
    assert finish(job(tmp_path, Script(None, "ended"))) == ENDED


def test_each_try_waits_longer_until_the_host_is_heard(tmp_path: Path, clock: Clock) -> None:
    script = Script("ended")
    signs = iter([False, False, True])

    def breaking(attempt: int, offset: int) -> Iterator[Any]:
        for sign in signs:
            if sign:
                yield b""
            raise HostError("reset by peer")
        yield from script.follow(attempt, offset)

    script.read = breaking
    finish(job(tmp_path, script))
    assert clock.slept == [1.0, 2.0, 1.0]


def test_a_refused_sign_in_is_never_waited_out(tmp_path: Path) -> None:
    """Each further try brings the account nearer to being locked."""
    script = Script(AuthError("refused", hint="Correct the password."), "ended")
    with pytest.raises(AuthError, match="refused") as caught:
        finish(job(tmp_path, script))
    assert caught.value.hint.startswith("Correct the password. Unless lab is asleep or down")
    assert script.asked.count("jobs.follow.follow") == 1


def test_a_host_without_a_word_for_too_long(tmp_path: Path, clock: Clock) -> None:
    """Each line that comes is a word."""
    script = Script("ended")

    def silent(*_: int) -> Iterator[Any]:
        clock.now += 500.0
        if clock.now < 1800.0:
            yield b"x"
        raise HostError("gone")

    script.read = silent
    with pytest.raises(HostError, match="gone") as caught:
        finish(job(tmp_path, script))
    assert "invoke jobs shows it" in caught.value.hint
    assert clock.now == 3500.0, "1800 s after the last word, which came at 1500 s"


def test_a_host_that_has_ended_is_no_lost_connection(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], clock: Clock
) -> None:
    """The job ended with it: another attempt begins on the host that was started again."""
    script = Script("ended")
    made = job(tmp_path, script)
    host = made.session.host
    assert isinstance(host, Lab)

    def dies(attempt: int, offset: int) -> Iterator[Any]:
        host.gone, script.read = "the sandbox 's' has ended", again
        raise HostError("reset by peer")
        yield b""

    def again(attempt: int, offset: int) -> Iterator[Any]:
        host.gone, script.boot, script.read = "", "another", script.follow
        yield script.state("lost")

    script.read = dies
    assert finish(made) == ENDED
    assert (made.attempt, made.lost) == (2, ["the host was restarted"])
    said = capsys.readouterr().out
    assert "the sandbox 's' has ended, and the job with it" in said
    assert "goes on there" not in said
    assert sum(clock.slept) <= 1.0


def test_a_host_that_does_not_come_back_is_not_waited_for(tmp_path: Path, clock: Clock) -> None:
    script = Script("ended")

    def dead(*_: int) -> Iterator[Any]:
        assert script.asked.count("jobs.follow.follow") == 1, "asked again"
        raise DeadHostError("ended 4 times", hint="Try --jobs 1.")
        yield b""

    script.read = dead
    with pytest.raises(DeadHostError, match="ended 4 times") as caught:
        finish(job(tmp_path, script))
    assert (caught.value.exit_code, caught.value.hint) == (5, "Try --jobs 1.")
    assert clock.slept == []


def test_nothing_goes_on_at_a_host_that_has_ended(tmp_path: Path, clock: Clock) -> None:
    """Also when patience is over, or somebody refuses the sign-in."""
    for error, told in ((HostError("gone"), "gone"), (AuthError("refused"), "refused")):
        script = Script("ended")

        def silent(*_: int, error: HostError = error) -> Iterator[Any]:
            clock.now += 2000.0
            raise error
            yield b""

        script.read = silent
        made = job(tmp_path, script)
        host = made.session.host
        assert isinstance(host, Lab)
        host.gone = "it has ended"
        with pytest.raises(HostError, match=told) as caught:
            finish(made)
        assert caught.value.hint.startswith("Finished units are kept")


@pytest.mark.parametrize(
    "lie",
    [
        {"state": "[bold]"},
        {"attempt": -1},
        {"state": "ended", "result": None},
        {"state": "running", "result": {"attempt": 1, "cancelled": False, "ended": 2.0}},
        {"result": {"ended": "x"}},
        {"failed": 5},
    ],
)
@pytest.mark.parametrize("asked", ["jobs.store.state", "jobs.launch.start", "jobs.follow.follow"])
def test_nonsense_is_told_at_once(
    tmp_path: Path, lie: dict[str, Any], asked: str, clock: Clock
) -> None:
    """It would be the same however often the host is asked."""
    script = Script("ended")
    script.more = lambda _: lie if script.asked[-1] == asked else {}
    with pytest.raises(HostError, match="invalid job state") as caught:
        finish(job(tmp_path, script))
    assert "Remove the job's directory" in caught.value.hint
    assert clock.slept == []


# -- results ---------------------------------------------------------------------------------------


def result_of(tmp_path: Path, **changes: Any) -> Any:
    script = Script("ended")
    told = {"attempt": 1, "cancelled": False, "ended": 2.0, "result": ENDED} | changes
    script.more = lambda word: {"result": told} if word == "ended" else {}
    return finish(job(tmp_path, script))


def test_a_job_that_was_cancelled_is_no_result(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="cancelled on lab"):
        result_of(tmp_path, cancelled=True)


def test_what_its_function_raised_is_raised(tmp_path: Path) -> None:
    error = {"kind": "RuntimeError", "message": "a broken toolkit", "trace": ""}
    with pytest.raises(RemoteError, match="lab: RuntimeError: a broken toolkit"):
        result_of(tmp_path, result={"error": error})


@pytest.mark.parametrize("error", ["x", {"kind": "ValueError"}, {"kind": 1, "message": "m"}])
def test_an_error_that_is_none_ends_it_with_a_message(tmp_path: Path, error: object) -> None:
    with pytest.raises(HostError, match="lab sent an invalid error for a job"):
        result_of(tmp_path, result={"error": error})


def test_secrets_are_told_to_the_one_who_starts_it_alone(tmp_path: Path) -> None:
    script = Script("ended")
    made = job(tmp_path, script)
    made.spec = JobSpec("/j", "t", process.stream, {"command": ["x"]}, {"PASSWORD": "horse"})
    finish(made)
    (started,) = [given for given in script.given if "spec" in given]
    assert started["secrets"] == {"PASSWORD": "horse"}
    assert started["spec"] == {
        "title": "t",
        "function": "process.stream",
        "arguments": {"command": ["x"]},
    }
    assert "horse" not in repr(made.spec)
