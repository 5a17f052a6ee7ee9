"""Words to GitHub's runner: commands on standard output, escaped so that no text can add one.

https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

import os
import sys

in_ci = bool(os.environ.get("GITHUB_ACTIONS"))


def escape_data(text: str) -> str:
    """``text`` as a command's message: what would end the command is encoded."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_property(text: str) -> str:
    """``text`` as the value of a command's field."""
    return escape_data(text).replace(":", "%3A").replace(",", "%2C")


def escape_commands(text: str) -> str:
    """``text`` within our own output: in a job of the runner no line of it is a command."""
    return text.replace("::", ": :").replace("##[", "## [") if in_ci else text


def workflow_command(name: str, message: str = "", **fields: str) -> str:
    """A command as the runner reads it; fields that are empty are left out."""
    named = ",".join(f"{key}={escape_property(value)}" for key, value in fields.items() if value)
    return f"::{name}{' ' if named else ''}{named}::{escape_data(message)}"


def write_command(line: str) -> None:
    """Write a command at once, past every table and progress bar."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
