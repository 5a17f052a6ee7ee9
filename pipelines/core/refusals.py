"""Errors whose words are rows of a data file: what is wrong, what to do, and which error it is."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pipelines.core.errors import PipelineError, error_class
from pipelines.core.model import Model, Text, read_data


class Refusal(Model):
    """An error; ``{names}`` in its words are filled in."""

    message: Text
    hint: str = ""
    raises: Literal["AuthError", "ConfigError", "HostError", "LockError", "SetupError"] = (
        "ConfigError"
    )


class _Refusals(Model):
    refusals: dict[str, Refusal]


def load_refusals(path: Path) -> dict[str, Refusal]:
    """The rows of a file."""
    return read_data(path, _Refusals).refusals


def refusal_error(path: Path, key: str, /, **said: object) -> PipelineError:
    """The error of that key."""
    row = load_refusals(path)[key]
    return error_class(row.raises)(row.message.format(**said), hint=row.hint.format(**said))
