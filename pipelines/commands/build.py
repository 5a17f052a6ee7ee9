"""``invoke build``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.commands.command import Command
from pipelines.commands.options import ALL, FETCH, Options

if TYPE_CHECKING:
    from pipelines.stages.line import Line


class BuildOptions(Options):
    """Flags of ``build``."""

    axes = ALL
    shared = ("jobs", "minutes", *FETCH, "select", "verbose")


def build(line: Line, _: BuildOptions) -> None:
    """Build the wheel on the host, bring it and its log home, look inside it."""
    from pipelines.stages.line import run_build

    run_build(line)


COMMAND = Command(build, BuildOptions, on_line=True)
