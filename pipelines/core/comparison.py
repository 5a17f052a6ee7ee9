"""The comparison of a rebuilt wheel with the published one."""

from __future__ import annotations

from typing import Literal

from pipelines.core.model import Model

#: ``identical``: every byte. ``repacked``: every file in it, but not the archive. ``different``.
Verdict = Literal["identical", "repacked", "different"]


class Difference(Model):
    """One difference; the published value comes first."""

    file: str
    """In the wheel; empty for the wheel as an archive."""
    part: str
    """Of the file, such as a section; empty for all of it."""
    what: str

    @property
    def summary(self) -> str:
        """One line."""
        return ": ".join(filter(None, (self.file, self.part, self.what)))


class Comparison(Model):
    """A rebuilt wheel and the published one."""

    file: str
    published: str
    """Its sha256."""
    rebuilt: str
    verdict: Verdict
    differences: tuple[Difference, ...] = ()
    """Also empty if the published wheel itself was not available."""

    @property
    def rows(self) -> dict[str, str]:
        """For reports: the verdict, both hashes and each difference."""
        rows = {"verdict": self.verdict, "published": self.published, "rebuilt": self.rebuilt}
        return rows | {f"difference {n}": d.summary for n, d in enumerate(self.differences, 1)}
