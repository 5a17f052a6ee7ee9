"""What git says of a directory that was built."""

from __future__ import annotations

from pipelines.core.model import Model


class Checkout(Model):
    """The git checkout that a directory here was packed from."""

    commit: str
    """Empty: it has none yet."""
    changed: tuple[str, ...] = ()
    """Files that were packed and differ from it, or are not in it; at most 200."""
    count: int = 0
    """How many there are."""

    @property
    def told(self) -> str:
        """In words."""
        commit = f"commit {self.commit[:12]}" if self.commit else "no commit yet"
        return f"{commit}, {self.count} files not as committed" if self.count else commit
