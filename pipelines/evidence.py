"""How far a claim has been shown: the levels of the README."""

from __future__ import annotations

from enum import StrEnum


class Evidence(StrEnum):
    """From the least to the most; the value is the letter that is printed."""

    WRITTEN = "W"
    STATIC = "S"
    SIMULATED = "F"
    BINARIES = "B"
    GPU = "G"
    WINDOWS = "R"

    @property
    def meaning(self) -> str:
        """The level in words."""
        return _MEANING[self]


_MEANING = {
    Evidence.WRITTEN: "nothing of this is shown for Windows",
    Evidence.STATIC: "checked statically",
    Evidence.SIMULATED: "run against a simulator",
    Evidence.BINARIES: "run with genuine Windows binaries, not on Windows",
    Evidence.GPU: "run on a real GPU",
    Evidence.WINDOWS: "run on real Windows",
}
