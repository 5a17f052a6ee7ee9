"""``invoke build``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pipelines.commands.command import Command
from pipelines.commands.options import ALL, DIVIDED, FETCH, FLEET, Flag, Options

if TYPE_CHECKING:
    from pipelines.stages.line import Line


class BuildOptions(Options):
    """Flags of ``build``."""

    axes = ALL
    shared = ("for_", "jobs", "minutes", *DIVIDED, *FETCH, "gpu", "select", *FLEET, "verbose")
    dry_run: Annotated[
        bool, Flag("only say what would be done: nothing is started, fetched or recorded")
    ] = False


def build(line: Line, options: BuildOptions) -> None:
    """Build the wheel on the host, bring it and its log home, look inside it.

    Or, with --shard, its part of the objects.
    """
    if options.dry_run:
        from pipelines.stages.dryrun import show_build

        show_build(line)
    elif line.plan.shards is not None:
        from pipelines.stages.shards import run_shards

        run_shards(line)
    else:
        from pipelines.stages.line import run_build

        run_build(line)


COMMAND = Command(build, BuildOptions, on_line=True)
