"""What a report is made of: plain data, and the rule that makes a host's text fit to print.

Everything a host says is untrusted: it may hold terminal escapes, control characters, halves
of surrogate pairs, and a hundred megabytes of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Outcome = Literal["passed", "failed", "error", "skipped"]

#: UTF-8 bytes a text may have in a report: logs keep their end, names and messages their start.
MAX_TEXT = 64 << 10
MAX_MESSAGE = 4 << 10
MAX_NAME = 512

# ECMA-48: CSI, then OSC and other strings up to BEL or ST, then two- and three-character
# escapes; bounded repeats keep hostile text linear. The 8-bit forms are left to _CONTROLS:
# in text that was decoded wrongly they are letters, and would take what follows with them.
_ESCAPES = re.compile(
    r"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]"
    r"|\x1b[\]PX^_][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)"
    r"|\x1b[ -/]{0,8}[0-~]"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]")
# Not characters for XML 1.0 (surrogates, U+FFFE, U+FFFF), or none for anybody.
_NO_CHARACTER = re.compile(
    "[\ud800-\udfff\ufdd0-\ufdef"
    + "".join(f"{chr(p << 16 | 0xFFFE)}{chr(p << 16 | 0xFFFF)}" for p in range(17))
    + "]"
)


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


def clean(text: str, limit: int = MAX_TEXT) -> str:
    r"""``text`` as XML 1.0 may hold it, of at most ``limit`` UTF-8 bytes: the last lines of it.

    Escapes and control characters go, line ends become ``\n``, what is no character becomes
    U+FFFD. A text that is cut begins with a line saying so.
    """
    cut = len(text) > 4 * limit
    tail = _plain(text[-4 * limit :] if cut else text)
    data = tail.encode()
    if len(data) <= limit and not cut:
        return tail
    note = f"[only the end of {len(text)} characters is kept]\n"
    room = max(limit - len(note), 0)
    kept = data[max(len(data) - room, 0) :].decode(errors="ignore")
    if len(data) > room:  # begin with a whole line, where there is one
        kept = kept.partition("\n")[2] or kept
    return (note + kept).encode()[:limit].decode(errors="ignore")


def clean_line(text: str, limit: int = MAX_NAME) -> str:
    """``text`` on one line, for a name or message: its start, of at most ``limit`` UTF-8 bytes."""
    line = " ".join(_plain(text[: 4 * limit]).split())
    data = line.encode()
    mark = "..."
    if len(data) <= limit and len(text) <= 4 * limit:
        return line
    return data[: max(limit - len(mark), 0)].decode(errors="ignore") + mark[:limit]


def _plain(text: str) -> str:
    text = _ESCAPES.sub("", text)
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\x85", "\n")
    return _NO_CHARACTER.sub("\ufffd", _CONTROLS.sub("", text))
