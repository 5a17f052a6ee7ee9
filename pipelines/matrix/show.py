"""``invoke plan``: the matrix as a table, as JSON, or as a matrix of GitHub Actions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache as remember
from pathlib import Path
from typing import Any, Literal, get_args

from rich.markup import escape

from pipelines.architectures import gpus
from pipelines.config import Config
from pipelines.console import console, say
from pipelines.errors import ConfigError
from pipelines.matrix.hostfacts import GIB, HostFacts
from pipelines.matrix.judge import Ground, Judged, expand, judge
from pipelines.matrix.judge import select as pick
from pipelines.matrix.paths import MAX_PATH
from pipelines.paths import home
from pipelines.prebuilt.candidates import offers_of
from pipelines.prebuilt.decide import WINDOWS, Decision, decide, platforms_of
from pipelines.provisioning.resources import load_resources
from pipelines.recipe.load import check_torch, load_recipe
from pipelines.recipe.model import Recipe
from pipelines.recipe.sourcetree import names_if_here
from pipelines.tables import print_columns
from pipelines.target import Target
from pipelines.toolchain.lock import Cache, ToolchainLock, load_lock

Format = Literal["table", "json", "gha"]
FORMATS: tuple[str, ...] = get_args(Format)

#: Of jobs that one matrix of GitHub Actions may have:
#: https://docs.github.com/en/actions/reference/limits
GHA_MOST = 256
_COLUMNS = ("cell", "verdict", "archs", "jobs", "memory", "core h", "time", "path", "cached")
#: Columns that a narrow terminal goes without, the first first.
_SPARE = ("cached", "path", "core h", "memory", "jobs", "time")
#: What a plan ends with that has not one cell to build.
NOTHING = ConfigError.exit_code


def run_plan(
    settings: Config,
    *,
    host: str | None = None,
    recipe: str | None = None,
    select: str | None = None,
    python: str | None = None,
    torch: str | None = None,
    cuda: str | None = None,
    archs: str | None = None,
    format: str = "table",
    version: str | None = None,
    jobs: int | None = None,
    facts: HostFacts | None = None,
    cache: Cache | None = None,
) -> int:
    """Print the plan; 0, or 2 when no cell can be built.

    Several values of an axis stand between commas; several lists of architectures between ``|``.
    ``facts`` of a host that was asked; without, this machine stands in for it. Nothing is fetched
    and no host is connected to; only what a recipe names under ``prebuilt`` is listed. Raises
    :class:`ConfigError` for what is not understood.
    """
    if format not in FORMATS:
        raise ConfigError(f"--format {format}: unknown", advice=f"There are: {', '.join(FORMATS)}.")
    name = host or settings.default.host
    windows = settings.host(name).windows
    chosen = load_recipe(recipe or settings.default.recipe, version=version)
    _check(chosen, torch, jobs)
    kept = cache or Cache(load_lock())
    ground = lay_ground(chosen, kept, facts or HostFacts.local(), jobs=jobs)
    rows = plan(chosen, ground, select=select, python=python, torch=torch, cuda=cuda, archs=archs)
    have = what_is_here(kept, rows, home() / settings.out)
    ways = decisions(chosen, rows, platforms_of(windows=windows))
    if format == "json":
        document = as_json(chosen, ground, rows, have, ways)
        console.print(json.dumps(document, indent=1), markup=False, soft_wrap=True)
    elif format == "gha":
        matrix = as_gha(chosen, name, rows, ways)
        console.print(json.dumps(matrix, separators=(",", ":")), markup=False, soft_wrap=True)
    else:
        print_table(chosen, ground, rows, have, ways)
    done = any(possible(row, ways[row.cell.id]) for row in rows)
    return 0 if chosen.strategy == "skip" or done else NOTHING


def _check(recipe: Recipe, torch: str | None, jobs: int | None) -> None:
    """Raise :class:`ConfigError` for what ``invoke build`` would not take either."""
    if torch:
        check_torch(recipe, torch)
    if jobs is not None and jobs < 1:
        raise ConfigError(f"--jobs {jobs}: expected 1 or more", advice="Leave it out: all cores.")


def decisions(
    recipe: Recipe, rows: Sequence[Judged], platforms: Sequence[str] = WINDOWS
) -> dict[str, Decision | str]:
    """Of each cell, by its id: what the strategy makes of it, or why nothing can be had.

    Each place of ``prebuilt`` is listed once. Raises :class:`ConfigError` for one that cannot be.
    """
    look = remember(offers_of)
    for place in recipe.prebuilt if recipe.strategy.startswith("prebuilt") else ():
        look(place, recipe.distribution)
    made: dict[str, Decision | str] = {}
    for row in rows:
        try:
            made[row.cell.id] = decide(recipe, row.cell, platforms=platforms, look=look)
        except ConfigError as error:
            made[row.cell.id] = error.message
    return made


def possible(row: Judged, way: Decision | str) -> bool:
    """Whether a wheel can come of the cell: one that is there needs no compiler."""
    if isinstance(way, str) or way.action == "skip":
        return False
    return way.action == "prebuilt" or row.buildable


def plan(
    recipe: Recipe,
    ground: Ground,
    *,
    select: str | None = None,
    python: str | None = None,
    torch: str | None = None,
    cuda: str | None = None,
    archs: str | None = None,
) -> list[Judged]:
    """The judged cells of what was asked for, see :func:`run_plan`."""
    lists = [gpus.read(text, ground.host.native) for text in (archs or recipe.archs).split("|")]
    cells = expand(
        recipe, python=_split(python), torch=_split(torch), cuda=_split(cuda), archs=lists
    )
    return judge(recipe, pick(cells, [select] if select else []), ground)


def lay_ground(
    recipe: Recipe, cache: Cache, host: HostFacts, *, jobs: int | None = None, stamp: str = ""
) -> Ground:
    """What the lock, the layout and the cache say, for :func:`plan`."""
    wanted = dict.fromkeys((*recipe.build_requires, *recipe.test_requires))
    return Ground(
        host=host,
        build_root=load_resources().layout.build_root,
        toolkits=toolkits(cache.lock),
        lacking=lambda cell: cache.lock.lacking(
            wanted, Target(python=cell.python, cuda=cell.cuda, torch=cell.torch)
        ),
        names=names_if_here(recipe, cache),
        jobs=jobs,
        stamp=stamp,
    )


def toolkits(lock: ToolchainLock) -> frozenset[str]:
    """CUDA releases whose compiler the lock has, pinned."""
    parts = [name.split("-") for name in lock.tools if name.endswith("-cuda_nvcc")]
    return frozenset(p[1] for p in parts if _pinned(lock, "-".join(p)))


def _pinned(lock: ToolchainLock, name: str) -> bool:
    tool = lock.tools.get(name)
    return tool is not None and tool.pinned


def _split(text: str | None) -> list[str]:
    return [part for part in (text or "").replace(",", " ").split() if part]


def what_is_here(cache: Cache, rows: Sequence[Judged], runs: Path) -> dict[str, dict[str, Any]]:
    """Of each cell: how many files of its toolkit the cache has, and a wheel that is built."""
    groups: dict[str, list[str]] = {}
    for tool in cache.lock.tools:
        if tool.startswith("cuda-") and _pinned(cache.lock, tool):
            groups.setdefault(tool.split("-")[1], []).append(tool)
    counts = {
        cuda: f"{len(names) - len(cache.missing(names))}/{len(names)}"
        for cuda, names in groups.items()
    }
    built = {path.name: path for path in runs.glob("*/wheels/*.whl")} if runs.is_dir() else {}
    here: dict[str, dict[str, Any]] = {}
    for row in rows:
        wheel = built.get(row.wheel) if row.wheel else None
        here[row.cell.id] = {
            "toolkit_files": counts.get(row.cell.cuda, "0/0"),
            "wheel": str(wheel) if wheel else None,
        }
    return here


def as_json(
    recipe: Recipe,
    ground: Ground,
    rows: Sequence[Judged],
    have: dict[str, dict[str, Any]],
    ways: Mapping[str, Decision | str],
) -> dict[str, Any]:
    """The whole plan as plain values; sizes in bytes, times in seconds."""
    return {
        "recipe": recipe.name,
        "version": recipe.version,
        "strategy": recipe.strategy,
        "host": asdict(ground.host),
        "source_in_cache": ground.names is not None,
        "max_path": MAX_PATH,
        "cells": [
            {
                "id": row.cell.id,
                "python": row.cell.python,
                "torch": row.cell.torch,
                "cuda": row.cell.cuda,
                "archs": str(row.cell.archs),
                "effective_archs": str(row.archs.effective) if row.archs else None,
                "arch_variables": row.archs.variables if row.archs else {},
                "buildable": row.buildable,
                **_way(ways[row.cell.id]),
                "findings": [asdict(finding) for finding in row.findings],
                "budget": asdict(row.budget) if row.budget else None,
                "longest_path": row.longest.path if row.longest else None,
                "local_version": row.local,
                "wheel": row.wheel,
                "here": have.get(row.cell.id, {}),
            }
            for row in rows
        ],
    }


def _way(way: Decision | str) -> dict[str, Any]:
    """``way`` is ``build``, ``prebuilt``, ``skip`` or ``none``."""
    if isinstance(way, str):
        return {"way": "none", "why": way, "prebuilt": None}
    offer = way.offer
    place = {"file": offer.file, "place": offer.place, "sha256": offer.sha256} if offer else None
    return {"way": way.action, "why": way.why, "prebuilt": place}


def as_gha(
    recipe: Recipe, host: str, rows: Sequence[Judged], ways: Mapping[str, Decision | str]
) -> dict[str, Any]:
    """A value for ``strategy.matrix``: the cells of which a wheel can come, and nothing else.

    Raises :class:`ConfigError` when there are none, or more than GitHub takes.
    """
    good = [row for row in rows if possible(row, ways[row.cell.id])]
    if not good or len(good) > GHA_MOST:
        raise ConfigError(
            f"{len(good)} cells can be built; a matrix has 1 to {GHA_MOST}",
            advice="Choose others with --select, such as 'cp312-*'; --format table says why not.",
        )
    return {
        "include": [
            {
                "cell": row.cell.id,
                "host": host,
                "recipe": recipe.name,
                "version": recipe.version,
                "python": row.cell.python,
                "torch": row.cell.torch,
                "cuda": row.cell.cuda,
                "archs": str(row.cell.archs),
                "way": _way(ways[row.cell.id])["way"],
            }
            for row in good
        ]
    }


def print_table(
    recipe: Recipe,
    ground: Ground,
    rows: Sequence[Judged],
    have: dict[str, dict[str, Any]],
    ways: Mapping[str, Decision | str],
) -> None:
    """For people: a line for each cell, then why cells were rejected."""
    host = ground.host
    name = " ".join(filter(None, (recipe.name, recipe.version)))
    say(f"{name}  ({recipe.kind}, strategy: {recipe.strategy})", "bold")
    if recipe.strategy == "skip":
        say(recipe.skip, "yellow")
        return
    memory = f"{host.memory / GIB:.0f} GiB of memory"
    memory += f", {host.commit / GIB:.0f} GiB to reserve" if host.commit else ""
    say(f"on {host.origin}: {host.cores} cores, {memory}")
    texts = [_cells(row, have.get(row.cell.id, {}), ways[row.cell.id]) for row in rows]
    lines = [dict(zip(_COLUMNS, line, strict=True)) for line in texts]
    without = print_columns(console, lines, fold=["archs"], wrap=["verdict"], spare=_SPARE)
    if without:
        say(f"No room here for: {', '.join(without)}; --format json has everything.", "dim")
    _print_findings(rows)
    _print_ways(rows, ways)
    say(
        "jobs: compile units at a time x nvcc's threads; path: characters of the longest file; "
        "cached: files of the CUDA toolkit, or a wheel of a run.",
        "dim",
    )
    if ground.names is None:
        say("The source is not in the cache yet: path lengths are not known.", "dim")
    bases: dict[str, list[str]] = {}
    for cuda in dict.fromkeys(row.cell.cuda for row in rows):
        if (cost := recipe.cost(cuda)) is not None:
            bases.setdefault(cost.basis, []).append(cuda)
    for basis, releases in bases.items():
        which = f" for CUDA {', '.join(releases)}" if len(bases) > 1 else ""
        say(f"Times and memory{which} are estimates: {basis}.", "dim")
    taken = sum(_taken(ways, row) for row in rows)
    built = [row for row in rows if possible(row, ways[row.cell.id]) and not _taken(ways, row)]
    good = len(built)
    more = f", {taken} are there prebuilt" if taken else ""
    if unpinned := sum(_unpinned(row) for row in built):
        more += f"; {unpinned} of them once toolchain.lock.yaml has what it lacks"
    say(f"{good} of {len(rows)} cells can be built{more}", "green" if good + taken else "red")


def _taken(ways: Mapping[str, Decision | str], row: Judged) -> bool:
    way = ways[row.cell.id]
    return isinstance(way, Decision) and way.action == "prebuilt"


def _unpinned(row: Judged) -> bool:
    return any(finding.rule == "tool-not-pinned" for finding in row.findings)


def _print_ways(rows: Sequence[Judged], ways: Mapping[str, Decision | str]) -> None:
    """Which wheels would be taken, and why there are none; each reason once."""
    said: dict[tuple[str, str], None] = {}
    for row in rows:
        way = ways[row.cell.id]
        if isinstance(way, str):
            said[way, "red"] = None
        elif way.action == "prebuilt":
            said[f"{row.cell.id}: {way.why}, once it is verified", "green"] = None
        elif way.why.startswith("nothing prebuilt"):
            said[way.why, "yellow"] = None
    for text, style in said:
        say(text, style)


def _cells(row: Judged, here: dict[str, Any], way: Decision | str) -> list[str]:
    budget, longest = row.budget, row.longest
    errors = [finding.rule for finding in row.findings if finding.error]
    verdict = f"[red]no: {escape(errors[0])}[/red]" if errors else "[green]yes[/green]"
    if isinstance(way, str):
        verdict = "[red]no: nothing prebuilt[/red]"
    elif way.action == "prebuilt":
        verdict = "[green]prebuilt[/green]"
    return [
        escape(row.cell.id),
        verdict,
        escape(str(row.archs.effective if row.archs else row.cell.archs)),
        f"{budget.jobs} x {budget.threads}" if budget else "?",
        f"{budget.peak / GIB:.0f} GiB" if budget else "?",
        f"{budget.core_seconds / 3600:.1f}" if budget else "?",
        duration(budget.wall_seconds) if budget else "?",
        f"{len(longest.path)}" if longest else "?",
        "wheel" if here.get("wheel") else f"CUDA {here.get('toolkit_files', '0/0')}",
    ]


def _print_findings(rows: Sequence[Judged]) -> None:
    """Each finding once, with the cells that it concerns."""
    grouped: dict[tuple[bool, str, str, str, str], int] = {}
    for row in rows:
        for found in row.findings:
            key = (found.error, found.rule, found.says, found.source, found.cure)
            grouped[key] = grouped.get(key, 0) + 1
    for (error, rule, says, source, cure), count in sorted(
        grouped.items(), key=lambda item: (not item[0][0], -item[1])
    ):
        style, word = ("red", "rejects") if error else ("yellow", "concerns")
        cells = "all cells" if count == len(rows) else f"{count} of {len(rows)} cells"
        say(f"{rule} {word} {cells}: {says}", style)
        say(f"    {source}" + (f"  -> {cure}" if cure else ""), "dim")


def duration(seconds: float) -> str:
    """``2 h 05 min``, ``14 min``, ``40 s``."""
    minutes = round(seconds / 60)
    if seconds < 90:  # noqa: PLR2004 - seconds are what a person still counts
        return f"{seconds:.0f} s"
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"  # noqa: PLR2004
