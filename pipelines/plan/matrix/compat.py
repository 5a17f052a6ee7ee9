"""Incompatibilities: ``compat.yaml`` as rules over known facts, for the doctor and the planner.

A rule that needs an unknown fact does not apply; its caller must report what was unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from packaging.specifiers import SpecifierSet
from pydantic import AfterValidator, Field, StringConstraints, model_validator

from pipelines.core.finding import Finding
from pipelines.core.model import Dated, Model, Text, read_data
from pipelines.core.versions import Range, parse_release, release_in_range

COMPAT_FILE = Path(__file__).resolve().with_name("compat.yaml")

#: The facts of rules; each is a version.
Fact = Literal["msvc", "cuda", "torch", "python", "freethreaded", "arch", "windows", "driver"]
FACTS: tuple[str, ...] = get_args(Fact)


def _validate_version_text(text: str) -> str:
    if parse_release(text) is None:
        raise ValueError("not a version")
    return text


class Rule(Dated):
    """A combination that does not work, or only with care."""

    id: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    when: Annotated[dict[Fact, Range], Field(min_length=1)]
    level: Literal["error", "warning"]
    says: Text
    """One sentence: what happens."""
    hint: Text
    """What to type, or to set and where."""

    def finding(self, **more: Any) -> Finding:
        """The finding if it applies."""
        fields = {"actual": self.says, "hint": self.hint, "source": self.source} | more
        return Finding(id=self.id, level=self.level, **fields)

    def applies(self, facts: Mapping[str, str]) -> bool:
        """Whether every fact that it names is known and lies in its range."""
        for fact, wanted in self.when.items():
            version = parse_release(facts.get(fact))
            if version is None or not SpecifierSet(wanted).contains(version, prereleases=True):
                return False
        return True


class Release(Model):
    """A release of Windows that builds are meant for."""

    name: Text
    server: bool
    builds: Range


class Compat(Model):
    """``compat.yaml``."""

    rules: Annotated[tuple[Rule, ...], Field(min_length=1)]
    drivers: Dated
    """Source and date of ``toolkit_drivers``."""
    toolkit_drivers: dict[str, Annotated[str, AfterValidator(_validate_version_text)]]
    """CUDA release (``12.8``) -> the Windows driver that came with it."""
    builds: Dated
    """The same of ``windows``."""
    windows: Annotated[tuple[Release, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _one_rule_an_id(self) -> Self:
        ids = [rule.id for rule in self.rules]
        if doubles := sorted({name for name in ids if ids.count(name) > 1}):
            raise ValueError(f"rules with the same id: {', '.join(doubles)}")
        return self

    def least_driver(self, cuda: str) -> str:
        """The oldest Windows driver that runs programs of a release; empty: unknown."""
        for rule in self.rules:
            if {*rule.when} == {"driver", "cuda"} and release_in_range(cuda, rule.when["cuda"]):
                return rule.when["driver"].removeprefix("<")
        return ""

    def release(self, build: int, *, server: bool) -> Release | None:
        """The supported release with that build number, or ``None``."""
        for release in self.windows:
            if release.server == server and SpecifierSet(release.builds).contains(str(build)):
                return release
        return None


def load_compat(path: Path = COMPAT_FILE) -> Compat:
    """Read the file; :class:`ConfigError` names the file and the key that is wrong."""
    return read_data(path, Compat, hint="See pipelines/plan/matrix/compat.py.")


def applicable_rules(rules: Iterable[Rule], facts: Mapping[str, str]) -> list[Rule]:
    """The rules that apply to ``facts`` (of :data:`FACTS`), errors first, else in order.

    Raises ``ValueError`` for an unknown fact: a typo in a caller must not look like good news.
    """
    if strange := sorted(facts.keys() - set(FACTS)):
        raise ValueError(f"unknown facts: {', '.join(strange)}; there are {', '.join(FACTS)}")
    found = [rule for rule in rules if rule.applies(facts)]
    return sorted(found, key=lambda rule: rule.level)
