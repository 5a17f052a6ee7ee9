"""From a command's options and function to a task of invoke."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import Task, task

from pipelines.commands.options import (
    LETTERS,
    Flag,
    Options,
    Shared,
    axis_flag,
    flag_of,
)
from pipelines.target import AXES


@dataclass(frozen=True)
class Command:
    """One command: its function's docstring is its help, what it returns its exit code."""

    run: Callable[..., int | None]
    options: type[Options] = Options
    name: str = ""
    """Default: the function's."""
    on_line: bool = False
    """Whether it works on a plan: the function is then given the line as well."""

    alone: bool = False
    """Whether it stands alone on its line, for its flags mean something else than others'."""

    @property
    def called(self) -> str:
        """What is typed."""
        return self.name or self.run.__name__

    @property
    def further(self) -> str:
        """The flag whose values all its further words are; empty: it takes no such words."""
        own = _own_flags(self.options)
        return next((typed for _, typed, _, flag in own if flag.words), "")


#: The flags that hold for a whole line of commands, also those of which each has its own words.
SHARED = frozenset((*map(axis_flag, AXES), *Shared.model_fields, "dry_run"))


class Lettered(Task[Any]):
    """A task whose flags have the letters that are theirs, and no others."""

    def arg_opts(self, name: str, default: Any, taken_names: set[str]) -> dict[str, Any]:
        """As invoke's own; it would take any letter that is free."""
        made = super().arg_opts(name, default, taken_names)
        made["names"] += [letter] if (letter := LETTERS.get(name)) else []
        return made


#: For the shared flags of a command line, do it with their line; with each of a matrix's.
OnLine = Callable[[dict[str, Any], Callable[[Any], int | None]], int | None]


def as_task(command: Command, on_line: OnLine) -> Task[Any]:
    """The task; ``on_line`` has it done where it works on a plan.

    It raises invoke's ``Exit`` with the command's exit code, unless that is 0.
    """

    def body(_: Context, **given: Any) -> None:
        from pipelines.console import answering

        own = {field: given.pop(typed) for field, typed, *_ in _own_flags(command.options)}
        options = command.options.model_validate(own)
        with answering() if options.for_programs else contextlib.nullcontext():
            if command.on_line:
                code = on_line(given, lambda line: command.run(line, options))
            else:
                code = command.run(options, given) if given else command.run(options)
        if code:
            raise Exit(code=code)

    helps, counted, many = {}, [], []
    parameters = [inspect.Parameter("_", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    for name, default, flag in sorted(_flags(command.options), key=lambda one: one[1] is not _NONE):
        helps[name] = flag.help
        counted += [name] if flag.counted else []
        many += [name] if isinstance(default, tuple) else []
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=_typed(default),
            )
        )
    body.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    body.__name__, body.__doc__ = command.called, command.run.__doc__
    made: Task[Any] = task(
        klass=Lettered, auto_shortflags=False, help=helps, incrementable=counted, iterable=many
    )(body)
    return made


_NONE = inspect.Parameter.empty


def _typed(default: Any) -> Any:
    """A default as invoke is told of it, which reads what is typed as it is of its type.

    Numbers are text to it: it would end with a traceback where our own reading says what is wrong.
    """
    if isinstance(default, tuple):
        return []
    return f"{default:g}" if isinstance(default, float) else default


def _own_flags(options: type[Options]) -> Iterable[tuple[str, str, Any, Flag]]:
    """The flags of a command of its own: the field, what is typed, its default, what it means."""
    for name, field in options.model_fields.items():
        if (flag := flag_of(field)) is not None:
            default = _NONE if field.is_required() else field.get_default()
            yield name, flag.name or name, default, flag


def _flags(options: type[Options]) -> Iterable[tuple[str, Any, Flag]]:
    """Every flag of a command: its name, its default, what it means."""
    for axis in options.axes:
        about = AXES[axis]
        said = about.several if options.several else ""
        yield axis_flag(axis), None, Flag(said or about.help)
    for name in options.shared:
        field = Shared.model_fields[name]
        shared = flag_of(field)
        assert shared is not None  # noqa: S101 - all of them are flags
        yield name, field.get_default(), shared
    for _, typed, default, flag in _own_flags(options):
        yield typed, default, flag
