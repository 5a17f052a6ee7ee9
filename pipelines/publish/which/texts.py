"""Texts of others made harmless, and versions compared; with the standard library alone.

What is in this folder is joined into ``which.py``, which any Python from 3.9 on runs: so nothing
here imports what only this project has.
"""

from __future__ import annotations

import re

_VERSION = re.compile(
    r"v?(?:(?P<epoch>\d{1,9})!)?(?P<release>\d{1,9}(?:\.\d{1,9}){0,9})"
    r"(?:[-_.]?(?P<pre>alpha|a|beta|b|preview|pre|c|rc)[-_.]?(?P<pre_number>\d{0,9}))?"
    r"(?P<post>-\d{1,9}|[-_.]?(?:post|rev|r)[-_.]?\d{0,9})?"
    r"(?P<dev>[-_.]?dev[-_.]?\d{0,9})?"
    r"(?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?",
    re.IGNORECASE | re.ASCII,
)
_NO_DEV = 1 << 40
_PATCHES = 40  # more than any release of Python has
_PRE = {"alpha": "a", "beta": "b", "c": "rc", "pre": "rc", "preview": "rc"}
_MINOR = re.compile(r"(\d{1,4})\.(\d{1,4})")

#: What sorts as PEP 440 says.
VersionKey = tuple[
    int, tuple[int, ...], tuple[str, int], int, int, tuple[tuple[int, int, str], ...]
]


class RefusalError(Exception):
    """What is said instead of an answer: found and expected, and what to do next."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


def ascii_line(text: object, limit: int = 300) -> str:
    """On one line, printable ASCII alone, bounded: for terminals of any code page."""
    kept = (c if " " <= c <= "~" else " " if c.isspace() else "?" for c in str(text)[: 4 * limit])
    line = " ".join("".join(kept).split())
    return line if len(line) <= limit else line[:limit] + " ..."


def normalize_project(name: str) -> str:
    """The one spelling of a project's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def version_key(text: str) -> VersionKey:
    """By which versions are compared; :class:`ValueError` for what is none."""
    found = _VERSION.fullmatch(text.strip()[:200])
    if found is None:
        raise ValueError(f"{ascii_line(text, 80)} is not a version")
    release = [int(one) for one in found["release"].split(".")]
    while len(release) > 1 and not release[-1]:
        release.pop()
    post = _digits_as_int(found["post"], -1)
    dev = _digits_as_int(found["dev"], _NO_DEV)
    if found["pre"]:
        kind = found["pre"].lower()
        pre = (_PRE.get(kind, kind), int(found["pre_number"] or 0))
    else:  # a development release without more comes before all others
        pre = ("", 0) if found["dev"] and not found["post"] else ("z", 0)
    local = (
        (1, int(one), "") if one.isdigit() else (0, 0, one.lower())
        for one in re.split(r"[-_.]", found["local"] or "")
        if one
    )
    return (int(found["epoch"] or 0), tuple(release), pre, post, dev, tuple(local))


def is_final_release(text: str) -> bool:
    """Whether a version is neither a pre-release nor one of development."""
    _, _, pre, _, dev, _ = version_key(text)
    return pre == ("z", 0) and dev == _NO_DEV


def _digits_as_int(text: str | None, absent: int) -> int:
    return absent if text is None else int(re.sub(r"\D", "", text) or 0)


def minor_of(text: str) -> tuple[int, int]:
    """``2.8.0+cu128`` is 2 and 8; 0 and 0 for what does not begin so."""
    found = _MINOR.match(text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def satisfies_specifiers(version: str, specifiers: str) -> bool:
    """Whether specifiers of PEP 440 allow a version; ``ValueError`` for others."""
    return all(_allows(version, one.strip()) for one in specifiers.split(",") if one.strip())


def _allows(version: str, clause: str) -> bool:
    found = re.fullmatch(r"(>=|<=|==|!=|~=|>|<)\s*([^*]{1,60}?)(\.\*)?", clause)
    if found is None or (found[3] and found[1] not in ("==", "!=")):
        raise ValueError(f"{ascii_line(clause, 80)} is not a version range")
    how, text, star = found.groups()
    own, bound = version_key(version), version_key(text)
    local = bool(bound[5])
    first, second = (own, bound) if local else (own[:5], bound[:5])
    if star or how == "~=":
        parts = text.split("!")[-1].count(".") + (how != "~=")
        same = own[0] == bound[0] and _padded_release(own, parts) == _padded_release(bound, parts)
        return same != (how == "!=") and (how != "~=" or first >= second)
    return {
        ">=": first >= second,
        "<=": first <= second,
        "==": first == second,
        "!=": first != second,
        ">": first > second,
        "<": first < second,
    }[how]


def _padded_release(key: VersionKey, parts: int) -> tuple[int, ...]:
    """Its first parts: a key has no zeros at its end."""
    return (*key[1], *[0] * parts)[:parts]


def accepts_python(specifiers: str, python: str) -> bool:
    """Whether a Requires-Python takes that minor release, such as ``3.12``.

    Of the patch nothing is known: one that is taken will do. What is not understood takes none.
    """
    try:
        return any(
            satisfies_specifiers(f"{python.rstrip('t')}.{patch}", specifiers)
            for patch in range(_PATCHES)
        )
    except ValueError:
        return False
