"""Words to GitHub's runner: commands on standard output, escaped so that no text can add one.

https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

import os
import sys

in_ci = bool(os.environ.get("GITHUB_ACTIONS"))


def data(text: str) -> str:
    """``text`` as a command's message: what would end the command is encoded."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def field(text: str) -> str:
    """``text`` as the value of a command's field."""
    return data(text).replace(":", "%3A").replace(",", "%2C")


def inert(text: str) -> str:
    """``text`` within our own output: in a job of the runner no line of it is a command."""
    return text.replace("::", ": :").replace("##[", "## [") if in_ci else text


def command(name: str, message: str = "", **fields: str) -> str:
    """A command as the runner reads it; fields that are empty are left out."""
    named = ",".join(f"{key}={field(value)}" for key, value in fields.items() if value)
    return f"::{name}{' ' if named else ''}{named}::{data(message)}"


def tell(line: str) -> None:
    """Write a command at once, past every table and progress bar."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
