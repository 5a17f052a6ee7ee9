"""``invoke watch``: what is out and not in an index yet, as cells to build."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from json import dumps
from typing import TYPE_CHECKING

from pipelines.cli.command import command
from pipelines.cli.lines import effective_settings, request_of
from pipelines.cli.options import Flags, parse_output_path, parse_whole_number
from pipelines.cli.plan import one_format
from pipelines.core.errors import ConfigError

if TYPE_CHECKING:
    from pipelines.plan.config.model import Config
    from pipelines.plan.matrix.buildplan import Request
    from pipelines.plan.matrix.plan import Plan
    from pipelines.publish.index.catalogue import Catalogue
    from pipelines.publish.watch.cells import Watched
    from pipelines.publish.watch.look import Out
    from pipelines.recipe.model import Recipe


@command(
    shared=("host", "python", "torch", "cuda"),
    help={
        "index": "the index: a directory, s3://BUCKET/PATH, or its https address",
        "recipe": "recipes, separated by commas (default: those that the index has wheels of)",
        "archs": "GPU architectures, such as '75;86;90+PTX' (default: the recipe's)",
        "most": "cells at once; the others wait for the next time (default: 24)",
        "turn": "how often it was asked before: half of --most are others each time (default: 0)",
        "pre": "pre-releases too",
        "pins": "write what the lock needs for new wheels of torch to this file: docs/watch.md",
        "format": "table, json, or gha (inputs of wheels.yml as a matrix)",
    },
    several=True,
)
def watch(
    flags: Flags,
    index: str,
    *,
    recipe: str | None = None,
    archs: str | None = None,
    most: str | None = None,
    turn: str | None = None,
    pre: bool = False,
    pins: str | None = None,
    format: str = "table",
    json: bool = False,
) -> None:
    """Compare what torch, CUDA, Python and upstreams have released with what an index holds.

    Prints the cells to build, each with the reason, and what leads to no cell. Exits with status 3
    if a page cannot be read or lies: then it is unknown whether anything is new.
    """
    from pipelines.core.console import print_json
    from pipelines.plan.matrix.cells import patterns_of
    from pipelines.plan.matrix.export import GHA_MOST
    from pipelines.publish.watch import held, show
    from pipelines.publish.watch.cells import index_ahead_findings
    from pipelines.publish.watch.look import read_all_releases
    from pipelines.publish.watch.orders import (
        gha_strategy_matrix,
        judge_cells,
        limit_cells_to_build,
        mark_pinned_cells,
    )
    from pipelines.publish.watch.pins import make_torch_pins
    from pipelines.publish.watch.released import MOST, TORCH_BUILDS
    from pipelines.recipe.load import load_recipe, load_versions
    from pipelines.toolchain.lock import load_lock

    format = one_format(format, json=json)
    bound, asked_before = parse_whole_number("most", most), parse_whole_number("turn", turn) or 0
    bound = MOST if bound is None else bound
    if not 1 <= bound <= GHA_MOST:
        raise ConfigError(
            f"--most {most}: a matrix has 1 to {GHA_MOST} cells", hint=f"Such as {MOST}."
        )
    if asked_before < 0:
        raise ConfigError(f"--turn {turn}: expected 0 or more", hint="Such as the number of a run.")
    file = parse_output_path("pins", pins)
    request, shared = request_of(flags)
    if archs:
        request = replace(request, axes={**request.axes, "archs": archs})
    settings = effective_settings(shared, request.axes.get("host"))
    catalogue = held.catalogue_of(index)
    names = _recipes(patterns_of(recipe or ""), catalogue)
    recipes = [load_recipe(name) for name in names]
    lock = load_lock()
    out = read_all_releases({name: load_versions(name) for name in names}, lock, pre=pre)
    found = [_compared(each, out, catalogue, request, settings) for each in recipes]
    orders = [judge_cells(one, _plan(one, request, settings)) for one in found]
    notes = [*out.notes, *index_ahead_findings(catalogue, out.torches)]
    notes += [note for one in found for note in one.notes]
    if file is not None:
        unpinned = [one for order in orders for one in order.of("pin") if one.missing == ("torch",)]
        targets = [one.target for one in unpinned]
        made = make_torch_pins(lock, out.torches, targets, home=TORCH_BUILDS)
        made.write(file)
        orders = mark_pinned_cells(orders, made.ids)
        notes += made.notes
    orders = limit_cells_to_build(orders, bound, asked_before)
    if format == "json":
        document = show.as_json(index, catalogue.generation, out.torches, orders, notes)
        print_json(document | {"matrix": gha_strategy_matrix(orders, archs or "")})
        return
    if format == "gha":
        print_json(dumps(gha_strategy_matrix(orders, archs or ""), separators=(",", ":")))
    show.show(orders, notes)


def _recipes(named: Sequence[str], catalogue: Catalogue) -> list[str]:
    """Those that are named; else those with a wheel in the index."""
    from pipelines.publish.watch.held import is_of
    from pipelines.recipe.load import load_versions, recipe_names

    if named:
        return list(dict.fromkeys(named))
    every = [next(iter(load_versions(name).values())) for name in recipe_names()]
    found = [one.name for one in every if any(is_of(wheel, one) for wheel in catalogue.wheels)]
    if not found:
        raise ConfigError(
            "the index has no wheel of any recipe, so there is nothing to watch",
            hint="Name recipes: --recipe flash-attn,xformers",
        )
    return found


def _compared(
    recipe: Recipe, out: Out, catalogue: Catalogue, request: Request, settings: Config
) -> Watched:
    from pipelines.plan.matrix.buildplan import archs_asked
    from pipelines.plan.matrix.cells import patterns_of
    from pipelines.publish.watch.cells import Watched, compare_recipe
    from pipelines.publish.watch.released import TORCHES, choose_torch_releases, release_warning

    axes = request.axes
    if not recipe.is_wheel or recipe.strategy in ("skip", "prebuilt"):
        says = f"no wheel of {recipe.name} is built here"
        return Watched(
            recipe, (), 0, 0, (release_warning("not-built", recipe.name, says, recipe.skip),)
        )
    if recipe.name in out.yanked:
        return Watched(recipe, (), 0, 0, ())
    asked = patterns_of(axes.get("torch", ""))
    torches, left = choose_torch_releases(recipe, out.torches, asked, TORCHES)
    return compare_recipe(
        recipe,
        out.torches,
        torches,
        catalogue,
        host=axes.get("host") or settings.default.host,
        archs=archs_asked(settings, request, recipe),
        pythons=patterns_of(axes.get("python", "")),
        cudas=patterns_of(axes.get("cuda", "")),
        notes=left,
    )


def _plan(watched: Watched, request: Request, settings: Config) -> Plan | None:
    """The plan of the cells that are wanted; ``None`` without any."""
    from pipelines.plan.matrix.plan import plan_matrix

    if not watched.cells:
        return None
    axes = {name: text for name, text in request.axes.items() if name in ("host", "archs")}
    axes["recipe"] = watched.recipe.name
    for axis in ("python", "torch", "cuda"):
        values = dict.fromkeys(getattr(one.target, axis) for one in watched.cells)
        if any(values):
            axes[axis] = ",".join(values)
    select = ",".join(one.name for one in watched.cells)
    return plan_matrix(settings, replace(request, axes=axes), select=select)
