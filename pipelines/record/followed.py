"""What a run keeps of a job on a host that it follows."""

from __future__ import annotations

from pydantic import Field

from pipelines.core.model import Model


class JobRecord(Model):
    """A job on a host that a run has started."""

    host: str
    directory: str
    attempt: int
    base: int
    """Where the log of this attempt begins in the run's log."""
    offset: int
    """How much of it is here."""
    lost: tuple[str, ...] = ()
    way: str = ""
    failed: dict[str, str] = Field(default={})
    """Ways to start it that did not work, and why."""
