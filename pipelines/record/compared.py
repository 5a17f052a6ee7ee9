"""Two wheels that should be the same bytes: the verdict, and where they differ."""

from __future__ import annotations

from typing import Literal

from pipelines.core.model import Model

#: ``identical``: every byte. ``repacked``: every file in it, but not the archive. ``different``.
Verdict = Literal["identical", "repacked", "different"]


class Difference(Model):
    """One difference, in words: what was published comes first."""

    file: str
    """In the wheel; empty for the wheel as an archive."""
    part: str
    """Of the file, such as a section; empty for all of it."""
    what: str

    @property
    def told(self) -> str:
        """In a line."""
        return ": ".join(filter(None, (self.file, self.part, self.what)))


class Comparison(Model):
    """A wheel that was built again, and the one that was published."""

    file: str
    published: str
    """Its sha256."""
    rebuilt: str
    verdict: Verdict
    differences: tuple[Difference, ...] = ()
    """Empty as well where the published wheel itself was not there to look into."""
