"""``invoke doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.cli.command import command
from pipelines.cli.options import ALL

if TYPE_CHECKING:
    from pipelines.stages.line import Line


@command(shared=(*ALL, "gpu"), on_line=True)
def doctor(line: Line, *, json: bool = False) -> int:
    """Say what is wrong with this machine and the host, and how to fix it."""
    from pipelines.doctor.run import run_doctor

    return run_doctor(line.plan, line.session, as_json=json).exit_code
