"""What goes with what: ``compat.yaml`` as rules over known facts, for the doctor and the planner.

A rule that needs a fact nobody knows says nothing; whoever asks must say what it did not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from pipelines.config import read_data
from pipelines.errors import ConfigError

COMPAT_FILE = Path(__file__).resolve().with_name("compat.yaml")

#: What a rule may ask for; each is a version.
Fact = Literal["msvc", "cuda", "torch", "python", "arch", "windows", "driver"]
FACTS: tuple[str, ...] = get_args(Fact)

_ARCH = re.compile(r"(\d+)(\d)[af]?")
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


def _version(text: str) -> str:
    if known(text) is None:
        raise ValueError("not a version")
    return text


Range = Annotated[str, AfterValidator(_range)]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Rule(_Model):
    """A combination that does not work, or only with care."""

    id: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    when: Annotated[dict[Fact, Range], Field(min_length=1)]
    verdict: Literal["error", "warning"]
    says: Text
    """One sentence: what happens."""
    cure: Text
    """What to type, or to set and where."""
    source: Annotated[str, StringConstraints(pattern=r"^https://\S+$")]

    def applies(self, facts: Mapping[str, str]) -> bool:
        """Whether every fact that it names is known and lies in its range."""
        for fact, wanted in self.when.items():
            version = known(facts.get(fact))
            if version is None or not SpecifierSet(wanted).contains(version, prereleases=True):
                return False
        return True


class Release(_Model):
    """A release of Windows that builds are meant for."""

    name: Text
    server: bool
    builds: Range


class Compat(_Model):
    """``compat.yaml``."""

    rules: Annotated[tuple[Rule, ...], Field(min_length=1)]
    toolkit_drivers: dict[str, Annotated[str, AfterValidator(_version)]]
    """CUDA release (``12.8``) -> the Windows driver that came with it."""
    windows: Annotated[tuple[Release, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _one_rule_an_id(self) -> Self:
        ids = [rule.id for rule in self.rules]
        if doubles := sorted({name for name in ids if ids.count(name) > 1}):
            raise ValueError(f"rules with the same id: {', '.join(doubles)}")
        return self

    def release(self, build: int, *, server: bool) -> Release | None:
        """The supported release with that build number, or ``None``."""
        for release in self.windows:
            if release.server == server and SpecifierSet(release.builds).contains(str(build)):
                return release
        return None


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


def capability(arch: str) -> str:
    """The compute capability of an architecture: ``"120"`` or ``"120a"`` is ``"12.0"``."""
    match = _ARCH.fullmatch(arch)
    if match is None:
        raise ConfigError(f"architecture {arch[:40]!r} is not understood", advice="Write 120.")
    return f"{match[1]}.{match[2]}"


@cache
def load_compat(path: Path = COMPAT_FILE) -> Compat:
    """Read the file; :class:`ConfigError` names the file and the key that is wrong."""
    return read_data(path, Compat, advice="See pipelines/plan/compat.py.")


def load_rules(path: Path = COMPAT_FILE) -> tuple[Rule, ...]:
    """The rules of the file; :class:`ConfigError` as :func:`load_compat`."""
    return load_compat(path).rules


def broken(rules: Iterable[Rule], facts: Mapping[str, str]) -> list[Rule]:
    """The rules that apply to ``facts`` (of :data:`FACTS`), errors first, else in order.

    Raises ``ValueError`` for a fact that no rule can name: a slip of the caller's pen would
    otherwise look like good news.
    """
    if strange := sorted(facts.keys() - set(FACTS)):
        raise ValueError(f"unknown facts: {', '.join(strange)}; there are {', '.join(FACTS)}")
    found = [rule for rule in rules if rule.applies(facts)]
    return sorted(found, key=lambda rule: rule.verdict)
