"""How often a password was refused: an account that is locked helps nobody.

Counted for the whole process, whichever connection or session it was: an address, a user and a
password have two refusals in a row, then the host is not asked again. Another password, or one
that was accepted, starts anew. One that was accepted before may be right still, so it is tried
again, ever more rarely: a domain's host refuses its users until it has found its domain.
https://github.com/ansible/ansible/issues/45912
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

#: Refusals in a row. Not one: a host that is starting may refuse what it will accept.
LIMIT = 2
#: Seconds after those until one that was accepted before is tried again; doubled each time.
PAUSE = 10.0


class RefusedBeforeError(Exception):
    """The host was not asked: it has refused this password :data:`LIMIT` times in a row or more."""


class Verdict:
    """What became of one sign-in; neither is set when no answer came."""

    def __init__(self) -> None:
        self.accepted = False
        self.refused = False

    def judge(self, *, accepted: bool) -> None:
        """What the host said."""
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
        """Around one sign-in. Waits while those under way could use up what is left.

        Raises :class:`RefusedBeforeError` when nothing is left.
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


def account(url: str, username: str, password: str) -> Account:
    """The one for these three; the same for all connections of this process."""
    with _lock:
        return _accounts.setdefault((url, username.casefold(), password), Account())
