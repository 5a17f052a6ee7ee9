"""Converts a command line to a form that invoke's parser understands correctly.

That parser takes whatever comes next as a command's arguments, even ``--help``; it takes no more of
them than it has names for, knows no commands of two words, and reports errors only as prose. So
every word is checked here first: errors name the nearest valid one, and the result is ``--flag``
and ``--flag=value`` of the program, then each command with its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Never

from invoke.parser.argument import Argument
from invoke.parser.context import ParserContext

from pipelines.core.errors import ConfigError
from pipelines.core.model import suggest_nearest

#: Of invoke itself: who types them would have it done for real if they were passed over.
_REFUSED = ("--dry", "-R")
_MEANT = "Did you mean '{}'? "
#: What people type for a command that is called otherwise.
_OTHERWISE = {
    "install": "provision",
    "list": "plan",
    "sandbox": "hosts', 'host start' or 'host stop",
    "clean": "cache --prune",
}
Contexts = Mapping[str, ParserContext]


def normalize_command_line(
    words: Sequence[str], program: ParserContext, commands: Contexts
) -> list[str]:
    """The line as ``--help``, or as above; :class:`ConfigError` for a word that means nothing.

    ``program`` has the flags that may stand anywhere. A word whose kind is a list stands for all
    further words of its command.
    """
    if not words:
        return ["--help"]
    if words[0] in ("help", "version"):  # as many programs take them
        words = [f"--{words[0]}", *words[1:]]
    for at, word in enumerate(words):
        if word in ("-h", "--help"):  # whatever else is wrong with the line
            before, after = (
                _find_commands(words[:at], commands),
                _find_commands(words[at + 1 :], commands),
            )
            return ["--help", *(before[-1:] or after[:1])]
    return _Reader(program, commands, [*words]).read()


def _find_commands(words: Sequence[str], commands: Contexts) -> list[str]:
    """The commands among ``words``."""
    rest, found = [*words], []
    while rest:
        if (name := _pop_command(rest, commands)) is not None:
            found.append(name)
        else:
            del rest[0]
    return found


def _pop_command(rest: list[str], commands: Contexts) -> str | None:
    """The command, of two words or of one, that ``rest`` begins with, which is taken off it."""
    for many in (2, 1):
        if (name := ".".join(rest[:many])) in commands:
            del rest[:many]
            return name
    return None


class _Part:
    """What was read of a command; the first part of a line is the program."""

    def __init__(self, context: ParserContext) -> None:
        self.context, self.name = context, context.name or ""
        self.required = [one for one in context.positional_args if one.kind is not list]
        self.further = next((one for one in context.positional_args if one.kind is list), None)
        self.given: set[str] = set()
        self.words: list[str] = []

    @property
    def missing(self) -> list[Argument]:
        return [one for one in self.required if str(one.name) not in self.given]

    def give(self, argument: Argument, flag: str, value: str | None) -> None:
        if value == "":  # as good as no flag: a variable of a script that is not set
            raise ConfigError(
                f"{_flag(argument)}: its value is empty", hint="Give one, or leave the flag out."
            )
        if argument.takes_value and argument.kind is not list and argument.name in self.given:
            raise ConfigError(f"{flag} is given twice", hint="Leave one of them out.")
        self.given.add(str(argument.name))
        self.words.append(flag if value is None else f"{flag}={value}")


class _Reader:
    """Reads a line, word by word."""

    def __init__(self, program: ParserContext, commands: Contexts, rest: list[str]) -> None:
        self._commands, self._rest = commands, rest
        self._program = self._part = _Part(program)
        self._parts = [self._program]
        self._bare = ""
        """The flag without a value that stands before the next word."""
        self._valued = ""
        """The flag and its value that stand before it."""

    def read(self) -> list[str]:
        while self._rest:
            if self._rest[0].startswith("-"):
                self._read_flag(self._rest.pop(0))
            else:
                self._read_word()
                self._bare = self._valued = ""
        for part in self._parts:
            if part.missing:
                raise ConfigError(
                    f"{part.name}: {_upper(part.missing)} is missing",
                    hint=f"Type: wcw {part.name} {_upper(part.required)}",
                )
            for name in self._program.given & part.context.args.keys():  # --gpu audit FILE
                meant: Argument = part.context.args[name]
                if meant.takes_value and not self._program.context.args[name].takes_value:
                    raise _no_value(meant)
        return [word for part in self._parts for word in (part.name, *part.words) if word]

    def _read_word(self) -> None:
        wanted = self._part.missing[0] if self._part.missing else None
        if wanted is None:
            if (name := _pop_command(self._rest, self._commands)) is not None:
                self._part = _Part(self._commands[name])
                self._parts.append(self._part)
                return
            wanted = self._part.further
        if wanted is None:
            self._refuse_word(self._rest[0])
        self._part.give(wanted, _flag(wanted), self._rest.pop(0))

    def _read_flag(self, word: str) -> None:
        flag, given, value = word.partition("=")
        if self._find(f"-{flag}") is not None and len(flag) > len("-x"):  # -recipe
            self._found(flag)
        if not flag.startswith("--") and len(flag) > len("-x"):  # -j2, -vq
            flag, value = word[:2], word[2:]
            given = "=" if self._found(flag).takes_value else ""
            if not given:
                self._rest.insert(0, f"-{value}")
        argument = self._found(flag)
        part = self._part if flag in self._part.context.flags else self._program
        if not argument.takes_value:
            self._bare, self._valued = flag, ""
            if given:
                self._refuse_word(value)
            part.give(argument, flag, None)
            return
        if not given and self._rest:
            value, given = self._rest.pop(0), " "
        if not given or self._find(value) is not None:  # the parser would take it for that flag
            raise _no_value(argument)
        self._bare, self._valued = "", f"{flag} '{value}"
        part.give(argument, flag, value)

    def _find(self, flag: str) -> Argument | None:
        for context in (self._part.context, self._program.context):
            if flag in context.flags:
                found: Argument = context.flags[flag]
                return found
        return None

    def _found(self, flag: str) -> Argument:
        if (found := self._find(flag)) is not None:
            return found
        if flag == "--":
            raise ConfigError("--: there is no program to pass arguments to", hint="Leave it out.")
        if flag in _REFUSED:
            raise ConfigError(
                f"{flag}: there is no such flag",
                hint="Put --dry-run after the command: wcw build --dry-run, "
                "wcw provision --dry-run.",
            )
        known = sorted({*self._part.context.flags, *self._program.context.flags})
        theirs = ", ".join(name for name, one in self._commands.items() if flag in one.flags)
        longer = [one for one in known if flag.startswith(f"{one}-")]  # --cuda-version
        near = suggest_nearest(flag, longer or known, _MEANT)
        hint = f"It is a flag of: {theirs}. " if theirs else near
        name = self._part.name
        raise ConfigError(
            f"unknown flag '{flag}'{f' for {name}' if name else ''}",
            hint=f"{hint}Type: wcw {f'{name} ' if name else ''}--help",
        )

    def _refuse_word(self, word: str) -> Never:
        self._refuse_value(word)
        near = suggest_nearest(word, [*self._commands], _MEANT)
        if word in _OTHERWISE:
            near = _MEANT.format(_OTHERWISE[word])
        if group := [name for name in self._commands if name.startswith(f"{word}.")]:
            near = f"There are: {', '.join(group).replace('.', ' ')}. "
        if self._bare and not near:
            raise ConfigError(
                f"'{word}' is not a command, and {self._bare} takes no value",
                hint=f"Leave it out, or type: wcw {self._part.name} --help",
            )
        raise ConfigError(f"unknown command '{word}'", hint=f"{near}Type: wcw --help")

    def _refuse_value(self, word: str) -> None:
        """A word that is a recipe's name, or goes on with the value of a flag."""
        from pipelines.recipe.load import recipe_names

        names = {name.lower(): name for name in recipe_names()}
        if "recipe" in self._part.context.args and (
            name := names.get(word.lower().replace("_", "-"))
        ):
            raise ConfigError(
                f"'{word}' is a recipe, which is named with a flag",
                hint=f"Type: wcw {self._part.name} --recipe {name}",
            )
        if self._valued and word[:1].isdigit():
            raise ConfigError(
                f"'{word}' is no command",
                hint=f"Quote a value that has spaces: {self._valued} {word}'.",
            )


def _flag(argument: Argument) -> str:
    return f"--{argument.names[0]}"


def _no_value(argument: Argument) -> ConfigError:
    flag = _flag(argument)
    about = f" ({argument.help})" if argument.help else ""
    return ConfigError(f"{flag}: a value is missing", hint=f"Such as {flag} VALUE{about}.")


def _upper(arguments: Iterable[Argument]) -> str:
    return " ".join(str(one.name).upper() for one in arguments)
