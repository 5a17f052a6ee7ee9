"""What a verdict is, what is wanted, and how untrusted facts are read.

Facts come from a host and may be anything: a missing fact, one of the wrong type and a number
that is no number all read as "not known", never as an error and never as good news.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pipelines.console import safe

Level = Literal["ok", "warning", "error", "unknown"]

GIB = 1 << 30
_SHOWN = 160  # characters of a fact in a verdict


@dataclass(frozen=True)
class Verdict:
    """One judgement; ``found`` is harmless to print, ``cure`` is never made from a host's words."""

    area: str
    name: str
    level: Level
    found: str
    wanted: str = ""
    cure: str = ""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What the host is judged for."""

    recipe: str
    python: str
    cuda: str
    torch: str | None = None
    archs: tuple[str, ...] = ()
    """As nvcc names them: ``("80", "90a")``."""
    jobs: int | None = None
    """Compile jobs at a time; ``None`` means the host's cores."""
    build_root: str = r"C:\b"
    """Directory below which every build has one of its own."""
    temp: str = r"C:\t"
    msvc: bool = True
    gpu: bool = False
    """Whether the host is meant to have these."""


@dataclass(frozen=True)
class Facts:
    """Facts that are read with care; :meth:`at` goes down, the others give typed values."""

    tree: Any
    why: str = "not told"
    """Why facts may be missing below here."""
    sure: bool = False
    """Whether the host has answered this very question, be it with ``None``."""

    @property
    def absent(self) -> bool:
        """Whether the host was asked for something and says that it is not there."""
        return self.tree is None and self.sure

    def at(self, *keys: str) -> Facts:
        """The facts below ``keys``, with the reason that ``problems`` has for them."""
        tree, why, sure = self.tree, self.why, self.sure
        for key in keys:
            if not isinstance(tree, Mapping):
                return Facts(None, why)
            problems = tree.get("problems")
            reason = problems.get(key) if isinstance(problems, Mapping) else None
            why = line(reason) if isinstance(reason, str) else why
            sure = key in tree and reason is None
            tree = tree.get(key)
        return Facts(tree, why, sure)

    def text(self, *keys: str, limit: int = _SHOWN) -> str | None:
        """A text, made harmless and short."""
        found = self.at(*keys).tree
        return line(found, limit) if isinstance(found, str) and found.strip() else None

    def number(self, *keys: str) -> float | None:
        """A finite number that is not negative."""
        found = self.at(*keys).tree
        if isinstance(found, bool) or not isinstance(found, int | float):
            return None
        try:
            number = float(found)
        except OverflowError:
            return None
        return number if math.isfinite(number) and number >= 0 else None

    def flag(self, *keys: str) -> bool | None:
        """A truth value."""
        found = self.at(*keys).tree
        return found if isinstance(found, bool) else None

    def rows(self, *keys: str) -> list[Facts] | None:
        """The elements of a list, the first hundred."""
        found = self.at(*keys).tree
        return (
            [Facts(row, self.why, True) for row in found[:100]] if isinstance(found, list) else None
        )


def line(text: str, limit: int = _SHOWN) -> str:
    """A host's text as one harmless line of bounded length."""
    return " ".join(safe(text[: limit * 8], limit).split())


def gib(size: float) -> str:
    """Bytes for people: ``12.3 GiB``."""
    return f"{size / GIB:.1f} GiB"


def at_least(found: float, *, warn: float, fail: float) -> Level:
    """The level of something of which more is better."""
    return "error" if found < fail else "warning" if found < warn else "ok"


def on_host(command: str) -> str:
    """A cure that is typed on the host."""
    return f"on the host, as administrator: {command}"
