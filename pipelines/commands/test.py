"""``invoke test``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pipelines.commands.command import Command
from pipelines.commands.options import ALL, FETCH, FLEET, Flag, Options
from pipelines.errors import ConfigError

if TYPE_CHECKING:
    from pipelines.stages.line import Line


class TestOptions(Options):
    """Flags of ``test``."""

    axes = ALL
    shared = ("for_", *FETCH, "gpu", "wheel", "select", *FLEET, "verbose")
    with_: Annotated[
        tuple[str, ...],
        Flag("NAME==VERSION to install beside --wheel, and whose DLLs are found; may be repeated"),
    ] = ()
    script: Annotated[
        str | None,
        Flag(
            "run with --wheel: a .py file, or a pytest file or directory (docs/foreign-wheels.md)"
        ),
    ] = None
    run: Annotated[
        str | None,
        Flag("whose wheel: a name below out/, or a run's directory (default: the latest)"),
    ] = None
    dry_run: Annotated[bool, Flag("only say what would be done")] = False


def test(line: Line, options: TestOptions) -> None:
    """Smoke-test the latest wheel, or one that others have built, and report as JUnit."""
    if line.plan.given is not None:
        if options.dry_run:
            from pipelines.stages.dryrun import show_given

            show_given(line, beside=options.with_, script=options.script)
        else:
            from pipelines.stages.line import run_given

            run_given(line, beside=options.with_, script=options.script)
        return
    if options.with_ or options.script:
        flag = "--script" if options.script else "--with"
        raise ConfigError(
            f"{flag} goes with --wheel",
            advice="What is built here is tested as its recipe says: docs/own-tests.md.",
        )
    if options.dry_run:
        from pipelines.stages.dryrun import show_test

        show_test(line, run=options.run)
    else:
        from pipelines.stages.line import run_test

        run_test(line, run=options.run)


COMMAND = Command(test, TestOptions, on_line=True)
