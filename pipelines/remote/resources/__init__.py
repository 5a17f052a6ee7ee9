"""Kinds of things a host can be wanted to have; a module each.

``check(spec)`` says what is there: ``{"ok": bool, "found": str}``. ``apply(spec)`` brings about
what is wanted; it may be repeated, and what it leaves half-done never passes the check. Where a
restart is needed it returns ``{"reboot": reason}``; what is expected to go wrong raises
:class:`RefusedError`. ``plan(spec)`` says in a line what apply would do. A module may
have ``forget(spec)``: what was applied did not stand the proof, and must not pass the next check.
"""

from __future__ import annotations

from collections.abc import Iterable


class RefusedError(RuntimeError):
    """Why a resource could not be brought about, what to do, and the logs that tell more."""

    def __init__(self, message: str, *, advice: str = "", logs: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.advice = advice
        self.logs = list(logs)
