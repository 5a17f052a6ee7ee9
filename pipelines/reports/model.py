"""The data of test reports, and how a host's text is made safe to print.

Everything a host says is untrusted: it may hold terminal escapes, control characters, halves
of surrogate pairs, and a hundred megabytes of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Outcome = Literal["passed", "failed", "error", "skipped"]


@dataclass(frozen=True)
class Case:
    """One test, or one check: ``message`` is a line, ``detail`` a traceback, ``stdout`` a log."""

    name: str
    classname: str = ""
    seconds: float = 0.0
    outcome: Outcome = "passed"
    message: str = ""
    detail: str = ""
    stdout: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Suite:
    """Cases of one stage or host. ``timestamp`` is ISO 8601; ``host`` the machine's name."""

    name: str
    cases: tuple[Case, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    timestamp: str = ""
    host: str = ""
