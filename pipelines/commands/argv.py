"""A command line in the form in which invoke's parser takes it as it is meant.

That parser fills the words of a command with whatever comes next, also with ``--help``; it takes no
more words than it has names for, knows no commands of two words, and says what is wrong in prose
alone. So every word is looked at here first. What is wrong is an error with what is near; what
remains is ``--flag`` and ``--flag=value`` of the program, then each command with its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Never

from invoke.parser.argument import Argument
from invoke.parser.context import ParserContext

from pipelines.errors import ConfigError
from pipelines.model import nearest

_HELP = ("-h", "--help")
#: Of invoke itself: who types them would have it done for real if they were passed over.
_REFUSED = ("--dry", "-R")
_MEANT = "Did you mean '{}'? "


@dataclass(frozen=True)
class Grammar:
    """What may stand on a line."""

    program: ParserContext
    """The flags that may stand anywhere."""
    commands: Mapping[str, ParserContext]
    further: Mapping[str, str]
    """Commands of which each further word is a value of that flag."""


@dataclass
class _Part:
    """What was read of a command; the first part of a line is the program."""

    context: ParserContext
    given: set[str] = field(default_factory=set)
    words: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.context.name or ""

    @property
    def missing(self) -> list[Argument]:
        return [one for one in self.context.positional_args if str(one.name) not in self.given]

    def give(self, argument: Argument, flag: str, value: str | None) -> None:
        if value == "":  # as good as no flag: a variable of a script that is not set
            raise ConfigError(
                f"{_long(argument)}: its value is empty", advice="Give one, or leave the flag out."
            )
        if argument.takes_value and argument.kind is not list and argument.name in self.given:
            raise ConfigError(f"{flag} stands there twice", advice="Leave one of them out.")
        self.given.add(str(argument.name))
        self.words.append(flag if value is None else f"{flag}={value}")


def normalised(words: Sequence[str], grammar: Grammar) -> list[str]:
    """The line as ``--help``, or as above; :class:`ConfigError` for a word that means nothing."""
    if not words:
        return ["--help"]
    for at, word in enumerate(words):
        if word in _HELP:  # whatever else is wrong with the line
            before, after = (
                [part.name for part in _commands(some, grammar.commands)]
                for some in (words[:at], words[at + 1 :])
            )
            return ["--help", *(before[-1:] or after[:1])]
    return _Reader(grammar, [*words]).read()


def _commands(words: Sequence[str], commands: Mapping[str, ParserContext]) -> list[_Part]:
    """The commands among ``words``, also those of two words."""
    rest, found = [*words], []
    while rest:
        if (part := _command(rest, commands)) is not None:
            found.append(part)
        else:
            del rest[0]
    return found


def _command(rest: list[str], commands: Mapping[str, ParserContext]) -> _Part | None:
    """The command that ``rest`` begins with, which is taken off it."""
    for many in (2, 1):
        if (context := commands.get(".".join(rest[:many]))) is not None:
            del rest[:many]
            return _Part(context)
    return None


class _Reader:
    """Reads a line, word by word."""

    def __init__(self, grammar: Grammar, rest: list[str]) -> None:
        self._grammar = grammar
        self._parts = [_Part(grammar.program)]
        self._rest = rest
        self._before = ""
        """The flag without a value that stands before the next word."""

    def read(self) -> list[str]:
        while self._rest:
            if self._rest[0].startswith("-"):
                self._flag(self._rest.pop(0))
            else:
                self._word()
        for part in self._parts:
            if part.missing:
                raise ConfigError(
                    f"{part.name}: {_upper(part.missing)} is missing",
                    advice=f"Type: wcw {part.name} {_upper(part.context.positional_args)}",
                )
            for name in self._parts[0].given & part.context.args.keys():
                meant: Argument = part.context.args[name]
                if meant.takes_value and not self._grammar.program.args[name].takes_value:
                    raise _no_value(meant)  # --gpu audit FILE
        return [word for part in self._parts for word in (part.name, *part.words) if word]

    def _word(self) -> None:
        part = self._parts[-1]
        if part.missing:
            argument = part.missing[0]
            part.give(argument, _long(argument), self._rest.pop(0))
        elif (command := _command(self._rest, self._grammar.commands)) is not None:
            self._parts.append(command)
        elif further := self._grammar.further.get(part.name):
            part.give(part.context.args[further], f"--{further}", self._rest.pop(0))
        else:
            self._no_command(self._rest[0])
        self._before = ""

    def _flag(self, word: str) -> None:
        name, given, value = word.partition("=")
        if not name.startswith("--") and len(name) > len("-x"):  # -j2, -vq
            name, value = word[:2], word[2:]
            given = "stuck" if self._found(name).takes_value else ""
            if not given:
                self._rest.insert(0, f"-{value}")
        flag = self._found(name)
        if flag.takes_value and not given:
            if not self._rest or self._find(self._rest[0]) is not None:
                raise _no_value(flag)
            value = self._rest.pop(0)
        self._before = "" if flag.takes_value else name
        if given and not flag.takes_value:
            self._no_command(value)
        part = self._parts[-1] if name in self._parts[-1].context.flags else self._parts[0]
        part.give(flag, name, value if flag.takes_value else None)

    def _find(self, flag: str) -> Argument | None:
        for context in (self._parts[-1].context, self._grammar.program):
            if flag in context.flags:
                found: Argument = context.flags[flag]
                return found
        return None

    def _found(self, flag: str) -> Argument:
        """The flag of that name, of the command or of the program."""
        if (found := self._find(flag)) is not None:
            return found
        if flag == "--":
            raise ConfigError("--: nothing is passed on to another program", advice="Leave it out.")
        if flag in _REFUSED:
            raise ConfigError(
                f"{flag}: there is no such flag",
                advice="Say --dry-run after the command: wcw build --dry-run, "
                "wcw provision --dry-run.",
            )
        context, commands = self._parts[-1].context, self._grammar.commands
        known = sorted({*context.flags, *self._grammar.program.flags})
        theirs = ", ".join(name for name, one in commands.items() if flag in one.flags)
        hint = f"It is a flag of: {theirs}. " if theirs else nearest(flag, known, _MEANT)
        name = context.name
        raise ConfigError(
            f"unknown flag '{flag}'{f' for {name}' if name else ''}",
            advice=f"{hint}Type: wcw {f'{name} ' if name else ''}--help",
        )

    def _no_command(self, word: str) -> Never:
        near = nearest(word, [*self._grammar.commands], _MEANT)
        if self._before and not near:
            raise ConfigError(
                f"'{word}' is no command, and {self._before} takes no value",
                advice=f"Leave it out, or type: wcw {self._parts[-1].name} --help",
            )
        raise ConfigError(f"unknown command '{word}'", advice=f"{near}Type: wcw --help")


def _long(argument: Argument) -> str:
    return f"--{argument.names[0]}"


def _no_value(argument: Argument) -> ConfigError:
    flag = _long(argument)
    return ConfigError(f"{flag}: a value is missing", advice=f"Such as {flag} VALUE.")


def _upper(arguments: Iterable[Argument]) -> str:
    return " ".join(str(one.name).upper() for one in arguments)
