"""``invoke test``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.cli.command import command
from pipelines.cli.options import ALL, FETCH, FLEET
from pipelines.core.errors import ConfigError

if TYPE_CHECKING:
    from pipelines.stages.line import Line


@command(
    shared=(*ALL, "for_", *FETCH, "gpu", "wheel", "select", *FLEET),
    help={
        "with": "NAME==VERSION to install with --wheel, and whose DLLs are found; may be repeated",
        "script": "run with --wheel: a .py file, or a pytest file or directory "
        "(docs/foreign-wheels.md)",
        "run": "the run to test: a name below out/, or a directory (default: the latest)",
        "dry_run": "only show what would be done",
    },
    many=("with_",),
    name="test",
    on_line=True,
)
def smoke_test(
    line: Line,
    *,
    with_: list[str] | None = None,
    script: str | None = None,
    run: str | None = None,
    dry_run: bool = False,
) -> None:
    """Smoke-test the latest wheel, or one that others have built, and report as JUnit."""
    if line.plan.given is not None:
        companions = tuple(with_ or ())
        if dry_run:
            from pipelines.stages.given import show_given

            show_given(line, companions=companions, script=script)
        else:
            from pipelines.stages.given import run_given

            run_given(line, companions=companions, script=script)
        return
    if with_ or script:
        flag = "--script" if script else "--with"
        raise ConfigError(
            f"{flag} needs --wheel",
            hint="What is built here is tested as its recipe says: docs/own-tests.md.",
        )
    if dry_run:
        from pipelines.stages.dryrun import show_test

        show_test(line, run=run)
    else:
        from pipelines.stages.line import run_test

        run_test(line, run=run)
