"""``invoke rebuild``."""

from __future__ import annotations

from typing import Annotated, Any

from pipelines.commands.command import Command
from pipelines.commands.options import FETCH, Flag, Json, Options


class RebuildOptions(Options):
    """Flags of ``rebuild``."""

    axes = ("host",)
    shared = ("jobs", "minutes", *FETCH, "verbose")
    subject: Annotated[
        str, Flag("a manifest.json, or the wheel that it came with; a file or an https address")
    ]
    as_json: Json = False


def rebuild(options: RebuildOptions, given: dict[str, Any]) -> None:
    """Build a published wheel again from clean, and say whether it is the same bytes."""
    from pipelines.buildplan import open_cache
    from pipelines.commands.lines import open_line, request_of, settings_of
    from pipelines.commands.options import axis_flag
    from pipelines.console import answer
    from pipelines.stages.published import read_published
    from pipelines.stages.publishedat import published_at
    from pipelines.stages.rebuild import run_rebuild, told

    if "://" in options.subject:
        cache = open_cache(settings_of(request_of(given)[1]))
        published = published_at(options.subject, cache)
    else:
        published = read_published(options.subject)
    axes = {axis_flag(axis): text for axis, text in published.axes.items()}
    # Also where --reproducible or --shards said so, and the recipe does not.
    line = open_line({**given, **axes, "reproducible": True})
    try:
        run_rebuild(line, published)
    finally:
        if options.as_json and line.begun:
            answer(told(line.run))


COMMAND = Command(rebuild, RebuildOptions)
