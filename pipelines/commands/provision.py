"""``invoke provision``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pipelines.commands.command import Command
from pipelines.commands.options import CELL, FETCH, FLEET, Flag, Options

if TYPE_CHECKING:
    from pipelines.stages.line import Line


class ProvisionOptions(Options):
    """Flags of ``provision``."""

    axes = CELL
    shared = ("for_", *FETCH, "gpu", "select", *FLEET, "verbose")
    dry_run: Annotated[bool, Flag("only show what would change")] = False
    repair: Annotated[bool, Flag("look at every byte of the tools, put back what differs")] = False


def provision(line: Line, options: ProvisionOptions) -> None:
    """Make a host ready: long paths, short TEMP, CUDA compiler, build tools."""
    from pipelines.stages.line import run_provision

    run_provision(line, dry_run=options.dry_run, repair=options.repair)


COMMAND = Command(provision, ProvisionOptions, on_line=True)
