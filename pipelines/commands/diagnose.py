"""``invoke diagnose``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pipelines.commands.command import Command
from pipelines.commands.options import Flag, Json, Options


class DiagnoseOptions(Options):
    """Flags of ``diagnose``."""

    log: Annotated[str, Flag("a build's log, such as out/latest/build.log")]
    as_json: Json = False


def diagnose(options: DiagnoseOptions) -> None:
    """Say why a build failed, from its log: the first real cause, and what cures it."""
    from pipelines.console import answer, console
    from pipelines.diagnosis import diagnose_file
    from pipelines.diagnosis.report import render, told

    diagnosis = diagnose_file(Path(options.log))
    if options.as_json:
        answer(told(diagnosis, options.log))
    else:
        console.print(render(diagnosis, options.log))


COMMAND = Command(diagnose, DiagnoseOptions)
