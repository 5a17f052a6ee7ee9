"""How a finding is made, what is wanted, and how untrusted facts are read.

Facts come from a host and may be anything: a missing fact, one of the wrong type and a number
that is no number all read as "not known", never as an error and never as good news.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pipelines.core.finding import Finding, Level
from pipelines.core.hosttext import safe_line
from pipelines.core.target import Target

_SHOWN = 160  # characters of a fact in a finding
_LARGEST = 1 << 63  # of a number that a machine may mean: 8 EiB


class Hint(NamedTuple):
    """What to do, and what to type for it on the host."""

    text: str = ""
    command: str = ""


def make_finding(  # noqa: PLR0917 - rows of a table
    area: str,
    title: str,
    level: Level,
    actual: str,
    expected: str = "",
    hint: str = "",
    command: str = "",
    source: str = "",
) -> Finding:
    """What is found of one thing in an ``area``; a hint is never made from a host's words.

    The id is the title without what tells one GPU, driver or card from another.
    """
    words = [word for word in title.lower().split() if not re.search(r"\d", word)]
    return Finding(
        id="-".join(re.findall(r"\w+", " ".join(words) or title.lower())),
        title=title,
        level=level,
        actual=actual,
        expected=expected,
        hint=hint,
        command=command,
        source=source,
        subject=area,
    )


@dataclass(frozen=True)
class Setting:
    """A resource that the host is asked for, and judged by."""

    id: str
    spec: dict[str, Any]
    """As ``pipelines/remote/resources`` takes it."""
    provisioned: bool
    """Whether ``invoke provision`` brings it about there."""
    wanted: str = ""
    """The wanted state in a few words."""


@dataclass(frozen=True, kw_only=True)
class Purpose:
    """What the host is judged for; written by us, never by a host."""

    target: Target
    toolset: str | None = None
    """The MSVC toolset that provisioning installs, such as 14.44."""
    jobs: int | None = None
    """Compile jobs at a time; ``None`` means the host's cores."""
    build_root: str
    """Directory below which every build has one of its own."""
    longest: int | None = None
    """Characters of the longest path that the build will create; ``None``: the tree is not here."""
    windows: bool = True
    sandbox: bool = False
    msvc: bool = True
    gpu: bool = False
    services: bool = True
    """What the host is meant to be or have, see :class:`pipelines.hosts.base.Capabilities`."""
    existing: bool = False
    """Whether its environment is used unchanged: provisioning installs no programs there."""
    gpu_asked: str = ""
    """What pipeline.yaml asks for, such as ``gpu: [0, 2]``."""
    gpu_numbers: tuple[int, ...] = ()
    """Those of nvidia-smi's that are asked for; empty: any."""
    settings: tuple[Setting, ...] = ()
    refused: tuple[Finding, ...] = ()
    """What the host cannot give, whatever it is found to be."""

    def of(self, kind: str) -> list[Setting]:
        """The settings of one kind of resource."""
        return [setting for setting in self.settings if setting.spec["kind"] == kind]


@dataclass(frozen=True)
class Facts:
    """Facts that are read with care; :meth:`at` goes down, the others give typed values."""

    tree: object
    why: str = "not reported"
    """Why facts may be missing below here."""
    sure: bool = False
    """Whether the host has answered this very question, be it with ``None``."""

    @property
    def absent(self) -> bool:
        """Whether the host was asked for something and says that it is not there."""
        return self.tree is None and self.sure

    @property
    def failed(self) -> bool:
        """Whether this very question was asked and has a reason for having no answer."""
        return self.tree is None and not self.sure and self.why != "not reported"

    def at(self, *keys: str) -> Facts:
        """The facts below ``keys``, with the reason that ``problems`` has for them."""
        tree, why, sure = self.tree, self.why, self.sure
        for key in keys:
            if not isinstance(tree, Mapping):
                return Facts(None, why)
            problems = tree.get("problems")
            reason = problems.get(key) if isinstance(problems, Mapping) else None
            why = (safe_line(reason, _SHOWN) or why) if isinstance(reason, str) else why
            sure = key in tree and reason is None
            tree = tree.get(key)
        return Facts(tree, why, sure)

    def checked(self, setting: Setting) -> Facts:
        """What the host's check of a resource found; nothing, and why, where that failed."""
        row = self.at("resources", setting.id)
        error = row.text("error")
        return Facts(None, error) if error else row

    def text(self, *keys: str, limit: int = _SHOWN) -> str | None:
        """A text, made harmless and short; ``None`` when nothing of it can be seen."""
        found = self.at(*keys).tree
        return (safe_line(found, limit) or None) if isinstance(found, str) else None

    def signed(self, *keys: str) -> float | None:
        """A finite number of a size that makes sense."""
        found = self.at(*keys).tree
        if isinstance(found, bool) or not isinstance(found, int | float):
            return None
        # Compared before it is converted: a float does not hold every int.
        if (isinstance(found, float) and not math.isfinite(found)) or abs(found) > _LARGEST:
            return None
        return float(found)

    def number(self, *keys: str) -> float | None:
        """A finite number of a size that makes sense, not negative."""
        found = self.signed(*keys)
        return found if found is not None and found >= 0 else None

    def count(self, *keys: str) -> float | None:
        """As :meth:`number`, of one that is given as text."""
        found = self.text(*keys) or ""
        return Facts(int(found)).number() if found.isascii() and found.isdigit() else None

    def flag(self, *keys: str) -> bool | None:
        """A truth value."""
        found = self.at(*keys).tree
        return found if isinstance(found, bool) else None

    def rows(self, *keys: str) -> list[Facts] | None:
        """The elements of a list, the first hundred."""
        below = self.at(*keys)
        if not isinstance(below.tree, list):
            return None
        return [Facts(row, below.why, True) for row in below.tree[:100]]


def at_least(found: float, *, warn: float, fail: float) -> Level:
    """The level of a quantity that should be large."""
    return "error" if found < fail else "warning" if found < warn else "ok"


def reg_add(key: str, name: str, kind: str, value: object) -> str:
    """The command that sets a value in the registry."""
    key, text = (f'"{word}"' if " " in word else word for word in (key, str(value)))
    return f"reg add {key} /v {name} /t {kind} /d {text} /f"


def on_host(command: str, *, provision: bool = False, first: str = "", then: str = "") -> Hint:
    """A hint that is typed on the host; ``provision`` when that task does the same."""
    ways = [way for way in (first, "invoke provision" if provision else "") if way]
    ways.append("on the host as administrator" + (f" ({then})" if then else ""))
    return Hint(", or ".join(ways), command)
