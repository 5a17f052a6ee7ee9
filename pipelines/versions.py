"""Releases and ranges of them, as data files and flags write them."""

from __future__ import annotations

from typing import Annotated

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator

_LONGEST = 64  # characters of a version that is still looked at


def _range(text: str) -> str:
    try:
        specifiers = SpecifierSet(text)
    except InvalidSpecifier:
        raise ValueError("not a version range (PEP 440), such as '>=12.4,<13'") from None
    if not text.strip():
        raise ValueError("an empty range holds for everything; leave the fact out")
    if specifiers.is_unsatisfiable():
        raise ValueError("contradicts itself: no version lies in it")
    return text


Range = Annotated[str, AfterValidator(_range)]


def known(text: str | None) -> Version | None:
    """``text`` as a plain release, or ``None`` if it is not known or no version.

    A nightly (``2.13.0.dev1``) or local build (``2.11.0+cu130``) counts as its release.
    """
    if not text or len(text) > _LONGEST:
        return None
    try:
        return Version(Version(text).base_version)
    except InvalidVersion:
        return None
