"""``invoke jobs``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pipelines.commands.command import Command
from pipelines.commands.options import Flag, Options

if TYPE_CHECKING:
    from pipelines.stages.line import Line


class JobsOptions(Options):
    """Flags of ``jobs``."""

    axes = ("host", "python")
    shared = ("verbose",)
    follow: Annotated[str | None, Flag("print the log of this job until it ends")] = None
    cancel: Annotated[str | None, Flag("end this job and everything it started")] = None


def jobs(line: Line, options: JobsOptions) -> None:
    """List a host's builds, which go on without us; follow or end one."""
    from pipelines.stages import jobs as stage

    if options.cancel is not None:
        stage.cancel(line, options.cancel)
    elif options.follow is not None:
        stage.follow(line, options.follow)
    else:
        stage.show(line)


COMMAND = Command(jobs, JobsOptions, on_line=True)
