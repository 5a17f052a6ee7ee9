"""``invoke provision``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.cli.command import command
from pipelines.cli.options import CELL, FETCH, FLEET

if TYPE_CHECKING:
    from pipelines.stages.line import Line


@command(
    shared=(*CELL, "for_", *FETCH, "gpu", "select", *FLEET),
    help={
        "dry_run": "only show what would change",
        "repair": "verify every byte of the tools, and restore what differs",
    },
    on_line=True,
)
def provision(line: Line, *, dry_run: bool = False, repair: bool = False) -> None:
    """Prepare a host: long paths, short TEMP, CUDA compiler, build tools."""
    from pipelines.stages.line import run_provision

    run_provision(line, dry_run=dry_run, repair=repair)
