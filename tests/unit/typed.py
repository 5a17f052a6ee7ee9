"""Command lines as the program reads them, without doing what they say."""

from __future__ import annotations

from typing import Any

from invoke.config import Config
from invoke.parser.parser import ParseResult

from pipelines.commands.program import FURTHER, OneOrder, namespace
from pipelines.commands.words import joined, parse, spread


def calls(text: str | list[str]) -> list[Any]:
    """The calls that a line comes to."""
    words = text.split() if isinstance(text, str) else text
    commands = namespace()
    contexts = {str(one.name): one for one in commands.to_contexts()}
    typed = parse(spread(joined(words, contexts), contexts, FURTHER), [*contexts.values()])
    order = OneOrder(commands, Config(lazy=True), ParseResult(typed[:1]))
    try:
        return order.normalize(tuple(typed[1:]))
    finally:
        OneOrder.line.clear()


def flags(text: str) -> list[dict[str, Any]]:
    """What each command of the line is called with."""
    return [{key: value for key, value in call.kwargs.items() if value} for call in calls(text)]
