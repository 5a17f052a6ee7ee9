"""What a person sees: progress, tables, folds in CI logs, errors; and nothing a host may forge.

Text from a host is data: escape sequences and control characters are made visible before they
reach a terminal, and known secrets are blanked in everything that is printed or kept.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, TextIO

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
from rich.text import Text

from pipelines.core import github
from pipelines.core.called import with_pages
from pipelines.core.errors import PipelineError
from pipelines.core.hosttext import redact, redact_all, safe_text
from pipelines.core.observer import current_observer
from pipelines.core.tables import Trimming, between_words


class _Ours(Console):
    """A console that passes what one of several parallel jobs prints to that job's observer."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print here, or through the job's observer."""
        one = current_observer()
        (super().print if one is None else one.console.print)(*objects, **options)

    @property
    def is_terminal(self) -> bool:
        """Whether it is watched live, which one of several runs is not."""
        return current_observer() is None and super().is_terminal


console = _Ours(highlight=False, soft_wrap=True)
errors = _Ours(stderr=True, highlight=False, soft_wrap=True)
for _one in (console, errors):
    _one.push_render_hook(Trimming())
    if not _one.width:  # nothing would be shown
        _one.width = 80


_answers: TextIO | None = None


@contextmanager
def reserve_stdout() -> Iterator[None]:
    """Within it :func:`print_json` alone writes to stdout; all other messages go to stderr."""
    global _answers  # noqa: PLW0603
    before = _answers
    _answers = before or sys.stdout
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _answers = before


def print_json(data: Any) -> None:
    """Print ``data`` as JSON, in ASCII; known secrets are blanked. Text is JSON already."""
    text = redact(data) if isinstance(data, str) else _format_json(redact_all(data))
    stream = _answers or sys.stdout
    stream.write(text + "\n")
    stream.flush()


def _format_json(data: Any) -> str:
    return json.dumps(data, indent=1, allow_nan=False)


def say(text: str, style: str | None = None) -> None:
    """Print our own text (no markup in it)."""
    console.print(escape(in_words(redact(with_pages(text)), console)), style=style)


def in_words(text: str, where: Console) -> str:
    """For a terminal, which itself breaks lines anywhere: broken between words, paths whole.

    Not in CI, where a line that begins with a host's words could be a command to the runner.
    """
    if not where.is_terminal or github.in_ci:
        return text
    lines = (between_words(Text(line), where.width) for line in text.splitlines())
    return "\n".join(line.plain for line in lines)


def host_line(text: str) -> None:
    """Print one line that a host said."""
    console.print(f"[dim]│[/dim] {escape(safe_text(text))}")


@contextmanager
def log_group(title: str) -> Iterator[None]:
    """A headline; in GitHub's logs a group that can be folded."""
    grouped = github.in_ci and current_observer() is None
    if grouped:
        github.write_command(f"::group::{safe_text(title).replace(chr(10), ' ')}")
    else:
        console.print(f"[bold]{escape(safe_text(title))}[/bold]")
    try:
        yield
    finally:
        if grouped:
            github.write_command("::endgroup::")


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
def transfer_progress() -> Iterator[Callable[[str, int, int], None]]:
    """A bar for each transfer: call it with what it is, bytes done, bytes in all (0: unknown)."""
    tasks: dict[str, TaskID] = {}
    with bytes_progress() as progress:

        def update(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(safe_text(what, 40), total=total or None)
            progress.update(tasks[what], completed=done, total=total or None)

        yield update


def units_progress() -> Progress:
    """Progress of counted things; a task's ``left`` says how long it will take, its ``unit`` what.

    Both are asked for as text each time the bar is drawn.
    """
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),  # with all that follows it fits 80 columns
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        TextColumn("[dim]{task.fields[unit]}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def print_error(error: PipelineError) -> None:
    """What failed, why, and what to do next; to stderr and, in CI, as an annotation."""
    # Every line but the first is marked: lines of a host's log are in it, and one that begins
    # with "::" would be a command to GitHub's runner.
    lines = [safe_text(line) for line in with_pages(error.message).splitlines()]
    message = in_words(f"{error.label}: " + "\n│ ".join(lines), errors)
    errors.print(f"[bold red]{error.label}:[/bold red]{escape(message[len(error.label) + 1 :])}")
    if error.hint:
        hint = "\n│ ".join(safe_text(line) for line in with_pages(error.hint).splitlines())
        errors.print(f"[yellow]→[/yellow]{escape(in_words(f'→ {hint}', errors)[1:])}")
    if github.in_ci and current_observer() is None:
        github.write_command(github.workflow_command("error", "\n".join(lines), title=error.title))
