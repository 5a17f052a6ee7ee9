"""``invoke test``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pipelines.commands.command import Command
from pipelines.commands.options import ALL, FETCH, Flag, Options

if TYPE_CHECKING:
    from pipelines.stages.line import Line


class TestOptions(Options):
    """Flags of ``test``."""

    axes = ALL
    shared = (*FETCH, "gpu", "select", "verbose")
    run: Annotated[
        str | None,
        Flag("whose wheel: a name below out/, or a run's directory (default: the latest)"),
    ] = None
    dry_run: Annotated[bool, Flag("only say what would be done")] = False


def test(line: Line, options: TestOptions) -> None:
    """Smoke-test the latest wheel on the host and report as JUnit."""
    if options.dry_run:
        from pipelines.stages.dryrun import show_test

        show_test(line, run=options.run)
    else:
        from pipelines.stages.line import run_test

        run_test(line, run=options.run)


COMMAND = Command(test, TestOptions, on_line=True)
