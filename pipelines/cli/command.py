"""A command: a task of invoke, and the flags of a line that it takes."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from invoke.context import Context
from invoke.exceptions import Exit
from invoke.parser.argument import Argument
from invoke.parser.context import ParserContext
from invoke.tasks import Task

from pipelines.cli.options import LETTERS, Flags, shared_flag_arguments

_JSON = "print one JSON object, and nothing else"


@dataclass(frozen=True)
class Command:
    """What :func:`command` makes of a function."""

    run: Callable[..., int | None]
    """The function itself."""
    task: Task[Any]
    shared: frozenset[str]
    """The flags of a line that it takes."""
    arguments: tuple[Argument, ...]
    """Those, and the parameters of the task."""
    on_line: bool
    alone: bool
    """Whether it stands alone on its line, for its flags mean something else than others'."""

    def context(self, name: str, *more: Argument) -> ParserContext:
        """As invoke parses it."""
        return ParserContext(name, args=(*self.arguments, *more))


def command(
    *,
    shared: tuple[str, ...] = (),
    help: Mapping[str, str] = MappingProxyType({}),
    name: str = "",
    several: bool = False,
    many: tuple[str, ...] = (),
    further: str = "",
    on_line: bool = False,
    alone: bool = False,
) -> Callable[[Callable[..., int | None]], Command]:
    """Make a function a command: its docstring is its help, what it returns its exit code.

    Its first parameter is the open line with ``on_line``, else those flags of ``shared`` that hold
    for it. The others are its words, which have no default, and its own flags; those of ``many``
    may be given several times, and all further words are values of ``further``. With ``several``
    an axis may have several values.
    """
    more = (further,) if further else ()

    def made(run: Callable[..., int | None]) -> Command:
        @functools.wraps(run)
        def body(_: Context, *, flags: Flags = MappingProxyType({}), **own: Any) -> None:
            from pipelines.core.console import reserve_stdout

            # What a program reads stands alone on standard output.
            answers = own.get("json") or own.get("format", "table") != "table"
            with reserve_stdout() if answers else contextlib.nullcontext():
                code = _on_line(run, flags, own, shared) if on_line else run(flags, **own)
            if code:
                raise Exit(code=code)

        parameters = dict([*inspect.signature(run).parameters.items()][1:])
        words = [key for key, one in parameters.items() if one.default is one.empty]
        made: Task[Any] = Task(
            body,
            name=name or run.__name__,
            auto_shortflags=False,
            help={**help, **({"json": _JSON} if "json" in parameters else {})},
            positional=[*words, *more],
            iterable=[*many, *more],
        )
        own = made.get_arguments()
        for argument in own:
            argument.names = (*argument.names, *LETTERS.get(argument.names[0], ""))
        return Command(
            run=run,
            task=made,
            shared=frozenset(shared),
            arguments=(*shared_flag_arguments(shared, several=several), *own),
            on_line=on_line,
            alone=alone,
        )

    return made


def _on_line(
    run: Callable[..., int | None],
    flags: Flags,
    own: Mapping[str, Any],
    shared: Container[str],
) -> int | None:
    """Run it with the line of the flags; with --select with that of each cell."""
    from pipelines.cli.cells import open_matrix
    from pipelines.cli.lines import open_line

    if flags.get("select") and "select" in shared:
        open_matrix(flags).each(lambda line: run(line, **own))
        return None
    return run(open_line(flags), **own)
