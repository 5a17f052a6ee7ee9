"""Reports made again from the records of runs, wherever those runs lie; and two runs compared."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from pipelines.config import load_config
from pipelines.console import console, say
from pipelines.errors import ConfigError
from pipelines.files import write_atomic
from pipelines.hosttext import safe
from pipelines.paths import home
from pipelines.reports import markdown, terminal
from pipelines.reports.compare import Comparison, compare
from pipelines.reports.load import load_any, load_view
from pipelines.reports.views import RunView
from pipelines.run import Run

_SHOWN = 60  # differences
_MOST = 2000  # runs of one report
_NAMED = 3  # of several, in an error


def run_report(names: Sequence[str]) -> Path:
    """Make the reports of the runs called ``names`` again; the HTML page.

    A name is one below ``out/``, ``latest`` (also where no name is given), the path of a run's
    directory, or of a directory of such. One run's page is ``report.html`` in its directory; that
    of several stands beside the first one's directory, and tells of a damaged one that it is
    damaged. ``summary.md`` comes with it. Raises :class:`ConfigError` for what is no run,
    ``StorageError`` when the page cannot be written.
    """
    runs = [run for name in (names or ["latest"]) for run in find(name)]
    views = [load_view(run) if len(runs) == 1 else load_any(run) for run in runs]
    folder = runs[0].path if len(runs) == 1 else runs[0].path.parent
    page = write(views, folder)
    console.print(terminal.render(views))
    tell_github(views)
    say(f"{page}  {page.stat().st_size:,} bytes", style="bold")
    return page


def run_compare(before: str, after: str) -> int:
    """Print what differs between two runs; 0, or ``compare.WORSE`` when something got worse.

    The runs are named as for :func:`run_report`, each a single one.
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
    show(seen)
    return seen.exit_code


def find(name: str) -> list[Run]:
    """The run, or the runs in the directory, called ``name``; paths need no configuration."""
    path = Path(name).expanduser()
    if (path / "record.sqlite").is_file():
        return [Run(path.resolve())]
    kept = sorted(p.parent for p in path.glob("*/record.sqlite") if not p.parent.is_symlink())
    if kept:
        return [Run(one.resolve()) for one in kept[:_MOST]]
    is_path = len(path.parts) > 1
    out = home() / load_config().out if not is_path else None
    if out is not None and ((out / name).exists() or not path.exists()):
        return [Run.find(out, name)]
    why = (
        "neither it nor a directory in it holds" if path.is_dir() else "there is no directory with"
    )
    raise ConfigError(
        f"no run in {path}: {why} record.sqlite",
        advice="Name a run below out/, the directory of a run, or a directory of runs.",
    )


def write(views: Sequence[RunView], folder: Path) -> Path:
    """``report.html`` and ``summary.md`` of ``views`` in ``folder``, whole or not at all."""
    from pipelines.reports import html  # not for commands that make no page

    page = folder / "report.html"
    write_atomic(page, html.render(views).encode())
    write_atomic(folder / "summary.md", markdown.summary(views).encode())
    return page


def tell_github(views: Sequence[RunView], *, stages: bool = True) -> None:
    """In a job of GitHub Actions: its summary, and annotations; elsewhere nothing."""
    if step := os.environ.get("GITHUB_STEP_SUMMARY"):
        try:
            with Path(step).open("a", encoding="utf-8") as file:
                file.write(markdown.summary(views))
        except OSError as error:
            say(f"the step summary cannot be written: {error.strerror}", style="yellow")
    if os.environ.get("GITHUB_ACTIONS"):
        for command in markdown.errors(views, stages=stages):
            console.print(safe(command, 4000), markup=False, highlight=False, soft_wrap=True)


def show(seen: Comparison) -> None:
    """Print a comparison: what got worse first."""
    say(f"{seen.before.id}  then", style="bold")
    say(f"{seen.after.id}  now", style="bold")
    for note in seen.notes:
        say(f"  {note}", style="yellow")
    styles = {"worse": "red", "better": "green", "changed": "dim"}
    table = Table(box=None, pad_edge=False)
    for column in ("", "what", "of", "then", "now", "ratio", ""):
        table.add_column(column, justify="right" if column == "ratio" else "left")
    for row in seen.differences[:_SHOWN]:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        texts = (row.kind, row.subject, row.before, row.after, ratio, row.note)
        table.add_row(
            f"[{styles[row.judgement]}]{row.judgement}[/]", *(escape(safe(t, 120)) for t in texts)
        )
    if seen.differences:
        console.print(table)
    if (more := len(seen.differences) - _SHOWN) > 0:
        say(f"and {more} more differences")
    if seen.worse:
        say(f"{len(seen.worse)} got worse", style="bold red")
    else:
        say("nothing got worse", style="green")
