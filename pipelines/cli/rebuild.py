"""``invoke rebuild``."""

from __future__ import annotations

from pipelines.cli.command import command
from pipelines.cli.options import AXIS_FLAGS, FETCH, Flags


@command(
    shared=("host", "jobs", "minutes", *FETCH),
    help={"subject": "a manifest.json, or the wheel that it came with; a file or an https address"},
)
def rebuild(flags: Flags, subject: str, *, json: bool = False) -> None:
    """Rebuild a published wheel from scratch, and say whether it has the same bytes."""
    from pipelines.cli.lines import effective_settings, open_line, request_of
    from pipelines.core.console import print_json
    from pipelines.plan.matrix.buildplan import open_cache
    from pipelines.publish.rebuild.address import published_at
    from pipelines.publish.rebuild.published import read_published
    from pipelines.publish.rebuild.run import rebuild_verdict_json, run_rebuild

    if "://" in subject:
        cache = open_cache(effective_settings(request_of(flags)[1]))
        published = published_at(subject, cache)
    else:
        published = read_published(subject)
    axes = {AXIS_FLAGS[axis]: text for axis, text in published.axes.items()}
    # Also where --reproducible or --shards said so, and the recipe does not.
    line = open_line({**flags, **axes, "reproducible": True})
    try:
        run_rebuild(line, published)
    finally:
        if json and line.begun:
            print_json(rebuild_verdict_json(line.run))
