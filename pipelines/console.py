"""What a person sees: progress, tables, folds in CI logs, errors; and nothing a host may forge.

Text from a host is data: escape sequences and control characters are made visible before they
reach a terminal, and known secrets are blanked in everything that is printed or kept.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

from pipelines.errors import PipelineError

#: Controls, what turns the direction of text or breaks lines, and halves of characters.
_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
    r"\ufeff\ud800-\udfff]"
)
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")

in_ci = bool(os.environ.get("GITHUB_ACTIONS"))
console = Console(highlight=False, soft_wrap=True)
errors = Console(stderr=True, highlight=False, soft_wrap=True)

_secrets: set[str] = set()


def secret(value: str) -> str:
    """Remember ``value`` as something that is never shown; returns it."""
    if len(value) >= 4:  # noqa: PLR2004 - shorter ones would blank half of every line
        _secrets.add(value)
        if in_ci:
            # The runner undoes these; unescaped it would mask something else.
            escaped = value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
            sys.stdout.write(f"::add-mask::{escaped}\n")
    return value


def redact(text: str) -> str:
    """``text`` with every known secret blanked."""
    for value in sorted(_secrets, key=len, reverse=True):  # one may begin with another
        text = text.replace(value, "***")
    return text


def redact_all(value: Any) -> Any:
    """``value`` with every known secret blanked in the strings of its lists and dicts."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {key: redact_all(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redact_all(item) for item in value]
    return value


def safe(text: str, limit: int = 2000) -> str:
    """One line or text of a host made harmless: no escapes, no controls, bounded, redacted."""
    text = redact(_ANSI.sub("", text).replace("\r", ""))
    text = _CONTROL.sub(lambda m: f"\\x{ord(m[0]):02x}", text)
    return text if len(text) <= limit else text[:limit] + " ..."


def say(text: str, style: str | None = None) -> None:
    """Print our own text (no markup in it)."""
    console.print(escape(redact(text)), style=style)


def host_line(text: str) -> None:
    """Print one line that a host said."""
    console.print(f"[dim]│[/dim] {escape(safe(text))}")


@contextmanager
def fold(title: str) -> Iterator[None]:
    """A headline; in GitHub's logs a group that can be folded."""
    if in_ci:
        sys.stdout.write(f"::group::{safe(title).replace(chr(10), ' ')}\n")
        sys.stdout.flush()
    else:
        console.print(f"[bold]{escape(safe(title))}[/bold]")
    try:
        yield
    finally:
        if in_ci:
            sys.stdout.write("::endgroup::\n")
            sys.stdout.flush()


def bytes_progress() -> Progress:
    """Progress of transfers, in bytes."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description:<26}"),
        BarColumn(bar_width=28),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


@contextmanager
def bars() -> Iterator[Callable[[str, int, int], None]]:
    """A bar for each transfer: call it with what it is, bytes done, bytes in all (0: unknown)."""
    tasks: dict[str, TaskID] = {}
    with bytes_progress() as progress:

        def update(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(safe(what, 40), total=total or None)
            progress.update(tasks[what], completed=done, total=total or None)

        yield update


def units_progress() -> Progress:
    """Progress of counted things: compile units, resources, steps."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description:<26}"),
        BarColumn(bar_width=28),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[unit]}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def print_error(error: PipelineError) -> None:
    """What failed, why, and what to do next; to stderr and, in CI, as an annotation."""
    # Every line but the first is marked: lines of a host's log are in it, and one that begins
    # with "::" would be a command to GitHub's runner.
    lines = [safe(line) for line in error.message.splitlines()]
    message = "\n│ ".join(lines)
    errors.print(f"[bold red]{error.title} error:[/bold red] {escape(message)}")
    if error.advice:
        advice = "\n│ ".join(safe(line) for line in error.advice.splitlines())
        errors.print(f"[yellow]→[/yellow] {escape(advice)}")
    if in_ci:
        text = "%0A".join(line.replace("%", "%25") for line in lines)
        sys.stdout.write(f"::error title={error.title}::{text}\n")
