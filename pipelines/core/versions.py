"""Releases and ranges of them, as data files and flags write them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, StringConstraints

#: What people type for a release: cp312, 3.12.4, cu128, 12.8.1, torch2.8, 2.8.0.
_TYPED = {
    "python": re.compile(r"(?:cp|py|python)?[-_= ]*(3)\.?(\d{1,2})(?:\.\d+)?(t?)", re.IGNORECASE),
    "torch": re.compile(r"(?:(?:py)?torch)?[-_= ]*(\d)\.(\d{1,2})(?:\.\d+)?()", re.IGNORECASE),
    "cuda": re.compile(r"(?:cu|cuda)?[-_= ]*(\d\d)\.?(\d)(?:\.\d+)?()", re.IGNORECASE),
}
_LONGEST = 64  # characters of a version that is still looked at

#: Of CUDA or torch: ``12.8``.
Release = Annotated[str, StringConstraints(pattern=r"^\d+\.\d+$")]


def _range(text: str) -> str:
    try:
        specifiers = SpecifierSet(text)
    except InvalidSpecifier:
        raise ValueError("not a version range (PEP 440), such as '>=12.4,<13'") from None
    if not text.strip():
        raise ValueError("an empty range matches everything; leave the fact out")
    if specifiers.is_unsatisfiable():
        raise ValueError("contradicts itself: no version satisfies it")
    return text


Range = Annotated[str, AfterValidator(_range)]


def parse_version(text: str) -> Version | None:
    """``text`` as a version; ``None`` for one that is not, such as ``main``."""
    try:
        return Version(text)
    except InvalidVersion:
        return None


def parse_release(text: str | None) -> Version | None:
    """``text`` as a plain release, or ``None`` if it is not known or no version.

    A nightly (``2.13.0.dev1``) or local build (``2.11.0+cu130``) counts as its release.
    """
    found = parse_version(text) if text and len(text) <= _LONGEST else None
    return Version(found.base_version) if found else None


def as_release(axis: str, typed: str) -> str:
    """MAJOR.MINOR of what was typed for this axis; what is understood otherwise stays as it is."""
    match = _TYPED[axis].fullmatch(typed) if axis in _TYPED else None
    return f"{match[1]}.{match[2]}{match[3].lower()}" if match else typed


def minor_release(release: str) -> str:
    """``2.8.0+cu128`` is of ``2.8``."""
    return ".".join(release.partition("+")[0].split(".")[:2])


def python_release(python: str) -> str:
    """``3.14t``, the Python without the global lock, is of the release ``3.14``."""
    return python.removesuffix("t")


def free_threaded(python: str) -> bool:
    """Whether it is the Python without the global lock: ``3.14t``."""
    return python.endswith("t")


def python_tags(python: str) -> tuple[str, str]:
    """Interpreter and ABI of its own wheels: ``cp314`` and ``cp314t`` of 3.14t."""
    plain = "cp" + python_release(python).replace(".", "")
    return plain, plain + "t" * free_threaded(python)


def python_order(python: str) -> tuple[int, int, bool]:
    """To sort by: 3.9, 3.14, 3.14t, 3.15."""
    major, _, second = python_release(python).partition(".")
    return int(major), int(second), free_threaded(python)


@lru_cache(maxsize=4096)
def release_in_range(release: str, range_: str | None) -> bool:
    """Whether it lies in the range; in none does every release."""
    return range_ is None or SpecifierSet(range_).contains(release, prereleases=True)
