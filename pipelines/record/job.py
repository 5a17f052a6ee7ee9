"""A run's record of a job on a host."""

from __future__ import annotations

from pydantic import Field

from pipelines.core.model import Model


class JobRecord(Model):
    """A job that a run has started on a host."""

    host: str
    directory: str
    attempt: int
    base: int
    """Offset of this attempt's log in the run's log."""
    offset: int
    """Bytes of it that were fetched."""
    lost: tuple[str, ...] = ()
    way: str = ""
    failed: dict[str, str] = Field(default={})
    """Ways to start it that failed, and why."""
