"""Kinds of things a host can be wanted to have; a module each.

A module has ``Spec``, what is wanted as the controller sends it, and functions of it.
``check(spec)`` says what is there. ``apply(spec)`` brings about what is wanted; it may be repeated,
and what it leaves half-done never passes the check; what is expected to go wrong raises
:class:`RefusedError`. ``plan(spec)`` says in a line what apply would do. A module may have
``forget(spec)``: what was applied did not stand the proof, and must not pass the next check.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict


class Told(TypedDict, total=False):
    """What only some checks say."""

    uploads: list[str]
    """Of the pins, those whose files apply needs; all of them where it is not said."""
    doubt: str
    """What was not looked at, though nothing is known to be wrong."""


class Check(Told):
    """What is there."""

    ok: bool
    """Whether that is what is wanted."""
    found: str
    """For people; nothing decides by it."""
    values: dict[str, str]
    """The same as facts, by name; without what is not there."""


class Applied(TypedDict, total=False):
    """What came of it."""

    reboot: str
    """Why Windows must start anew."""


class Kind(TypedDict, total=False):
    """Of every spec."""

    kind: str
    """The module's name."""
    thorough: bool
    """Look at every byte, whatever is remembered of it."""


class Proof(TypedDict):
    """A command that shows that what was installed runs."""

    command: list[str]
    prints: str
    """A regular expression that its output must contain."""


class Proven(Kind, total=False):
    """Of specs that may have a proof."""

    check: Proof


class Pin(TypedDict):
    """A file of the lock on the host."""

    name: str
    version: str
    sha256: str
    file: str
    """Its path."""


class RefusedError(RuntimeError):
    """Why a resource could not be brought about, what to do, and the logs that tell more."""

    def __init__(self, message: str, *, hint: str = "", logs: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.hint = hint
        self.logs = list(logs)
