"""``invoke diagnose``."""

from __future__ import annotations

from pathlib import Path

from pipelines.cli.command import command
from pipelines.cli.options import Flags


@command(
    help={
        "log": "a build's log, such as out/latest/build.log",
        "report": "also write a short text for an issue to this file, without names and addresses",
    }
)
def diagnose(_: Flags, log: str, *, json: bool = False, report: str = "") -> int:
    """Say why a build failed, from its log: the first real cause, and how to fix it.

    0: the cause is certain; 16: it is likely; 17: it is not known.
    """
    from pipelines.core.console import console, print_json, say
    from pipelines.core.errors import UNKNOWN, StorageError
    from pipelines.core.files import write_atomic
    from pipelines.diagnosis import diagnose_file
    from pipelines.diagnosis.issue import format_issue
    from pipelines.diagnosis.matcher import last_log_lines
    from pipelines.diagnosis.report import diagnosis_payload, exit_code, render_diagnosis
    from pipelines.reports.failures import log_excerpt

    path = Path(log)
    diagnosis = diagnose_file(path)
    code = exit_code(diagnosis)
    lines: tuple[str, ...] = ()
    if report or code == UNKNOWN:  # the log is read once more for them
        around = log_excerpt(path, diagnosis.cause.line) if diagnosis else None
        lines = tuple(around.lines) if around else last_log_lines(path)
    if json:
        print_json(diagnosis_payload(diagnosis, log))
    else:
        console.print(render_diagnosis(diagnosis, log, lines if code == UNKNOWN else ()))
    if report:
        try:
            write_atomic(Path(report), format_issue(diagnosis, lines).encode())
        except OSError as error:
            hint = "Name a file that can be written with --report."
            raise StorageError(f"{report}: {error.strerror}", hint=hint) from None
        say(f"{report}: read it before you publish it")
    return code
