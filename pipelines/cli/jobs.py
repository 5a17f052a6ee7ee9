"""``invoke jobs``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.cli.command import command

if TYPE_CHECKING:
    from pipelines.stages.line import Line


@command(
    shared=("host", "python", "gpu"),
    help={
        "follow": "print the log of this job until it ends",
        "cancel": "end this job and everything it started",
    },
    on_line=True,
)
def jobs(
    line: Line, *, follow: str | None = None, cancel: str | None = None, json: bool = False
) -> None:
    """List a host's builds, which run detached; follow or end one."""
    from pipelines.core.console import print_json
    from pipelines.core.errors import ConfigError
    from pipelines.stages import jobs as stage

    if json:
        if cancel is not None or follow is not None:
            raise ConfigError("--json lists jobs", hint="Leave out --follow and --cancel.")
        print_json(stage.as_json(line))
        return
    if cancel is not None and follow is not None:
        raise ConfigError("--follow and --cancel are given", hint="Leave out one of them.")
    if cancel is not None:
        stage.cancel(line, cancel)
    elif follow is not None:
        stage.follow(line, follow)
    else:
        stage.show(line)
