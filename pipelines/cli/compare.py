"""``invoke compare``: what differs between two runs."""

from __future__ import annotations

from pipelines.cli.command import command
from pipelines.cli.options import Flags

_NAMED = 3  # of several runs, in an error


def run_compare(before: str, after: str, *, as_json: bool = False) -> int:
    """Print what differs between two runs; 0, or :data:`errors.WORSE` for what got worse.

    The runs are named as for :func:`find`, each a single one.
    """
    from pipelines.cli.find import find_runs
    from pipelines.core.console import console, print_json
    from pipelines.core.errors import ConfigError
    from pipelines.reports import terminal
    from pipelines.reports.compare import compare_runs, comparison_payload
    from pipelines.reports.load import load_view

    found = [find_runs(name) for name in (before, after)]
    for name, runs in zip((before, after), found, strict=True):
        if len(runs) != 1:
            last = ", ".join(run.id for run in runs[-_NAMED:])
            raise ConfigError(
                f"{name} has {len(runs)} runs, expected one",
                hint=f"Name one of them, such as {last}.",
            )
    seen = compare_runs(load_view(found[0][0]), load_view(found[1][0]))
    if as_json:
        print_json(comparison_payload(seen))
    else:
        console.print(terminal.render_comparison(seen))
    return seen.exit_code


@command(help={"before": "a run", "after": "the run to compare with it"})
def compare(_: Flags, before: str, after: str, *, json: bool = False) -> int:
    """Show what differs; exits with 15 if something is missing or fails that did not before."""
    return run_compare(before, after, as_json=json)
