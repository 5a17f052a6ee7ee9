"""``invoke runs``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pipelines.commands.command import Command
from pipelines.commands.options import Count, Days, Flag, Json, Options
from pipelines.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipelines.reports.runs import PastRun

_DAYS = 14.0


class RunsOptions(Options):
    """Flags of ``runs``."""

    prune: Annotated[
        bool, Flag("remove old runs; never the latest, nor one that a command is at")
    ] = False
    days: Annotated[
        Days | None,
        Flag("those that began so many days ago are old (default 14, unless --keep is given)"),
    ] = None
    keep: Annotated[Count | None, Flag("keep so many of the last ones, however old")] = None
    as_json: Json = False
    dry_run: Annotated[bool, Flag("with --prune: only list what would be removed")] = False


def runs(options: RunsOptions) -> None:
    """List the runs below out/, the latest first, with what became of them; remove old ones."""
    from pipelines.config import load_config
    from pipelines.paths import home
    from pipelines.reports.runs import remove, runs_in, to_remove

    if options.keep is not None and options.keep < 0:
        raise ConfigError(f"--keep {options.keep}: expected 0 or more", advice="Such as --keep 20.")
    if not options.prune and (options.days is not None or options.keep is not None):
        raise ConfigError("--days and --keep say what --prune removes", advice="Add --prune.")
    found = runs_in(home() / load_config().out)
    if not options.prune:
        _tell(found, options)
        return
    days = options.days if options.days is not None or options.keep is not None else _DAYS
    old = to_remove(found, days=days, keep=options.keep)
    gone = old if options.dry_run else remove(old)
    _tell(gone, options, "would be removed" if options.dry_run else "removed")


def _tell(runs: Sequence[PastRun], options: RunsOptions, what: str = "") -> None:
    from pipelines import units
    from pipelines.console import answer, say
    from pipelines.reports.runs import show, told

    if options.as_json:
        answer(told(runs))
        return
    without = show(runs) if runs else []
    if without:
        say(f"No room here for: {', '.join(without)}; --json has everything.", "dim")
    many = units.counted(len(runs), "run")
    size = units.size(sum(run.size for run in runs))
    if what:
        say(f"{many} {what}, {size} {'to be freed' if options.dry_run else 'freed'}", "green")
    else:
        say(f"{many}, {size}; invoke runs --prune removes those of {_DAYS:g} days and more", "dim")


COMMAND = Command(runs, RunsOptions)
