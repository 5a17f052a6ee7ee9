"""``invoke compare``: what differs between two runs."""

from __future__ import annotations

from pipelines.console import console
from pipelines.errors import ConfigError
from pipelines.reports import terminal
from pipelines.reports.compare import compare
from pipelines.reports.find import find
from pipelines.reports.load import load_view

_NAMED = 3  # of several runs, in an error


def run_compare(before: str, after: str) -> int:
    """Print what differs between two runs; 0, or ``compare.WORSE`` when something got worse.

    The runs are named as for :func:`find`, each a single one.
    """
    found = [find(name) for name in (before, after)]
    for name, runs in zip((before, after), found, strict=True):
        if len(runs) != 1:
            last = ", ".join(run.id for run in runs[-_NAMED:])
            raise ConfigError(
                f"{name} holds {len(runs)} runs, one is expected",
                advice=f"Name one of them, such as {last}.",
            )
    seen = compare(load_view(found[0][0]), load_view(found[1][0]))
    console.print(terminal.comparison(seen))
    return seen.exit_code
