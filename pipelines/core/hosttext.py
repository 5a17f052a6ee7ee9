"""Text that a host says, made fit to be shown and kept; and what must never be shown at all.

Everything a host says is untrusted: it may hold terminal escapes, control characters, halves of
surrogate pairs, and a hundred megabytes of it. ``safe``, ``line`` and ``block`` are for terminals,
messages and pages; ``clean`` and ``clean_line`` are for XML, and keep what logs may hold there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from pipelines.core import github

#: Controls, what turns the direction of text or breaks lines, and halves of characters.
_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
    r"\ufeff\ud800-\udfff]"
)


_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


_secrets: set[str] = set()


def remember_secret(value: str) -> str:
    """Remember ``value`` as something that is never shown; returns it."""
    if len(value) >= 4:  # noqa: PLR2004 - shorter ones would blank half of every line
        _secrets.add(value)
        if github.in_ci:
            github.write_command(github.workflow_command("add-mask", value))
    return value


def redact(text: str) -> str:
    """``text`` with every known secret blanked."""
    for value in sorted(_secrets, key=len, reverse=True):  # one may begin with another
        text = text.replace(value, "***")
    return text


def redact_all(value: Any) -> Any:
    """``value`` with every known secret blanked in the strings of its lists and dicts."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {key: redact_all(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redact_all(item) for item in value]
    return value


def safe_text(text: str, limit: int = 2000) -> str:
    """One line or text of a host made harmless: no escapes, no controls, bounded, redacted."""
    text = redact(_ANSI.sub("", text).replace("\r", ""))
    text = _CONTROL.sub(lambda m: f"\\x{ord(m[0]):02x}", text)
    return text if len(text) <= limit else text[:limit] + " ..."


def safe_line(value: Any, limit: int = 300) -> str:
    """``value`` on one line, harmless to print, of at most about ``limit`` characters."""
    if value is None:
        return ""
    return " ".join(safe_text(str(value)[: 4 * limit], limit).split())


def safe_block(value: Any, limit: int = 4000) -> str:
    """``value`` with its line ends, harmless to print; its start."""
    return "" if value is None else safe_text(str(value)[: 4 * limit], limit).strip("\n")


def safe_last_lines(values: Sequence[str], most: int = 100) -> list[str]:
    """The last ``most`` of ``values``, each on one line and harmless to print."""
    return [safe_text(text[:2000], 400).replace("\n", " ") for text in values[-most:]]


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


def clean_xml_text(text: str, limit: int = MAX_TEXT) -> str:
    r"""``text`` as XML 1.0 may hold it, of at most ``limit`` UTF-8 bytes: the last lines of it.

    Escapes and control characters go, line ends become ``\n``, what is no character becomes
    U+FFFD. A text that is cut begins with a line saying so.
    """
    cut = len(text) > 4 * limit
    tail = _strip_control_codes(text[-4 * limit :] if cut else text)
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
    line = " ".join(_strip_control_codes(text[: 4 * limit]).split())
    data = line.encode()
    mark = "..."
    if len(data) <= limit and len(text) <= 4 * limit:
        return line
    return data[: max(limit - len(mark), 0)].decode(errors="ignore") + mark[:limit]


def _strip_control_codes(text: str) -> str:
    text = _ESCAPES.sub("", text)
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\x85", "\n")
    return _NO_CHARACTER.sub("\ufffd", _CONTROLS.sub("", text))


def shown_url(url: str) -> str:
    """An address without what may be a password."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:  # whatever is in it may be a password, also what should be the port
        return "an invalid address"
    name = parts.hostname or ""
    host = f"//{f'[{name}]' if ':' in name else name}{port}" if "://" in url else ""
    return safe_line(f"{parts.scheme and f'{parts.scheme}:'}{host}{parts.path}", 200)
