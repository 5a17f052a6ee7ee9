"""A plan for people: a line for each cell, then why cells are rejected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.markup import escape
from rich.text import Text

from pipelines.core import units
from pipelines.core.called import with_pages
from pipelines.core.console import console, say
from pipelines.core.tables import between_words, print_columns
from pipelines.plan.matrix.plan import Plan, Row
from pipelines.recipe.load import shown_file
from pipelines.reports.findings import findings_table

_COLUMNS = ("cell", "verdict", "archs", "jobs", "memory", "core h", "time", "path", "cached")
_UNKNOWN = "?"
_LEGEND = {
    "jobs": "compile units at a time x nvcc's threads",
    "path": "characters of the longest file",
    "cached": "files of the CUDA toolkit, or a wheel of a run",
}
#: Columns hidden on a narrow terminal, in this order.
_SPARE = ("cached", "path", "core h", "memory", "jobs", "time")


def print_table(plan: Plan) -> None:
    """Print everything; for a skipped package only why."""
    recipe, host, rows = plan.recipe, plan.ground.host, plan.rows
    name = " ".join(filter(None, (recipe.name, recipe.version)))
    file = shown_file(recipe.name)
    whose = "" if file.startswith("pipelines/") else f", {file}"  # it may shadow a built-in one
    say(f"{name}  ({recipe.kind}, strategy: {recipe.strategy}{whose})", "bold")
    if recipe.strategy == "skip":
        say(recipe.skip, "yellow")
        return
    if host.cores:
        memory = f"{units.format_gib(host.memory)} of memory"
        memory += f", {units.format_gib(host.commit)} to reserve" if host.commit else ""
        say(f"on {host.origin}: {host.cores} cores, {memory}")
    else:
        say(f"{host.origin} was not asked: add --ask for jobs, memory and time", "yellow")
    for note in plan.notes:
        say(note)
    every = [dict(zip(_COLUMNS, _plan_table_row(row), strict=True)) for row in rows]
    known = [name for name in _COLUMNS if any(line[name] != _UNKNOWN for line in every)]
    lines = [{name: line[name] for name in known} for line in every]
    spare = [name for name in _SPARE if name in known]
    without = print_columns(console, lines, fold=["archs"], wrap=["verdict"], spare=spare)
    if without:
        say(f"Columns hidden to fit: {', '.join(without)} (see --format json).", "dim")
    _print_shares(plan)
    _print_findings(rows)
    _print_ways(rows)
    _print_notes(plan, [name for name in known if name not in without])
    taken = sum(row.way.action == "prebuilt" for row in rows)
    built = [row for row in rows if row.possible and row.way.action == "build"]
    more = f", {taken} are available prebuilt" if taken else ""
    style = "green" if built or taken else "red"
    say(f"{len(built)} of {len(rows)} cells can be built{more}", style)
    if plan.others:
        more = units.pluralize(plan.others, "more cell")
        say(f"{more}, not checked here: invoke plan --select '*'", "dim")


def _plan_table_row(row: Row) -> list[str]:
    """As :data:`_COLUMNS`; only the verdict is markup."""
    judged, budget, longest = row.judged, row.judged.budget, row.judged.longest
    files = row.here.toolkit_files
    errors = [finding.id for finding in judged.findings if finding.failed]
    verdict = f"[red]no: {escape(errors[0])}[/red]" if errors else "[green]yes[/green]"
    if row.way.action == "none":
        verdict = "[red]no: nothing prebuilt[/red]"
    elif row.way.action == "prebuilt":
        verdict = "[green]prebuilt[/green]"
    return [
        escape(row.name),
        verdict,
        escape(str(judged.archs.effective if judged.archs else row.target.archs)),
        f"{budget.jobs} x {budget.threads}" if budget else _UNKNOWN,
        units.format_gib(budget.peak) if budget else _UNKNOWN,
        f"{budget.core_seconds / 3600:.1f}" if budget else _UNKNOWN,
        units.format_estimate(budget.wall_seconds) if budget else _UNKNOWN,
        f"{len(longest.path)}" if longest else _UNKNOWN,
        "wheel" if row.here.wheel else f"CUDA {files}" if files else _UNKNOWN,
    ]


def _print_findings(rows: Sequence[Row]) -> None:
    """Each finding once, with the number of its cells."""
    counted = Counter(finding for row in rows for finding in row.judged.findings)
    found = sorted(counted.items(), key=lambda item: (not item[0].failed, -item[1]))
    every = units.pluralize(len(rows), "cell")
    cells = {n: "all cells" if n == len(rows) else f"{n} of {every}" for _, n in found}
    named = (finding.model_copy(update={"subject": cells[n]}) for finding, n in found)
    console.print(findings_table(named, grouped=True))


def _print_shares(plan: Plan) -> None:
    """The times of shards, each figure once."""
    grouped: dict[str, list[str]] = {}
    for name, shares in plan.shares.items():
        grouped.setdefault(shares.summary, []).append(name)
    for text, names in grouped.items():
        which = "each cell" if len(names) == len(plan.rows) else units.join_first(names, most=3)
        say(f"{which}: {text}")
    if grouped:
        say("Preparing hosts, transfers and the link are not included: docs/shards.md.", "dim")


def _print_ways(rows: Sequence[Row]) -> None:
    """Which wheels would be used, and why there are none; each reason once."""
    said: dict[tuple[str, str], None] = {}
    for row in rows:
        if row.way.action == "prebuilt":
            said[f"{row.name}: {row.way.why}, once it is verified", "green"] = None
        elif row.way.action == "none":
            said[row.way.why, "red"] = None
        elif row.way.missed:
            said[row.way.why, "yellow"] = None
    for text, style in said:
        say(text, style)


def _print_notes(plan: Plan, columns: Sequence[str]) -> None:
    """What the columns mean, and what is unknown."""
    notes = [f"{name}: {text}." for name, text in _LEGEND.items() if name in columns]
    if plan.ground.names is None:
        notes.append("The source is not in the cache yet: path lengths are not known.")
    bases: dict[str, list[str]] = {}
    asked = plan.rows if plan.ground.host.cores else ()
    for cuda in dict.fromkeys(row.target.cuda for row in asked):
        cost = plan.recipe.cost(cuda)
        bases.setdefault(cost.basis if cost else "", []).append(cuda)
    for basis, releases in bases.items():
        which = f" for CUDA {', '.join(releases)}" if len(bases) > 1 else ""
        notes.append(
            f"Times and memory{which} are estimates: {basis}."
            if basis
            else f"Times and memory{which} are not known: {shown_file(plan.recipe.name)} has no "
            "costs (docs/recipes.md)."
        )
    for note in notes:
        console.print(between_words(Text(with_pages(note), "dim"), console.width))
