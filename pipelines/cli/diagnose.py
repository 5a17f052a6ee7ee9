"""``invoke diagnose``."""

from __future__ import annotations

from pathlib import Path

from pipelines.cli.command import command
from pipelines.cli.options import Flags


@command(help={"log": "a build's log, such as out/latest/build.log"})
def diagnose(_: Flags, log: str, *, json: bool = False) -> None:
    """Say why a build failed, from its log: the first real cause, and how to fix it."""
    from pipelines.core.console import answer, console
    from pipelines.diagnosis import diagnose_file
    from pipelines.diagnosis.report import payload, render

    diagnosis = diagnose_file(Path(log))
    if json:
        answer(payload(diagnosis, log))
    else:
        console.print(render(diagnosis, log))
