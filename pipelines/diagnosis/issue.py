"""A short text about a failure for an issue, without names, addresses and secrets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pipelines import __version__
from pipelines.core.errors import StorageError
from pipelines.diagnosis.judge import Diagnosis

#: First directories of a drive that say nothing of their owner.
_PUBLIC = re.compile(
    r"program|windows|users$|cuda|python|vs$|msys|mingw|a$|b$|t$|w$", re.IGNORECASE
)
_HOSTS = r"github\.com|pypi\.org|pythonhosted\.org|pytorch\.org|nvidia\.com|microsoft\.com|aka\.ms"
_USER = re.compile(r"[\\/](?:Users|home|Documents and Settings)[\\/]{1,4}([^\\/\s\"':;,]{1,64})")
_ROOT = re.compile(r"(\b[A-Za-z]:[\\/]{1,4})([^\\/:*?\"'<>|\r\n]{1,80})(?=[\\/])")
_RULES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(\w{2,10}://)[^/\s@]{1,200}@", r"\1"),
        (rf"(\w{{2,10}}://)(?!(?:[\w-]{{1,40}}\.)?(?:{_HOSTS})\b)[\w.-]{{1,200}}", r"\1HOST"),
        (r"[\w.+-]{1,64}@[\w.-]{1,100}", "NAME@HOST"),
        (r"\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b", "ADDRESS"),
        (r"(?<![\w:\\])\\\\[\w.-]{1,100}(?=\\)", r"\\\\HOST"),
        (
            r"(?i)(pass(?:word|wd|phrase)?|secret|token|api[_-]?key|authorization)"
            r"(\S{0,20}?[\s\"']{0,3}[=:][\s\"']{0,3})(?:bearer )?[^\s\"']{1,400}",
            r"\1\2SECRET",
        ),
        (r"\b(?:gh[a-z]_|github_pat_|hf_|sk-|xox[a-z]-|AKIA|eyJ)[\w.-]{8,400}", "SECRET"),
        (r"\b[A-Za-z0-9+/_-]{40,400}={0,2}(?![\w.\\/])", "LONG"),
    )
)


def anonymous(text: str) -> str:
    """``text`` without names of users and hosts, addresses, secrets and own directories."""
    for user in sorted(set(_USER.findall(text)), key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(user)}(?!\w)", "USER", text)
    text = _ROOT.sub(lambda root: root[1] + (root[2] if _PUBLIC.match(root[2]) else "DIR"), text)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text


def issue(diagnosis: Diagnosis | None, lines: Sequence[str]) -> str:
    """What the diagnosis is, and the decisive ``lines``, to be read before it is published."""
    rows = [f"wcw {__version__}"]
    if diagnosis:
        cause = diagnosis.cause
        rows.append(f"{cause.signature.id} ({cause.confidence}), line {cause.line}")
        rows += [f"{name}: {', '.join(set(facts))}" for name, facts in diagnosis.facts.items()]
        rows += [f"also {one.signature.id}, line {one.line}" for one in diagnosis.others[:10]]
    return anonymous("\n".join([*rows, "", *lines, ""]))


def write(path: Path, text: str) -> None:
    """Write it; :class:`StorageError` if that is not possible."""
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise StorageError(
            f"{path}: {error.strerror}", hint="Name a file that can be written with --report."
        ) from None
