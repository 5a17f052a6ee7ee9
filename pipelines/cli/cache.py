"""``invoke cache``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.cli.command import command
from pipelines.cli.options import parse_positive_number

if TYPE_CHECKING:
    from pipelines.stages.line import Line

_DAYS = 14.0


@command(
    shared=("host", "python", "gpu"),
    help={
        "prune": "remove what no command would use, and old builds on the host",
        "days": "builds unused for so many days are old (default 14)",
    },
    on_line=True,
)
def cache(line: Line, *, prune: bool = False, days: str | None = None, json: bool = False) -> None:
    """Show what is cached for the next commands; --prune frees space."""
    from pipelines.core.console import print_json
    from pipelines.core.errors import ConfigError
    from pipelines.stages import kept

    old = parse_positive_number("days", "14", days) or _DAYS
    if days is not None and not prune:
        raise ConfigError("--days is for --prune", hint="Add --prune, or leave out --days.")
    if json and prune:
        raise ConfigError("--json only shows the cache", hint="Leave out --prune, or --json.")
    if json:
        print_json(kept.as_json(line))
    elif prune:
        kept.prune(line, old)
    else:
        kept.show(line)
