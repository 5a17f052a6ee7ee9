"""Command lines as the program reads them, without doing what they say."""

from __future__ import annotations

from typing import Any

from pipelines.cli.order import Call
from pipelines.cli.program import Wcw


def calls(text: str | list[str]) -> list[Call]:
    """The commands of a line, each with the flags that hold for it."""
    program = Wcw()
    program.create_config()
    program.parse_core(["wcw", *(text.split() if isinstance(text, str) else text)])
    program.parse_collection()
    program.parse_tasks()
    return program.order()[0]


def flags(text: str) -> list[dict[str, Any]]:
    """What each command of the line is called with."""
    return [{flag: value for flag, value in given.items() if value} for _, given in calls(text)]
