"""``invoke wheelhouse``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pipelines.commands.command import Command
from pipelines.commands.options import CELL, Flag, Options

if TYPE_CHECKING:
    from pipelines.stages.line import Line


class WheelhouseOptions(Options):
    """Flags of ``wheelhouse``."""

    axes = CELL
    shared = ("verbose",)
    folder: Annotated[str, Flag("where to put it")]
    controller_python: Annotated[
        str | None,
        Flag("Python of the machine it is for, such as 3.12 (default: this one)"),
    ] = None


def wheelhouse(line: Line, options: WheelhouseOptions) -> None:
    """Gather all that an order needs into a directory, for a machine without a network."""
    from pipelines.console import bars, say
    from pipelines.errors import ConfigError, StorageError
    from pipelines.recipe.origin import FileSource, GitSource
    from pipelines.recipe.sourcetree import fetch_file
    from pipelines.toolchain import wheelhouse as house

    plan, folder = line.plan, Path(options.folder)
    recipe, cache = plan.recipe, plan.cache
    if isinstance(recipe.source, GitSource):  # of a packed commit no hash is pinned
        raise ConfigError(
            f"{recipe.name} {recipe.version} comes from git: no wheelhouse can hold it",
            advice="Take a release with --recipe-version, or bring the whole download cache.",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"{folder}: there can be no such directory: {error.strerror}",
            advice="Name a directory, or one that can be made.",
        ) from None
    tools = [*plan.host.tools, *(tool for wanted in plan.wanted for tool in wanted.uploads)]
    with bars() as show:
        fresh = house.gather_files(cache, tools, folder, show)
        if isinstance(recipe.source, FileSource):
            path = fetch_file(recipe.source, recipe, cache, show)
            fresh += house.put(path, recipe.source.sha256, folder)
    fresh += house.gather_controller(folder, options.controller_python)
    size = sum(path.stat().st_size for path in folder.iterdir()) >> 20
    say(f"{folder}: {fresh} files are new, {size} MiB in all", style="green")


COMMAND = Command(wheelhouse, WheelhouseOptions, on_line=True)
