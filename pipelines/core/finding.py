"""What a check has found: one model for wheels, hosts and plans, and how it is shown.

A check that could not look is ``unknown``, and one that nothing was expected of is ``skipped``:
neither is ever as good as ``ok``. Its text may be a host's or a wheel's, or that of a record which
anybody may have changed: it is harmless and bounded from the start.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from pipelines.core.hosttext import safe_line
from pipelines.core.model import Model

_Short = Annotated[str, AfterValidator(partial(safe_line, limit=400))]
_Long = Annotated[str, AfterValidator(partial(safe_line, limit=1200))]
_Value = Annotated[str, AfterValidator(partial(safe_line, limit=4000))]  # C++ has such names
_MOST = 1000  # values

Level = Literal["ok", "warning", "error", "skipped", "unknown"]
#: The worst first.
LEVELS: tuple[Level, ...] = ("error", "warning", "unknown", "skipped", "ok")


class Finding(Model):
    """What one check says of one thing."""

    id: _Short
    """Of the check: what programs go by, such as ``record``."""
    title: _Short = Field(default_factory=lambda given: given.get("id", ""))
    """Of the check, for people."""
    level: Level
    actual: _Short
    expected: _Short = ""
    hint: _Long = ""
    """Why, where, and what to do next; where there is a ``command``, where to type that."""
    command: _Long = ""
    """What to type."""
    source: _Short = ""
    """What it rests on: an address, a file."""
    subject: _Short = ""
    """What it is about, where a check looks at several things: a GPU, a torch, a machine."""
    values: Annotated[tuple[_Value, ...], AfterValidator(lambda found: found[:_MOST])] = ()
    """What was found, for programs."""
    requested: bool = False
    """Whether a user asked for just this: then no answer is as bad as a bad one."""
    raises: str = "ConfigError"
    """The class of :mod:`pipelines.core.errors` for what it refuses."""

    @property
    def failed(self) -> bool:
        """Whether something is wrong, or what was requested has no answer."""
        return self.level == "error" or (self.requested and self.level == "unknown")

    @property
    def checked(self) -> bool:
        """Whether the check could look, and had something to compare with."""
        return self.level not in ("skipped", "unknown")

    @property
    def label(self) -> str:
        """The title, with what it is about."""
        return f"{self.title} {self.subject}".strip()

    @property
    def text(self) -> str:
        """What was found; where that is not as expected, also what was."""
        differs = self.level not in ("ok", "skipped") and self.expected
        return f"{self.actual} (expected {self.expected})" if differs else self.actual


def failure_lines(findings: Iterable[Finding]) -> list[str]:
    """What is wrong, a line each."""
    return [
        f"{one.label}: found {one.text}" + (f": {one.hint}" if one.hint else "")
        for one in findings
        if one.failed
    ]


def worst_level(levels: Iterable[Level]) -> Level:
    """The worst of some levels; ``unknown`` of none."""
    return min(levels, key=LEVELS.index, default="unknown")


def values_of(findings: Iterable[Finding], id_: str) -> list[str]:
    """What the check ``id_`` has found, for programs."""
    return [value for finding in findings if finding.id == id_ for value in finding.values]
