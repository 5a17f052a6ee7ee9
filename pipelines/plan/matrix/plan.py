"""A plan: the verdict on every cell of a recipe's matrix, and what is already on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache as remember
from functools import partial
from pathlib import Path

from pipelines.core.architectures import gpus
from pipelines.core.errors import ConfigError
from pipelines.core.paths import project_dir
from pipelines.core.target import Target
from pipelines.core.toolsets import MSVC
from pipelines.core.versions import minor_release
from pipelines.hosts.base import Supply
from pipelines.plan.config.model import Config
from pipelines.plan.matrix import cells
from pipelines.plan.matrix.buildplan import (
    Request,
    archs_asked,
    finalize_recipe,
    jobs_asked,
    open_cache,
    resolve_build_plan,
)
from pipelines.plan.matrix.hostfacts import HostFacts
from pipelines.plan.matrix.judge import Ground, Judged, judge_targets
from pipelines.plan.matrix.shares import Shares, estimate_shares
from pipelines.plan.prebuilt.candidates import list_wheel_offers
from pipelines.plan.prebuilt.decide import Decision, apply_strategy, platforms_of
from pipelines.plan.provisioning.base import fill_placeholders
from pipelines.plan.provisioning.resources import load_resources
from pipelines.recipe.load import check_torch, for_cell, load_recipe
from pipelines.recipe.model import SEARCHING, Recipe
from pipelines.recipe.sourcetree import SourceTree
from pipelines.recipe.tested import cells_of_tests
from pipelines.toolchain.lock import Cache

#: Axes that choose the matrix, and the one with its own syntax; the others are the matrix's own.
_CHOSEN = ("host", "recipe", "version", "archs")


@dataclass(frozen=True)
class Here:
    """What is already on this machine for a cell."""

    toolkit_files: str
    """Files of its CUDA toolkit in the cache: ``9/12``; empty: the host gets none."""
    wheel: str | None
    """Path of the wheel of an earlier run."""


@dataclass(frozen=True)
class Row:
    """A cell of a plan."""

    name: str
    judged: Judged
    way: Decision
    """The decision of the recipe's strategy."""
    here: Here

    @property
    def target(self) -> Target:
        """What would be built."""
        return self.judged.target

    @property
    def possible(self) -> bool:
        """Whether there can be a wheel: a prebuilt one needs no compiler."""
        return self.way.action == "prebuilt" or (
            self.way.action == "build" and self.judged.buildable
        )

    @property
    def why_not(self) -> str:
        """The first reason why it is not possible."""
        if self.way.action == "none":
            return self.way.why
        found = next((finding for finding in self.judged.findings if finding.failed), None)
        return f"{found.actual} ({found.id})" if found else self.way.why


@dataclass(frozen=True)
class Plan:
    """What is printed, in any format."""

    recipe: Recipe
    ground: Ground
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    """Remarks on the host."""
    shares: Mapping[str, Shares] = field(default_factory=dict)
    """For each cell that is built, by name: the shards, if requested."""

    others: int = 0
    """Rows that are not shown."""

    def led_by(self, axes: Mapping[str, str], python: str) -> Plan:
        """With the target first that a build with these axes would have, or the nearest to it.

        Without axes it is the only one. ``python`` is the default.
        """
        recipe = self.recipe
        own = {"python": python, "torch": recipe.torch, "cuda": recipe.cuda}
        wanted = own | {axis: text.split(",")[0] for axis, text in axes.items()}

        def away(row: Row) -> int:
            return sum(wanted[axis] != getattr(row.target, axis) for axis in own)

        rows = sorted(self.rows, key=away)
        if not own.keys() & axes.keys():
            rows = rows[:1]
        return replace(self, rows=tuple(rows), others=len(self.rows) - len(rows))

    def divided(self, count: int, jobs: int | None = None) -> Plan:
        """The plan with the times of ``count`` shards of each cell; 0: as many as are useful."""
        names, made = self.ground.names, {}
        for row in self.rows:
            archs = row.judged.archs
            if row.possible and row.way.action == "build" and archs and row.judged.budget:
                recipe = for_cell(self.recipe, cuda=row.target.cuda)
                host = self.ground.host
                found = estimate_shares(
                    recipe, host, archs.effective, count, jobs=jobs, names=names
                )
                if found is not None:
                    made[row.name] = found
        return replace(self, shares=made)


def plan_matrix(
    settings: Config,
    request: Request,
    *,
    select: str | None = None,
    facts: HostFacts | None = None,
) -> Plan:
    """The requested cells whose names match ``select``.

    The request's axes may have several values, separated by commas; lists of architectures are
    separated by ``|``. The rest is as for a build. ``facts`` are of a host that was asked. Nothing
    is downloaded and no host is contacted; only places under a recipe's ``prebuilt`` are listed.
    Raises :class:`ConfigError` for an invalid request.
    """
    axes = request.axes
    name = axes.get("host") or settings.default.host
    host = settings.host(name)
    recipe = load_recipe(axes.get("recipe") or settings.default.recipe, version=axes.get("version"))
    recipe = finalize_recipe(recipe, request)
    if torch := axes.get("torch"):
        check_torch(recipe, torch)
    cache = open_cache(settings)
    facts = facts or HostFacts.unasked(name, host)
    supply = host.supply(cache.lock)
    supply = replace(supply, missing=(*supply.missing, *host.missing()))
    others = remember(lambda: settings.others(name, cache.lock))
    ground = lay_ground(recipe, cache, facts, supply, others, jobs=jobs_asked(settings, request))
    if cache.offline:
        ground = replace(
            ground,
            offline=lambda one: resolve_build_plan(settings, request.of(one)).offline_rules(),
        )
    lists = [
        gpus.parse_gpu_archs(text, facts.native)
        for text in archs_asked(settings, request, recipe).split("|")
    ]
    versions = {axis: cells.patterns_of(text) for axis, text in axes.items() if axis not in _CHOSEN}
    named = cells.expand_cells(recipe, versions, lists, host=name)
    named = cells.select_cells(named, [select] if select else [])
    judged = judge_targets(recipe, (cell.target for cell in named), ground)
    platforms = platforms_of(windows=host.is_windows)
    ways = cell_decisions(recipe, named, platforms, offline=cache.offline)
    here = what_is_here(cache, judged, project_dir() / settings.out, supply)
    rows = zip((cell.name for cell in named), judged, ways, here, strict=True)
    return Plan(recipe, ground, tuple(Row(*row) for row in rows), tuple(host.notes(name)))


def lay_ground(
    recipe: Recipe,
    cache: Cache,
    host: HostFacts,
    supply: Supply,
    others: Callable[[], Mapping[str, Supply]],
    *,
    jobs: int | None = None,
) -> Ground:
    """The facts from host, lock, layout and cache."""
    resources = load_resources()
    wanted = dict.fromkeys((*recipe.build_requires, *recipe.test_tools))
    if supply.existing:  # nothing of the lock is installed there
        wanted = {}
    if supply.msvc_tools:
        lent = (one for one in resources.resources if one.needs == ("msvc",))
        names = (name for one in lent for name in getattr(one, "tools", ()))
        wanted |= dict.fromkeys(name for name in names if "*" not in name)  # a tool kit is judged

    def unavailable(target: Target) -> list[str]:
        """The lock knows torch by its minor releases."""
        known = target.model_copy(update={"torch": minor_release(target.torch)})
        # A crate is for no Python, and a plan of it has none.
        asked = (name for name in wanted if target.python or "{python}" not in name)
        names = [fill_placeholders(name, target.fields()) for name in asked]
        found = cache.lock.unavailable(names, known, supply.replacements)
        for cell in () if supply.existing else tested(known):
            if cell.torch != known.torch:
                missing = cache.lock.unavailable(["torch"], cell, supply.replacements)
                found += [f"{name} for torch {cell.torch}" for name in missing]
        return found

    def tested(target: Target) -> tuple[Target, ...]:
        lock, instead = cache.lock, supply.replacements
        return cells_of_tests(recipe, target, lock, instead, existing=supply.existing)

    def untested(target: Target) -> list[str]:
        known = {minor_release(cell.torch) for cell in tested(target)}
        return [release for release in recipe.tested_with if release not in known]

    return Ground(
        host=host,
        build_root=resources.layout.build_root,
        supply=supply,
        others=others,
        unavailable=unavailable,
        untested=untested,
        names=SourceTree(recipe, cache).names(),
        jobs=jobs,
    )


def cell_decisions(
    recipe: Recipe, named: Iterable[cells.Named], platforms: Sequence[str], *, offline: bool = False
) -> list[Decision]:
    """The strategy's decision on each cell; each place of ``prebuilt`` is listed once.

    Raises :class:`ConfigError` for a place that cannot be listed.
    """
    look = remember(partial(list_wheel_offers, offline=offline))
    for place in recipe.prebuilt if recipe.strategy in SEARCHING else ():
        look(place, recipe.distribution)
    made = []
    for name, target in named:
        try:
            made.append(apply_strategy(recipe, target, name=name, platforms=platforms, look=look))
        except ConfigError as error:
            made.append(Decision("none", error.message))
    return made


def what_is_here(cache: Cache, judged: Iterable[Judged], runs: Path, supply: Supply) -> list[Here]:
    """For each target: how many files of its toolkit are cached, and its wheel below ``runs``."""
    built = {path.name: str(path) for path in runs.glob("*/wheels/*.whl")} if runs.is_dir() else {}
    rows = [*judged]
    first = {one.target.cuda: one.target for one in reversed(rows)}
    counts = {cuda: _cached_toolkit(cache, target, supply) for cuda, target in first.items()}
    return [Here(counts[one.target.cuda], built.get(one.wheel)) for one in rows]


def _cached_toolkit(cache: Cache, target: Target, supply: Supply) -> str:
    """How many of the toolkit's files for that host are in the cache."""
    lock = cache.lock
    if supply.existing or (supply.cuda is not None and target.cuda not in supply.cuda):
        return ""
    ids = lock.toolkits.get(target.cuda, [])
    if supply.toolset.name != MSVC.name:
        named = {one.id: one for one in load_resources().resources}
        tools = getattr(named["CUDA compiler"], "tools", ())
        ids = [*lock.entries_for(tools, target, supply.replacements).values()]
    names = [name for name in ids if lock.tools[name].pinned]
    return f"{len(names) - len(cache.missing(names))}/{len(names)}" if names else ""
