"""Why the container of a machine ended, by its exit code; the table is data."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from pipelines.core import errors
from pipelines.core.model import Model, read_data

_FILE = Path(__file__).with_name("exits.yaml")


class Exit(Model):
    """What some exit codes mean."""

    codes: Annotated[tuple[int, ...], Field(min_length=1)]
    kind: Literal["ConfigError", "SetupError", "HostError", "StorageError"]
    says: str
    hint: str


class _Table(Model):
    exits: tuple[Exit, ...]


@functools.cache
def exits() -> tuple[Exit, ...]:
    """The table."""
    return read_data(_FILE, _Table, hint="").exits


def explained(code: int, name: str, said: str) -> errors.PipelineError | None:
    """The error for a container that ended with ``code``; ``None``: nothing is known of it.

    ``said`` is what it printed last.
    """
    row = next((row for row in exits() if code in row.codes), None)
    if row is None:
        return None
    kind = errors.named(row.kind)
    return kind(f"machine '{name}': {row.says} (exit code {code}): {said}", hint=row.hint)
