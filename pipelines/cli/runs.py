"""``invoke runs``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.cli.command import command
from pipelines.cli.options import Flags, parse_positive_number, parse_whole_number
from pipelines.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipelines.reports.runs import PastRun

_DAYS = 14.0


@command(
    help={
        "prune": "remove old runs; never the latest, nor one in use",
        "days": "runs that are so many days old (default 14, unless --keep is given)",
        "keep": "keep so many of the latest, however old",
        "dry_run": "with --prune: only list what would be removed",
    }
)
def runs(
    _: Flags,
    *,
    prune: bool = False,
    days: str | None = None,
    keep: str | None = None,
    json: bool = False,
    dry_run: bool = False,
) -> None:
    """List the runs below out/, the latest first, with their outcome; remove old ones."""
    from pipelines.core.paths import project_dir
    from pipelines.plan.config.model import load_config
    from pipelines.reports.runs import remove_runs, runs_in, to_remove

    many, age = parse_whole_number("keep", keep), parse_positive_number("days", "14", days)
    if many is not None and many < 0:
        raise ConfigError(f"--keep {keep}: expected 0 or more", hint="Such as --keep 20.")
    if not prune and (age is not None or many is not None):
        raise ConfigError("--days and --keep are for --prune", hint="Add --prune.")
    found = runs_in(project_dir() / load_config().out)
    if not prune:
        _show_past_runs(found, json=json)
        return
    old = to_remove(found, days=age if days or keep else _DAYS, keep=many)
    if dry_run:
        _show_past_runs(old, json=json, what="would be removed", freed="to be freed")
    else:
        _show_past_runs(remove_runs(old), json=json, what="removed", freed="freed")


def _show_past_runs(
    runs: Sequence[PastRun], *, json: bool, what: str = "", freed: str = ""
) -> None:
    from pipelines.core import units
    from pipelines.core.console import print_json, say
    from pipelines.reports.runs import print_run_table, runs_payload

    if json:
        print_json(runs_payload(runs))
        return
    without = print_run_table(runs) if runs else []
    if without:
        say(f"Columns hidden to fit: {', '.join(without)} (see --json).", "dim")
    many = units.pluralize(len(runs), "run")
    size = units.format_size(sum(run.size for run in runs))
    if what:
        say(f"{many} {what}, {size} {freed}", "green")
    else:
        say(f"{many}, {size}; invoke runs --prune removes those of {_DAYS:g} days and more", "dim")
