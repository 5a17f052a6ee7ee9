"""Counts refused sign-ins, to avoid locking the account.

Counted for the whole process, across connections and sessions: after two refusals in a row of one
address, user and password, the host is not contacted again. Another password, or an accepted one,
resets the count. A password accepted earlier may still be right, so it is retried with growing
delays: a host of a domain refuses its users until it has found its domain controller.
https://github.com/ansible/ansible/issues/45912
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

#: Refusals in a row. More than one: a starting host may refuse a password it will accept later.
LIMIT = 2
#: Seconds until a password accepted earlier is retried; doubled each time.
PAUSE = 10.0


class RefusedBeforeError(Exception):
    """The host was not contacted: it has refused this password :data:`LIMIT` times in a row."""


class Verdict:
    """The outcome of one sign-in; neither is set if no answer arrived."""

    def __init__(self) -> None:
        self.accepted = False
        self.refused = False

    def judge(self, *, accepted: bool) -> None:
        """The host's answer."""
        self.accepted, self.refused = accepted, not accepted


class Account:
    """One user with one password at one address; threads share it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._refused = 0
        self._pending = 0
        self._known = False
        self._next = 0.0

    @contextmanager
    def sign_in(self) -> Iterator[Verdict]:
        """Wraps one sign-in. Waits while pending ones could use up the remaining attempts.

        Raises :class:`RefusedBeforeError` if none is left.
        """
        with self._changed:
            while self._refused < LIMIT <= self._refused + self._pending:
                self._changed.wait()
            again = self._known and not self._pending and time.monotonic() >= self._next
            if self._refused >= LIMIT and not again:
                raise RefusedBeforeError
            self._pending += 1
        verdict = Verdict()
        try:
            yield verdict
        finally:
            with self._changed:
                self._pending -= 1
                if verdict.accepted:
                    self._refused, self._known = 0, True
                elif verdict.refused:
                    self._refused += 1
                    pause = PAUSE * 2 ** max(0, self._refused - LIMIT)
                    self._next = time.monotonic() + pause
                self._changed.notify_all()


_accounts: dict[tuple[str, str, str], Account] = {}
_lock = threading.Lock()


def shared_account(url: str, username: str, password: str) -> Account:
    """The account for these three; shared by all connections of this process."""
    with _lock:
        return _accounts.setdefault((url, username.casefold(), password), Account())
