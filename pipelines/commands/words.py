"""What the words of a command line mean; what is wrong with them, and what is near."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from invoke.exceptions import ParseError
from invoke.parser import Parser
from invoke.parser.argument import Argument
from invoke.parser.context import ParserContext
from invoke.parser.parser import ParseResult

from pipelines.commands.command import Command, as_task
from pipelines.commands.options import ALL, Options, Shared
from pipelines.errors import ConfigError
from pipelines.model import nearest

#: Flags that people know from elsewhere -> what to type instead.
REFUSED = {
    "--dry": "Say --dry-run after the command: wcw build --dry-run, wcw provision --dry-run.",
    "-R": "Say --dry-run after the command: wcw build --dry-run, wcw provision --dry-run.",
}
HELP = ("-h", "--help")
_MEANT = "Did you mean '{}'? "
#: Flags that mean the same wherever they stand, and take no value.
FREE = re.compile(r"-[vq]+|--verbose|--quiet")
#: What invoke's parser says -> what we say; {} is what it names.
_SAID = (
    (r"Flag <Argument: ([\w-]+).* needed value", "--{}: a value is missing", "Such as --{} VALUE."),
    (r"Flag <Argument: ([\w-]+).* doesn't take any", "--{} takes no value", "Say it alone."),
)


class LineOptions(Options):
    """Every flag that may stand anywhere on a line."""

    axes = ALL
    shared = tuple(Shared.model_fields)


def anywhere() -> ParserContext:
    """The flags that may stand anywhere: those of the program, and those of a whole line."""
    line = as_task(Command(lambda: None, LineOptions, "line"), lambda *_: None).get_arguments()
    own = [
        Argument(names=("help", "h"), kind=bool, default=False, help="this, or a command's flags"),
        Argument(names=("version", "V"), kind=bool, default=False, help="say which version it is"),
        Argument(names=("list", "l"), kind=bool, default=False, help="list the commands"),
        Argument(
            names=("print-completion-script",),
            help="completion for bash, zsh or fish, to be sourced",
        ),
    ]
    return ParserContext(args=[*own, *line])


def parse(words: Sequence[str], contexts: Sequence[ParserContext]) -> ParseResult:
    """What was typed: the flags of the line, then each command with its own.

    Raises :class:`ConfigError` for a word that is none, with the nearest one.
    """
    if "--" in words:
        raise ConfigError("--: nothing is passed on to another program", advice="Leave it out.")
    for word in words:
        if cure := REFUSED.get(word):
            raise ConfigError(f"{word}: there is no such flag", advice=cure)
    start = anywhere()
    # First, or a command that lacks a word would take them for it.
    free = [word for word in words if FREE.fullmatch(word)]
    rest = [word for word in words if not FREE.fullmatch(word)]
    try:
        typed = Parser(initial=start, contexts=contexts).parse_argv(free + rest)
    except ParseError as error:
        raise _explained(error, words, start, contexts) from None
    for argument in (one for context in typed for one in context.args.values()):
        # Nothing would be as good as no flag: a variable of a script that is not set.
        given = argument.value if isinstance(argument.value, list) else [argument.value]
        if argument.got_value and "" in given:
            raise ConfigError(
                f"--{argument.name.rstrip('_').replace('_', '-')}: its value is empty",
                advice="Give one, or leave the flag out.",
            )
    for context in typed[1:]:
        for argument in context.positional_args:  # which take whatever comes next
            if str(argument.value).startswith("-"):
                raise _unknown(argument.value, words, context, start, contexts)
    return typed


def joined(words: Sequence[str], names: Iterable[str]) -> list[str]:
    """``image build`` as ``image.build``: two words that are the name of one command.

    What follows a flag may be its value, and stays.
    """
    known = set(names)
    made: list[str] = []
    for word in words:
        before = made[-2] if len(made) > 1 else ""
        value = before.startswith("-") and "=" not in before and not FREE.fullmatch(before)
        if made and not value and f"{made[-1]}.{word}" in known:
            made[-1] = f"{made[-1]}.{word}"
        else:
            made.append(word)
    return made


def spread(
    words: Sequence[str], contexts: Mapping[str, ParserContext], many: Mapping[str, str]
) -> list[str]:
    """``audit a b`` as ``audit a --also b``, for the commands of ``many`` and the flag that is so.

    Of one without a word of its own, such as ``publish``, all words are its values. What follows a
    flag that takes a value is that value, and the name of a command begins that.
    """
    made: list[str] = []
    start, context, plain, value = anywhere(), ParserContext(), 0, False
    for word in words:
        first = bool(context.positional_args) and not plain
        if value:
            value = False
        elif word.startswith("-"):
            flag = context.flags.get(word) or start.flags.get(word)
            value = flag is not None and flag.takes_value
        elif word in contexts and not first:
            context, plain = contexts[word], 0
        else:
            plain += 1
            if plain > bool(context.positional_args) and (own := many.get(str(context.name))):
                made.append(f"--{own}={word}")
                continue
        made.append(word)
    return made


def wants_help(words: Sequence[str], names: Iterable[str]) -> str | None:
    """The command whose help is asked for, "" for that of the program, None for no help.

    Looked for before anything is parsed: a command that lacks a word would take it for that.
    """
    known, seen = set(names), ""
    for at, word in enumerate(words):
        if word in HELP:
            after = next((one for one in words[at + 1 :] if one in known), "")
            return seen or after
        seen = word if word in known else seen
    return None


def _explained(
    error: ParseError, words: Sequence[str], start: ParserContext, contexts: Sequence[ParserContext]
) -> ConfigError:
    said, context = str(error), error.context
    if found := re.match(r"No idea what '(.*)' is!$", said):
        return _unknown(found[1], words, context or start, start, contexts)
    if context is not None and "required positional" in said:
        lacking = _upper(context.missing_positional_args)
        return ConfigError(
            f"{context.name}: {lacking} is missing",
            advice=f"Type: wcw {context.name} {_upper(context.positional_args)}",
        )
    for pattern, words_, cure in _SAID:
        if found := re.match(pattern, said):
            return ConfigError(words_.format(found[1]), advice=cure.format(found[1]))
    return ConfigError(said, advice="Type: wcw --help")


def _unknown(
    word: str,
    words: Sequence[str],
    context: ParserContext,
    start: ParserContext,
    contexts: Sequence[ParserContext],
) -> ConfigError:
    name = context.name or ""
    flags = {*context.flags, *start.flags}
    if not word.startswith("-"):
        stuck = next((one.partition("=")[0] for one in words if one.endswith(f"={word}")), "")
        before = words[words.index(word) - 1] if word in words[1:] else stuck
        if before in flags and words.count(before) > 1:
            return ConfigError(f"{before} stands there twice", advice="Leave one of them out.")
        near = nearest(word, [str(one.name) for one in contexts], _MEANT)
        flag = context.flags.get(before)
        if flag is not None and not flag.takes_value and not near:
            return ConfigError(
                f"'{word}' is no command, and {before} takes no value",
                advice=f"Leave it out, or type: wcw {name} --help",
            )
        return ConfigError(f"unknown command '{word}'", advice=f"{near}Type: wcw --help")
    where = f" for {name}" if name else ""
    theirs = ", ".join(str(one.name) for one in contexts if word in one.flags)
    hint = f"It is a flag of: {theirs}. " if theirs else nearest(word, sorted(flags), _MEANT)
    more = f"wcw {name} --help" if name else "wcw --help"
    return ConfigError(f"unknown flag '{word}'{where}", advice=f"{hint}Type: {more}")


def _upper(arguments: Iterable[Argument]) -> str:
    return " ".join(str(one.name).upper() for one in arguments)


def flags_of(context: ParserContext) -> dict[str, Any]:
    """The values of a context's flags by their names in Python."""
    return {argument.name: argument.value for argument in context.args.values()}
