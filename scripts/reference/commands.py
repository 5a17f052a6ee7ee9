"""A page of each command: what it does, its words and its flags, as ``--help`` has them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from invoke.util import helpline

from pipelines.cli.helptext import OF_PROGRAM, flags_of, flags_of_program, positional_rows
from pipelines.cli.options import EVERYWHERE
from pipelines.cli.program import COMMANDS
from scripts.reference.markdown import block, cell, code, page, table, text

_UP = "../../"


def pages(docs: Path) -> dict[str, str]:
    """File name -> its text; ``docs`` says which command has a document of its own.

    Commands of two words that begin alike, such as ``host start``, stand on one page.
    """
    grouped = [(key, [*names]) for key, names in groupby(COMMANDS, lambda one: one.split(".")[0])]
    made = {"README.md": _index(grouped)}
    for key, names in grouped:
        parts = [_guide(key, docs)]
        for name in names:
            if len(names) > 1:
                parts.append(f"## {name.replace('.', ' ')}")
            parts += _command(name)
        parts.append(
            f"Flags of every command, as [the others](README.md#flags-of-every-command): "
            f"{', '.join(code(f'--{name}') for name in EVERYWHERE)}."
        )
        made[f"{key}.md"] = page(f"wcw {key}", *parts)
    return made


def _guide(key: str, docs: Path) -> str:
    """Where it is described at length, if it is."""
    there = (docs / f"{key}.md").is_file()
    return f"How it is used: [{key}.md]({_UP}{key}.md)." if there else ""


def _command(name: str) -> Iterator[str]:
    command = COMMANDS[name]
    words = positional_rows(command)
    typed = name.replace(".", " ")
    yield block([" ".join(["Usage: wcw", typed, *(word for word, _ in words), "[FLAGS]"])])
    for paragraph in (inspect.getdoc(command.run) or "").split("\n\n"):
        yield text(paragraph, up=_UP)
    if words:
        yield _table("word", words)
    if flags := flags_of(command.arguments):
        yield _table("flag", flags)


def _table(what: str, rows: Iterable[tuple[str, str]]) -> str:
    return table([what, "what it means"], ((code(left), cell(says, up=_UP)) for left, says in rows))


def _index(grouped: Iterable[tuple[str, list[str]]]) -> str:
    rows = [
        (
            f"[{name.replace('.', ' ')}]({key}.md{_anchor(name)})",
            cell(helpline(COMMANDS[name].task) or ""),
        )
        for key, names in grouped
        for name in names
    ]
    return page(
        "Commands",
        "`./wcw` works in a checkout, whatever is on PATH; `wcw` and `invoke` take the same "
        "commands where the project is installed or its environment is activated. Several commands "
        "on a line are one order: `wcw provision build test --python 3.12`. A flag holds for all "
        "of them, wherever it stands.",
        table(["command", "what it does"], rows),
        "## Flags of every command",
        _table("flag", flags_of_program(OF_PROGRAM)),
        "Exit status: [exit codes](../exit-codes.md).",
    )


def _anchor(name: str) -> str:
    return f"#{name.replace('.', '-')}" if "." in name else ""
