"""``invoke hosts``."""

from __future__ import annotations

from pipelines.cli.command import command
from pipelines.cli.options import Flags


@command(help={"clean": "remove what no configuration uses any more"})
def hosts(_: Flags, *, clean: bool = False, json: bool = False) -> None:
    """Show the hosts and what was made for them; --clean removes what is no longer used."""
    from pipelines.core.console import print_json
    from pipelines.core.errors import ConfigError
    from pipelines.plan.config.model import load_config
    from pipelines.stages import hosts as work

    settings = load_config()
    if json and clean:
        raise ConfigError("--json shows what there is", hint="Leave out --clean, or --json.")
    if json:
        print_json(work.as_json(settings))
    elif clean:
        work.remove_unowned(settings)
    else:
        work.show(settings)
