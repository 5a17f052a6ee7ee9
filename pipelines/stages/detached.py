"""Detached jobs as the controller sees them: start, follow, lose the connection, find it again."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Annotated, Any, Literal, Self, TypeVar, cast

from pydantic import AfterValidator, BaseModel, Field, ValidationError, model_validator

from pipelines.core.console import say
from pipelines.core.errors import (
    AuthError,
    BuildError,
    HostError,
    PipelineError,
    RemoteError,
)
from pipelines.core.hosttext import safe_text
from pipelines.core.observer import check_stop
from pipelines.hosts.live import LiveSession
from pipelines.record.job import JobRecord
from pipelines.record.run import Run
from pipelines.remote import reboot
from pipelines.remote.jobs import follow as remote_follow
from pipelines.remote.jobs import launch, store
from pipelines.remote.rpc import Failure, name_of
from pipelines.session.base import DeadHostError, raise_remote

_log = logging.getLogger(__name__)

#: Attempts that may end without a result within an hour before a person must look.
ATTEMPTS, HOUR = 4, 3600.0
#: Seconds without any contact after which the controller gives up; the job does not.
PATIENCE = 1800.0
#: Lines of a log that the record and the reports keep.
TAIL = 60
_END = 64 << 10  # bytes of a log that its last lines are looked for in
_LONGEST = 1 << 20  # bytes; a host that never ends its line must not fill our memory
_PAUSES = (1.0, 2.0, 5.0, 10.0, 20.0)


@dataclass(frozen=True)
class JobSpec:
    """A job as the host is asked for it."""

    directory: str
    """Its own, on the host."""
    title: str
    function: Callable[..., object]
    """A generator function of ``pipelines/remote``: bytes for the log, its result last."""
    arguments: dict[str, Any]
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    """Variables for the job's own process: sent when it is started, written down nowhere."""

    @property
    def stored(self) -> store.Spec:
        """What is written down on the host."""
        function = name_of(self.function)
        return {"title": self.title, "function": function, "arguments": self.arguments}


@dataclass
class Job:
    """One job of a run, and how much of its log is here."""

    session: LiveSession
    run: Run
    spec: JobSpec
    log: Path
    keep: Callable[[dict[str, Any]], bool] = lambda _: False
    """Whether the result of a job that has ended is taken as it is, instead of running it again."""
    fresh: bool = False
    """Begin another attempt, whatever there is; its log comes after the one that is here."""
    error: type[PipelineError] = BuildError
    """What is raised when the job itself is to blame."""
    patience: float = PATIENCE
    kept: bool = False
    """Whether the result is an earlier command's, taken as it is."""
    attempt: int = 0
    base: int = 0
    """Where the log of this attempt begins in ``log``, in bytes."""
    offset: int = 0
    """How much of this attempt's log is in ``log``, in bytes."""
    lost: list[str] = field(default_factory=list)
    """Why attempts ended without a result."""
    way: str = ""
    """How this attempt was started."""
    failed: dict[str, str] = field(default_factory=dict)
    """Ways to start it that did not work, and why."""
    _recent: list[float] = field(default_factory=list)
    _heard: float = 0.0
    _tries: int = 0
    _counted: int = 0
    """The attempt that was counted as lost last."""
    _beyond: int = 0
    """Attempts up to this one are of no interest any more."""

    @property
    def host(self) -> str:
        """The host's name."""
        return self.session.host.name

    def follow(self) -> Iterator[Any]:
        """Yield the job's log as bytes and, last, its result.

        Raises :class:`HostError` without contact for ``patience`` seconds and for invalid answers,
        ``AuthError`` if the host refuses the sign-in, ``error`` if attempt after attempt is lost: a
        running job continues. ``DeadHostError`` if the host has ended, and the job with it.
        """
        self._heard = time.monotonic()
        prepared = False
        while True:
            try:
                if not prepared:
                    self._prepare()
                    prepared = True
                if not self.attempt:
                    self._begin()
                now = yield from self._read()  # to its end, also of what an attempt lost left
                if now.attempt == self.attempt:
                    why = self._why(now) if now.state in ("ended", "lost") else ""
                    if now.result is not None and not why:
                        self._remember(self.attempt)
                        break
                    if why and self._counted != self.attempt:
                        self._beyond = self.attempt if now.result else self._beyond
                        self._lose(why)
                elif now.attempt > self.attempt:
                    self._take(self.attempt + 1)  # one by one: each has a log of its own
                    continue
                self._begin()
            except RemoteError as error:
                if error.kind != launch.NoRunnerError.__name__:
                    raise
                self._lose(error.message)
            except (OddStateError, DeadHostError):
                raise
            except HostError as error:
                self._wait(error)
        # Not above: what the job's own function raised is its result, not a lost attempt.
        yield self._outcome(now.result)

    def _prepare(self) -> None:
        """Continue what an earlier process left, or start again."""
        now = self._state()
        # What ran out of time is gone on with, whoever asks: its log comes after the first one.
        ended = now.result
        if self.fresh or (ended is not None and ended.result.get("timed_out")):
            self._beyond = now.attempt
            return
        if self._resume(now):
            return
        if ended is not None:
            self.kept = not ended.cancelled and self.keep(ended.result)
            if not self.kept:
                self._beyond = now.attempt
        if self.log.exists():
            os.truncate(self.log, 0)
        # Written before it is begun: whoever takes up what a killed controller had just begun
        # finds the attempt's log also where the attempt itself was lost in the meantime.
        self._remember(now.attempt + (now.state != "running"))

    def _state(self) -> State:
        """The job's state on the host."""
        answer = self.session.call(store.state, directory=self.spec.directory)
        self._heard = time.monotonic()
        return validate_job_state(self.host, answer, State)

    def _read(self) -> Generator[Any, None, State]:
        """Yield the log as it comes; the state of the job once this attempt has ended."""
        items = self.session.stream(
            remote_follow.follow,
            directory=self.spec.directory,
            attempt=self.attempt,
            offset=self.offset,
        )
        for item in items:
            check_stop()
            self._heard, self._tries = time.monotonic(), 0
            if isinstance(item, dict):
                return validate_job_state(self.host, item, State)
            if item:
                self.offset += len(item)
                yield item
        raise HostError(f"{self.host}: the log ended without a state")

    def _wait(self, error: HostError) -> None:
        """Wait a moment before the next try, or raise the error that rules it out."""
        check_stop()
        ended = self.session.host.ended()
        hint = (
            "Finished units are kept; the same command continues with them."
            if ended
            else f"Unless {self.host} is asleep or down (see invoke doctor), the job continues: "
            "the same command finds it again, and invoke jobs shows it."
        )
        if isinstance(error, AuthError):
            raise AuthError(error.message, hint=f"{error.hint} {hint}".strip()) from error
        if time.monotonic() - self._heard > self.patience:
            raise HostError(error.message, hint=hint) from error
        if not self._tries:
            # What has ended is started again by the next call, or found where another has done so.
            lost = f"connection lost; the host may be asleep or down: {error.message}"
            say(f"{ended}, and the job with it" if ended else lost, "yellow")
        time.sleep(_PAUSES[min(self._tries, len(_PAUSES) - 1)])
        self._tries += 1

    def _begin(self) -> None:
        """Have it run, and take up the attempt that does."""
        answer = self.session.call(
            launch.start,
            directory=self.spec.directory,
            spec=self.spec.stored,
            beyond=self._beyond,
            secrets=self.spec.secrets,
        )
        now = validate_job_state(self.host, answer, State)
        if now.attempt <= self._beyond:
            raise HostError(f"{self.host}: the job has not started yet")
        if now.attempt == self.attempt:
            return
        self.failed = {k[:40]: safe_text(str(v), 300) for k, v in now.failed.items()}
        self.way = safe_text(now.way, 40)
        self._take(self.attempt + 1 if self.attempt else now.attempt)
        if self.failed:
            say(f"started {self.way}: {safe_text(str(self.failed), 300)}", style="yellow")

    def _take(self, attempt: int) -> None:
        """Have the log of ``attempt`` come after what is here."""
        size = self.log.stat().st_size if self.log.exists() else 0
        self.attempt, self.base, self.offset = attempt, size, 0
        _log.info("%s: following attempt %d of %s", self.host, attempt, self.spec.directory)
        self._remember(attempt)

    def _remember(self, attempt: int) -> None:
        """Write down what a later process needs to go on from ``attempt``."""
        self.run.put_job(
            self.log.stem,
            JobRecord(
                host=self.host,
                directory=self.spec.directory,
                attempt=attempt,
                base=self.base,
                offset=self.offset,
                lost=tuple(self.lost),
                way=self.way,
                failed=self.failed,
            ),
        )

    def _resume(self, now: State) -> bool:
        """Take up what a process before this one has left in the run; whether there was any."""
        left = self.run.job(self.log.stem)
        size = self.log.stat().st_size if self.log.exists() else 0
        if left is None or left.directory != self.spec.directory or now.state == "absent":
            return False
        if left.attempt > now.attempt or left.base > size:
            return False
        self.attempt, self.base, self.lost = left.attempt, left.base, list(left.lost)
        self.way, self.failed = left.way, left.failed
        self.offset = size - self.base
        if self.offset and self._digest_there() != self._digest_here():
            os.truncate(self.log, self.base)
            self.offset = 0
        _log.info("%s: following %s again", self.host, self.spec.directory)
        say(f"reconnected: attempt {self.attempt}, {self.offset:,} bytes of its log received")
        return True

    def _digest_there(self) -> str:
        part = {"attempt": self.attempt, "size": self.offset}
        return str(self.session.call(store.prefix_digest, directory=self.spec.directory, **part))

    def _digest_here(self) -> str:
        with self.log.open("rb") as file:
            file.seek(self.base)
            return hashlib.file_digest(file, "sha256").hexdigest()

    def _why(self, now: State) -> str:
        """Why it says nothing of the job: no result, or a failure and a restart since."""
        left = now.result.result if now.result and not now.result.cancelled else {}
        failed = (left.get("error") or left.get("exit")) and not left.get("timed_out")
        if now.result and not (failed and now.boot):
            return ""
        if now.boot != self.session.call(reboot.boot_identity):
            return "the host was restarted"
        return "" if now.result else safe_text(now.why, 200) or "its process was killed"

    def _lose(self, why: str) -> None:
        """Count an attempt that left nothing; too many are an error."""
        now = time.monotonic()
        self._counted = self.attempt
        _log.info("%s: attempt %d of %s was lost", self.host, self.attempt, self.spec.directory)
        self.lost.append(safe_text(why, 500))
        self._recent = [*(at for at in self._recent if now - at < HOUR), now]
        self._remember(self.attempt)
        if len(self._recent) >= ATTEMPTS:
            raise self.error(
                f"{self.host} lost the job {len(self._recent)} times within an hour: "
                f"{'; '.join(self.lost[-ATTEMPTS:])}",
                hint="It is usually out of memory: try --jobs 1. Finished units are kept.",
            )
        say(f"{why}: continuing with the finished units", style="yellow")

    def _outcome(self, ended: _Result) -> dict[str, Any]:
        """What the job's function left as its result; raises what it raised, as a call would."""
        if ended.cancelled:
            raise self.error(
                f"the job was cancelled on {self.host}",
                hint="Finished units are kept; the same command continues with them.",
            )
        if error := ended.result.get("error"):
            raise_remote(self.host, _parse_job_failure(self.host, error))
        return ended.result


class _Raised(BaseModel):
    """What a job's function raised, as far as it is relied on."""

    kind: str
    message: str
    trace: str = ""
    errno: int | None = None
    errno_name: str = ""
    winerror: int | None = None
    path: str | None = None


def _parse_job_failure(host: str, data: object) -> Failure:
    try:
        one = _Raised.model_validate(data)
    except ValidationError:
        raise OddStateError(
            f"{host} sent an invalid error for a job",
            hint="Remove the job's directory there; to see where it is: invoke jobs",
        ) from None
    return cast("Failure", one.model_dump())


class _Result(BaseModel):
    attempt: int
    cancelled: bool
    ended: Annotated[float, Field(ge=0, le=4e9)]
    result: dict[str, Any]


class State(BaseModel):
    """What a host says of a job, as far as it is relied on."""

    state: Literal["absent", "running", "ended", "lost"]
    attempt: Annotated[int, Field(ge=0, le=10**6)]
    started: Annotated[float, Field(ge=0, le=4e9)] = 0.0
    """Seconds since the epoch."""
    boot: str = ""
    """The host's boot identity when this attempt began."""
    why: str = ""
    title: str = ""
    way: str = ""
    failed: dict[str, Any] = Field(default={})
    result: _Result | None = None
    """There when, and only when, it has ended."""

    @model_validator(mode="after")
    def _ended_with_something(self) -> Self:
        if (self.state == "ended") != (self.result is not None):
            raise ValueError(
                f"it is {self.state} but has {'no' if self.result is None else 'a'} result"
            )
        return self


class Listed(State):
    """A job among those of a host."""

    id: Annotated[str, AfterValidator(lambda said: safe_text(said, 40))]
    directory: str


StateT = TypeVar("StateT", bound=State)


class OddStateError(HostError):
    """What a host says of a job makes no sense; asking again would not help."""


def validate_job_state(host: str, data: Any, form: type[StateT]) -> StateT:
    """``data`` as a job's state; :class:`OddStateError` if it has not the form of one."""
    try:
        return form.model_validate(data)
    except ValidationError as error:
        raise OddStateError(
            f"{host} sent an invalid job state: {safe_text(str(error.errors()[0]['msg']), 200)}",
            hint="Remove the job's directory there; to see where it is: invoke jobs",
        ) from None


def decode_log_lines(items: Iterator[Any], log: IO[bytes]) -> Iterator[Any]:
    """Each line as text, its end cut off; what is no bytes (the result) passes as it is."""
    rest = b""
    for item in items:
        if not isinstance(item, bytes):
            if rest:
                yield rest.decode("utf-8", "replace")
            yield item
            return
        log.write(item)
        log.flush()
        *whole, rest = (rest + item).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace").rstrip("\r")
        if len(rest) > _LONGEST:
            yield rest.decode("utf-8", "replace")
            rest = b""


def read_log_tail(path: Path, count: int) -> list[str]:
    """The last lines of a log, made harmless."""
    with path.open("rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - _END))
        lines = log.read().decode("utf-8", "replace").splitlines()
    return [safe_text(line, 500) for line in lines[-count:]]
