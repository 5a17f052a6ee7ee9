"""The git state of a directory that was built."""

from __future__ import annotations

from pipelines.core.model import Model


class Checkout(Model):
    """The git checkout that a source was packed from."""

    commit: str
    """Empty if there is none yet."""
    changed: tuple[str, ...] = ()
    """Packed files that differ from it or are untracked; at most 200."""
    count: int = 0
    """How many there are."""

    @property
    def summary(self) -> str:
        """For messages."""
        commit = f"commit {self.commit[:12]}" if self.commit else "no commit yet"
        return f"{commit}, {self.count} uncommitted files" if self.count else commit
