"""``invoke build``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.cli.command import command
from pipelines.cli.options import ALL, DIVIDED, FETCH, FLEET

if TYPE_CHECKING:
    from pipelines.stages.line import Line


@command(
    shared=(*ALL, "for_", "jobs", "minutes", *DIVIDED, *FETCH, "gpu", "select", *FLEET),
    help={"dry_run": "only show what would be done: nothing is started, fetched or recorded"},
    on_line=True,
)
def build(line: Line, *, dry_run: bool = False) -> None:
    """Build the wheel on the host, download it with its log, and audit it.

    With --shard it builds and downloads a part of the objects.
    """
    if dry_run:
        from pipelines.stages.dryrun import show_build

        show_build(line)
    elif line.plan.shards is not None:
        from pipelines.stages.shards import run_shards

        run_shards(line)
    else:
        from pipelines.stages.line import run_build

        run_build(line)
