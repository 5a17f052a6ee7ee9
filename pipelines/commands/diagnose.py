"""``invoke diagnose``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pipelines.commands.command import Command
from pipelines.commands.options import Flag, Options


class DiagnoseOptions(Options):
    """Flags of ``diagnose``."""

    log: Annotated[str, Flag("a build's log, such as out/latest/build.log")]


def diagnose(options: DiagnoseOptions) -> None:
    """Say why a build failed, from its log: the first real cause, and what cures it."""
    from pipelines.console import console
    from pipelines.diagnosis import diagnose_file
    from pipelines.diagnosis.report import render

    console.print(render(diagnose_file(Path(options.log)), options.log))


COMMAND = Command(diagnose, DiagnoseOptions)
