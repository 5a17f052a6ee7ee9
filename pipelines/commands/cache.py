"""``invoke cache``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pipelines.commands.command import Command
from pipelines.commands.options import Days, Flag, Json, Options

if TYPE_CHECKING:
    from pipelines.stages.line import Line


class CacheOptions(Options):
    """Flags of ``cache``."""

    axes = ("host", "python")
    shared = ("gpu", "verbose")
    prune: Annotated[bool, Flag("remove what no command would use, and old builds on the host")] = (
        False
    )
    days: Annotated[Days, Flag("builds not heard of for so many days are old (default 14)")] = 14.0
    as_json: Json = False


def cache(line: Line, options: CacheOptions) -> None:
    """Show what is kept to make the next command fast; --prune gives room back."""
    from pipelines.console import answer
    from pipelines.errors import ConfigError
    from pipelines.stages import kept

    if options.as_json and options.prune:
        raise ConfigError("--json shows what is kept", advice="Leave out --prune, or --json.")
    if options.as_json:
        answer(kept.told(line))
    elif options.prune:
        kept.prune(line, options.days)
    else:
        kept.show(line)


COMMAND = Command(cache, CacheOptions, on_line=True)
