"""``invoke hosts``."""

from __future__ import annotations

from typing import Annotated

from pipelines.commands.command import Command
from pipelines.commands.options import Flag, Json, Options


class HostsOptions(Options):
    """Flags of ``hosts``."""

    clean: Annotated[bool, Flag("remove what nobody owns any more")] = False
    as_json: Json = False


def hosts(options: HostsOptions) -> None:
    """Show the hosts and what was made for them; --clean removes what nobody owns."""
    from pipelines.config import load_config
    from pipelines.console import answer
    from pipelines.errors import ConfigError
    from pipelines.stages import hosts as work

    settings = load_config()
    if options.as_json and options.clean:
        raise ConfigError("--json shows what there is", advice="Leave out --clean, or --json.")
    if options.as_json:
        answer(work.told(settings))
    elif options.clean:
        work.clean(settings)
    else:
        work.show(settings)


COMMAND = Command(hosts, HostsOptions)
