"""Restarts a host and waits until it is back, however long it refuses connections.

A response alone proves nothing: Windows keeps responding for a while after the request, and while
it configures updates, after which it may restart again. Its boot identity must have changed, its
sign-in screen must be back if it was there before, and it must respond twice in a row.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_before_delay
from tenacity.wait import wait_base, wait_exponential, wait_random

from pipelines.core.errors import AuthError, HostError, RemoteError
from pipelines.core.hosttext import safe_text
from pipelines.core.logs import log_duration
from pipelines.remote import reboot
from pipelines.session.base import Item, Session

_log = logging.getLogger(__name__)

#: Seconds between attempts: 1, 2, 4, 8, 12, 12 ... plus up to one more, so that many controllers
#: do not retry at the same moment.
PAUSES: wait_base = wait_exponential(max=12) + wait_random(0, 1)
#: Seconds after a refused sign-in, doubled each time. A host of a domain refuses until it has found
#: its domain (https://github.com/ansible/ansible/issues/45912), and many refusals lock an account.
REFUSED = 15.0
#: Seconds between the two responses that prove it is back.
SETTLE = 0.5

#: Seconds from the announcement, visible to all signed-in users, to the restart.
NOTICE = 120

_SCHEDULED, _UNDER_WAY, _DENIED = 1190, 1115, 5


class _SameBootError(HostError):
    """The host responds, but has been running since before the request."""


def reboot_and_wait(
    connect: Callable[[], Session],
    session: Session,
    *,
    timeout: float = 1800.0,
    reason: str = "restart requested by the build pipeline",
    notice: int = NOTICE,
    command: Sequence[str] = (),
    identity: str = "",
    pauses: wait_base = PAUSES,
    progress: Callable[[str], object] | None = None,
) -> Session:
    """Restart the host of ``session`` and return a new session, made by ``connect``.

    ``session`` is closed. ``progress`` receives, for example, "rebooting, 40 s". The host goes down
    ``notice`` seconds after announcing it; if a restart is already scheduled there, that one is
    waited for instead. No attempt starts more than ``timeout`` seconds after the scheduled restart
    (a restart that installs updates takes long: Ansible's win_reboot has an example with 3600),
    each may take as long as ``connect`` does. ``command`` and ``identity`` (a file) replace
    shutdown.exe and the kernel's boot time in tests. Raises :class:`HostError` if the host refuses,
    does not go down or does not come back, and ``AuthError`` if it keeps refusing the sign-in.
    """
    with contextlib.closing(session):
        before = session.call(reboot.boot_identity, path=identity)
        screen = session.call(reboot.shows_sign_in)
        _request_restart(session, reason, notice, list(command))
    with log_duration(_log, logging.INFO, "restart"):
        return _Wait(connect, before, identity, screen, progress).until(notice + timeout, pauses)


def _first_answer(answers: Iterator[Item]) -> Item:
    """The first item of a stream. Not a call, which would reconnect."""
    for answer in answers:
        return answer
    raise HostError("no answer to the restart request")


def _request_restart(session: Session, reason: str, notice: int, command: list[str]) -> None:
    """Start the restart; a connection that breaks meanwhile is a good sign, not an error."""
    try:
        done = _first_answer(
            session.stream(reboot.reboot, command=command, delay=notice, reason=reason)
        )
    except RemoteError as error:
        raise HostError(
            f"the host cannot be restarted: {error.message}",
            hint="Restart it by hand, then run the same command again.",
        ) from error
    except AuthError:
        raise
    except HostError:
        return
    # A restart scheduled by others is not cancelled: it serves too, unless it is far in the future.
    if done["code"] in (0, _UNDER_WAY, _SCHEDULED):
        return
    hint = "Restart it by hand, then run the same command again."
    if done["code"] == _DENIED:
        hint = "The user that signs in needs the right to shut down the system, also remotely."
    message = safe_text(str(done["message"]), 300) or "no message"
    raise HostError(f"the host refused to restart: exit code {done['code']}: {message}", hint=hint)


class _Wait:
    """Connects until the host is back, each time with a new session."""

    def __init__(
        self,
        connect: Callable[[], Session],
        before: str,
        identity: str,
        screen: bool,
        progress: Callable[[str], object] | None,
    ) -> None:
        self.connect = connect
        self.before = before
        self.identity = identity
        self.screen = screen
        self.progress = progress
        self.began = time.monotonic()
        self.refused = 0

    def until(self, timeout: float, pauses: wait_base) -> Session:
        knocks = Retrying(
            stop=stop_before_delay(timeout),
            wait=lambda state: self._pause(state) or pauses(state),
            retry=retry_if_exception(self._again),
            before_sleep=self._report,
            reraise=True,
        )
        try:
            return knocks(self._try_connect)
        except AuthError:
            raise
        except _SameBootError as error:
            raise HostError(
                f"the host responds, but has not restarted within {timeout:g} s",
                hint="The restart may have been cancelled or another one scheduled for later "
                "(shutdown /a on the host cancels that), or updates are being installed. Restart "
                "it by hand, then run the same command again.",
            ) from error
        except (HostError, RemoteError) as error:
            raise HostError(
                f"the host was restarted but did not come back within {timeout:g} s; last "
                f"attempt: {error.message}",
                hint="Check its console. Once it is up, run the same command again.",
            ) from error

    def _again(self, error: BaseException) -> bool:
        return isinstance(error, HostError | RemoteError)

    def _pause(self, state: RetryCallState) -> float:
        """Seconds after a refused sign-in; 0 after anything else."""
        if state.outcome is None or not isinstance(state.outcome.exception(), AuthError):
            return 0.0
        self.refused += 1
        return REFUSED * 2.0 ** (self.refused - 1)

    def _report(self, _: RetryCallState) -> None:
        if self.progress is not None:
            self.progress(f"rebooting, {time.monotonic() - self.began:.0f} s")

    def _try_connect(self) -> Session:
        session = self.connect()
        try:
            self._verify(session)
        except BaseException:
            session.close()
            raise
        return session

    def _verify(self, session: Session) -> None:
        """Raise unless the host was restarted and responds twice."""
        answers = set()
        for answer in session.stream(
            reboot.identities, path=self.identity, pause=SETTLE, screen=self.screen
        ):
            if answer == self.before:
                raise _SameBootError("the host has not restarted yet")
            answers.add(str(answer))
        if len(answers) != 1:
            raise HostError("the host is restarting once more")
