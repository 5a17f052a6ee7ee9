"""``invoke doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.commands.command import Command
from pipelines.commands.options import ALL, Json, Options

if TYPE_CHECKING:
    from pipelines.stages.line import Line


class DoctorOptions(Options):
    """Flags of ``doctor``."""

    axes = ALL
    shared = ("gpu", "verbose")
    as_json: Json = False


def doctor(line: Line, options: DoctorOptions) -> int:
    """Say what is wrong with this machine and the host, and what cures it."""
    from pipelines.doctor.run import run_doctor

    return run_doctor(line.plan, line.session, as_json=options.as_json).exit_code


COMMAND = Command(doctor, DoctorOptions, on_line=True)
