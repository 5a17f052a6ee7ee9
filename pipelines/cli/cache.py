"""``invoke cache``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.cli.command import command
from pipelines.cli.options import amount

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
    from pipelines.core.console import answer
    from pipelines.core.errors import ConfigError
    from pipelines.stages import kept

    old = amount("days", "14", days) or _DAYS
    if json and prune:
        raise ConfigError("--json only shows the cache", hint="Leave out --prune, or --json.")
    if json:
        answer(kept.as_json(line))
    elif prune:
        kept.prune(line, old)
    else:
        kept.show(line)
