"""``invoke wheelhouse``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.cli.command import command
from pipelines.cli.options import CELL

if TYPE_CHECKING:
    from pipelines.stages.line import Line


@command(
    shared=CELL,
    help={
        "folder": "the directory to fill",
        "controller_python": "Python of the machine it is for, such as 3.12 (default: this one)",
    },
    on_line=True,
)
def wheelhouse(line: Line, folder: str, *, controller_python: str | None = None) -> None:
    """Collect all that a build needs in a directory, for a machine without a network."""
    from pipelines.core.console import say, transfer_progress
    from pipelines.core.errors import ConfigError
    from pipelines.core.files import make_directory
    from pipelines.recipe.origin import FileSource, GitSource
    from pipelines.recipe.sourcetree import fetch_file
    from pipelines.stages.preflight import refuse_ungiven
    from pipelines.toolchain import wheelhouse as house

    plan, place = line.plan, Path(folder)
    recipe, cache = plan.recipe, plan.cache
    if isinstance(recipe.source, GitSource):  # of a packed commit no hash is pinned
        raise ConfigError(
            f"{recipe.name} {recipe.version} comes from git: a wheelhouse cannot contain it",
            hint="Take a release with --recipe-version, or bring the whole download cache.",
        )
    refuse_ungiven(plan, here=False)  # it is for another machine
    make_directory(place)
    tools = [*plan.host.tools, *(tool for wanted in plan.wanted for tool in wanted.uploads)]
    with transfer_progress() as show:
        fresh = house.gather_files(cache, tools, place, show)
        if isinstance(recipe.source, FileSource):
            path = fetch_file(recipe.source, recipe, cache, show)
            fresh += house.copy_if_changed(path, recipe.source.sha256, place)
    fresh += house.gather_controller(place, controller_python)
    size = sum(path.stat().st_size for path in place.iterdir()) >> 20
    say(f"{place}: {fresh} new files, {size} MiB in total", style="green")
