"""What ``--help`` prints: the commands in the order of a day's work, or one command's flags."""

from __future__ import annotations

import inspect
import shutil
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path

from invoke.parser.argument import Argument
from invoke.util import helpline

from pipelines.cli.command import Command
from pipelines.cli.options import EVERYWHERE, program_arguments
from pipelines.core.called import as_typed
from pipelines.core.paths import DOCUMENTS

_WIDEST = 100  # characters
_SOME = 20  # what a description is given, however narrow the terminal
#: What the program's own page shows of the flags that may stand anywhere.
OF_PROGRAM = ("help", "version", "quiet", "verbose", "print-completion-script")
Rows = list[tuple[str, str]]


def program_help(commands: Mapping[str, Command]) -> str:
    """How to call the program, its commands and its flags."""
    summaries = [(name, helpline(one.task) or "") for name, one in commands.items()]
    return "\n".join(
        (
            "Usage: wcw COMMAND [FLAGS] [COMMAND [FLAGS]] ...",
            "",
            "Windows CUDA wheels, built and proven from any machine.",
            "",
            *_columns("Commands:", summaries),
            *_columns("Flags:", flags_of_program(OF_PROGRAM)),
            "wcw COMMAND --help shows the flags of a command. On a line of several commands,",
            "such as wcw provision build test --python 3.12, they hold for all of them.",
        )
    )


def command_help(name: str, command: Command) -> str:
    """What a command does, and its flags."""
    words = positional_rows(command)
    return "\n".join(
        (
            f"Usage: {' '.join(['wcw', name, *(word for word, _ in words), '[FLAGS]'])}",
            "",
            _paragraphs(inspect.getdoc(command.run) or ""),
            "",
            *_columns("Words:", words),
            *_columns("Flags:", flags_of(command.arguments)),
            *_columns("Flags of every command:", flags_of_program(EVERYWHERE)),
        )
    ).rstrip("\n")


def _paragraphs(text: str) -> str:
    """As wide as the terminal; docstrings are as wide as their files."""
    return "\n\n".join(_fill_help_text(part, _width()) for part in text.split("\n\n"))


def _fill_help_text(text: str, width: int) -> str:
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)


def _width() -> int:
    return min(shutil.get_terminal_size().columns, _WIDEST)


def positional_rows(command: Command) -> Rows:
    """The words that a command takes by their place, and what each means."""
    rows = []
    for one in command.arguments:
        if one.positional:
            name = str(one.name).upper()
            rows.append((f"[{name} ...]" if one.kind is list else name, one.help or ""))
    return rows


def flags_of_program(names: Iterable[str]) -> Rows:
    """The flags of the program that are called so, in that order."""
    known = {one.name: one for one in program_arguments()}
    return flags_of(known[name] for name in names)


def flags_of(arguments: Iterable[Argument]) -> Rows:
    """Each flag as it is typed, and what it means; words are none, but those that may follow."""
    rows = []
    for argument in arguments:
        if not argument.positional or argument.kind is list:
            letters = "".join(f"-{one}, " for one in argument.nicknames)
            value = " VALUE" if argument.takes_value and not argument.optional else ""
            rows.append((f"{letters}--{argument.names[0]}{value}", argument.help or ""))
    return rows


def _columns(title: str, rows: Rows) -> list[str]:
    """Rows of two columns under a title, with an empty line below; nothing without rows.

    Flags without a letter stand where those with one do; commands are shown as they can be typed.
    """
    if not rows:
        return []
    rows = [
        (f"    {left}" if left.startswith("--") else left, as_typed(says)) for left, says in rows
    ]
    first = max(len(left) for left, _ in rows) + 4
    room = max(_width() - first, _SOME)
    lines = [title]
    for left, right in rows:
        shown = _fill_help_text(right, room).replace("\n", "\n" + " " * first)
        lines.append(f"  {left}".ljust(first) + shown)
    if any("docs/" in right for _, right in rows) and not Path("docs/README.md").is_file():
        lines.append(f"  docs/ is {DOCUMENTS / 'docs'}")
    return [*lines, ""]
