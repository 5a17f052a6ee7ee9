"""What ``--help`` prints: the commands in the order of a day's work, or one command's flags."""

from __future__ import annotations

import inspect
import shutil
import textwrap
from collections.abc import Iterable

from invoke.collection import Collection
from invoke.parser.context import ParserContext
from invoke.util import helpline

from pipelines.called import as_typed
from pipelines.commands.words import anywhere

_WIDEST = 100  # characters
_SOME = 20  # what a description is given, however narrow the terminal
#: What the program's own page shows of the flags that may stand anywhere.
OF_PROGRAM = ("help", "version", "quiet", "verbose", "print-completion-script")
EVERYWHERE = ("help", "quiet", "verbose")


def of_program(commands: Collection, names: Iterable[str]) -> str:
    """How to call the program, its commands and its flags."""
    summaries = [(name, helpline(commands[name]) or "") for name in names]
    return "\n".join(
        (
            "Usage: wcw COMMAND [FLAGS] [COMMAND [FLAGS]] ...",
            "",
            "Windows CUDA wheels, built and proven from any machine.",
            "",
            *_columns("Commands:", summaries),
            *_columns("Flags:", flags_of(anywhere(), OF_PROGRAM)),
            "wcw COMMAND --help tells the flags of a command. On a line of several commands,",
            "such as wcw provision build test --python 3.12, they hold for all of them.",
        )
    )


def of_command(commands: Collection, context: ParserContext, further: str = "") -> str:
    """What a command does, and its flags; ``further``: as for :func:`words_of`."""
    name = str(context.name)
    words = words_of(context, further)
    return "\n".join(
        (
            f"Usage: {' '.join(['wcw', name, *(word for word, _ in words), '[FLAGS]'])}",
            "",
            inspect.getdoc(commands[name]) or "",
            "",
            *_columns("Words:", words),
            *_columns("Flags:", own_flags(context)),
            *_columns("Of every command:", flags_of(anywhere(), EVERYWHERE)),
        )
    ).rstrip("\n")


def words_of(context: ParserContext, further: str = "") -> list[tuple[str, str]]:
    """The words that a command takes by their place, and what each means.

    ``further`` is the flag whose values all its further words are, if it takes such.
    """
    placed = [(str(one.name).upper(), one.help or "") for one in context.positional_args]
    more = [(f"[{further.upper()} ...]", context.args[further].help or "")] if further else []
    return placed + more


def own_flags(context: ParserContext) -> list[tuple[str, str]]:
    """The flags of a command but for those of every command, and what each means."""
    own = (key for key, one in context.args.items() if key not in EVERYWHERE and not one.positional)
    return flags_of(context, own)


def flags_of(context: ParserContext, names: Iterable[str]) -> list[tuple[str, str]]:
    """Each flag as it is typed, and what it means."""
    rows = []
    for name in names:
        argument = context.args[name]
        letters = [f"-{one}, " for one in argument.names if len(one) == 1]
        value = " VALUE" if argument.takes_value else ""
        rows.append((f"{letters[0] if letters else ''}--{name}{value}", argument.help or ""))
    return rows


def _columns(title: str, rows: list[tuple[str, str]]) -> list[str]:
    """Rows of two columns under a title, with an empty line below; nothing without rows.

    Flags without a letter stand where those with one do; commands are shown as they can be typed.
    """
    if not rows:
        return []
    rows = [
        (f"    {left}" if left.startswith("--") else left, as_typed(says)) for left, says in rows
    ]
    first = max(len(left) for left, _ in rows) + 4
    room = max(min(shutil.get_terminal_size().columns, _WIDEST) - first, _SOME)
    lines = [title]
    for left, right in rows:
        wrapped = textwrap.wrap(right, room) or [""]
        lines.append(f"  {left}".ljust(first) + wrapped[0])
        lines += [" " * first + more for more in wrapped[1:]]
    return [*lines, ""]
