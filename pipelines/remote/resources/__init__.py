"""The kinds of resources of a host; a module each.

A module has ``Spec``, the desired state sent by the controller, and functions using it.
``check(spec)`` returns the current state. ``apply(spec)`` establishes the desired state; it may be
repeated, its partial results never pass the check, and expected errors raise :class:`RefusedError`.
``plan(spec)`` describes in one line what apply would do. A module may have ``forget(spec)``: the
result of apply failed the proof, and must not pass the next check.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict


class Report(TypedDict, total=False):
    """Fields that only some checks have."""

    uploads: list[str]
    """The pins whose files apply needs; all of them if absent."""
    doubt: str
    """What was not checked, though nothing is known to be wrong."""


class Check(Report):
    """The current state."""

    ok: bool
    """Whether that is the desired state."""
    found: str
    """For people; nothing is decided by it."""
    values: dict[str, str]
    """The same as facts, by name; missing ones are omitted."""


class Applied(TypedDict, total=False):
    """The result."""

    reboot: str
    """Why Windows must be restarted."""


class Kind(TypedDict, total=False):
    """Fields of every spec."""

    kind: str
    """The module's name."""
    thorough: bool
    """Read every byte, ignoring cached results."""


class Proof(TypedDict):
    """A command that shows that the installation works."""

    command: list[str]
    prints: str
    """A regular expression that must match its output."""


class Proven(Kind, total=False):
    """Fields of specs that may have a proof."""

    check: Proof


class Pin(TypedDict):
    """A file of the lock on the host."""

    name: str
    version: str
    sha256: str
    file: str
    """Its path."""


class RefusedError(RuntimeError):
    """Why a resource could not be applied, a hint, and the relevant logs."""

    def __init__(self, message: str, *, hint: str = "", logs: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.hint = hint
        self.logs = list(logs)
