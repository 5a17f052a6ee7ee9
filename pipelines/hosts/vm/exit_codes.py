"""Why the container of a machine ended, by its exit code; the codes are data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from pipelines.core import errors
from pipelines.core.model import Model, read_data

_FILE = Path(__file__).with_name("exit_codes.yaml")


class ExitCode(Model):
    """The meaning of some exit codes."""

    codes: Annotated[tuple[int, ...], Field(min_length=1)]
    kind: Literal["ConfigError", "SetupError", "HostError", "StorageError"]
    message: str
    hint: str


class _Table(Model):
    exit_codes: tuple[ExitCode, ...]


def exit_codes() -> tuple[ExitCode, ...]:
    """All exit codes."""
    return read_data(_FILE, _Table, hint="").exit_codes


def explained(code: int, name: str, output: str) -> errors.PipelineError | None:
    """The error for a container that ended with ``code``; ``None``: unknown.

    ``output`` is the end of its output.
    """
    row = next((row for row in exit_codes() if code in row.codes), None)
    if row is None:
        return None
    kind = errors.named(row.kind)
    return kind(f"machine '{name}': {row.message} (exit code {code}): {output}", hint=row.hint)
