"""``invoke jobs``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pipelines.commands.command import Command
from pipelines.commands.options import Flag, Json, Options

if TYPE_CHECKING:
    from pipelines.stages.line import Line


class JobsOptions(Options):
    """Flags of ``jobs``."""

    axes = ("host", "python")
    shared = ("gpu", "verbose")
    follow: Annotated[str | None, Flag("print the log of this job until it ends")] = None
    cancel: Annotated[str | None, Flag("end this job and everything it started")] = None
    as_json: Json = False


def jobs(line: Line, options: JobsOptions) -> None:
    """List a host's builds, which go on without us; follow or end one."""
    from pipelines.console import answer
    from pipelines.errors import ConfigError
    from pipelines.stages import jobs as stage

    if options.as_json:
        if options.cancel is not None or options.follow is not None:
            raise ConfigError("--json lists jobs", advice="Leave out --follow and --cancel.")
        answer(stage.told(line))
        return
    if options.cancel is not None:
        stage.cancel(line, options.cancel)
    elif options.follow is not None:
        stage.follow(line, options.follow)
    else:
        stage.show(line)


COMMAND = Command(jobs, JobsOptions, on_line=True)
