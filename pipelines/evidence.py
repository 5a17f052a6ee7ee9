"""How far a claim has been shown: the levels of the README."""

from __future__ import annotations

from enum import StrEnum

from pipelines.model import Model


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


class Origin(Model):
    """What a host was made from, of those that are made on a container engine."""

    kind: str = ""
    engine: str = ""
    """Which, on what."""
    image: str = ""
    """Its id."""
    image_key: str = ""
    """Of an image of ours: the hash of all that it was made from."""
