"""``invoke plan``: the matrix as a table, as JSON, or as a matrix of GitHub Actions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pipelines.commands.command import Command
from pipelines.commands.lines import aside, ask_gpus, request_of, settings_of
from pipelines.commands.options import ALL, Flag, Options
from pipelines.errors import ConfigError

if TYPE_CHECKING:
    from pipelines.config import Config
    from pipelines.matrix.hostfacts import HostFacts
    from pipelines.matrix.plan import Plan
    from pipelines.toolchain.lock import Cache

Format = Literal["table", "json", "gha"]
FORMATS: tuple[str, ...] = get_args(Format)

#: Axes that choose the matrix; the others are its own.
_CHOSEN = ("host", "recipe", "version")
#: What a plan ends with that has not one cell to build.
NOTHING = ConfigError.exit_code


def run_plan(
    settings: Config,
    axes: Mapping[str, str],
    *,
    select: str | None = None,
    format: str = "table",
    jobs: int | None = None,
    facts: HostFacts | None = None,
    cache: Cache | None = None,
) -> int:
    """Print the plan; 0, or 2 when no cell can be built.

    ``axes`` are those of a :class:`~pipelines.target.Target`, with several values between commas
    where a matrix has several; lists of architectures stand between ``|``. ``facts`` of a host that
    was asked; without, this machine stands in for it. Nothing is fetched and no host is connected
    to; only what a recipe names under ``prebuilt`` is listed. Raises :class:`ConfigError` for what
    is not understood.
    """
    from pipelines.matrix.hostfacts import HostFacts
    from pipelines.matrix.plan import make_plan
    from pipelines.paths import home
    from pipelines.prebuilt.decide import platforms_of
    from pipelines.recipe.load import check_torch, load_recipe
    from pipelines.recipe.suite import check_places
    from pipelines.toolchain.lock import Cache, load_lock

    if format not in FORMATS:
        raise ConfigError(f"--format {format}: unknown", advice=f"There are: {', '.join(FORMATS)}.")
    name = axes.get("host") or settings.default.host
    windows = settings.host(name).windows
    chosen = load_recipe(axes.get("recipe") or settings.default.recipe, version=axes.get("version"))
    if torch := axes.get("torch"):
        check_torch(chosen, torch)
    check_places(chosen)
    if jobs is not None and jobs < 1:
        raise ConfigError(f"--jobs {jobs}: expected 1 or more", advice="Leave it out: all cores.")
    made = make_plan(
        chosen,
        {axis: text for axis, text in axes.items() if axis not in _CHOSEN},
        cache or Cache(load_lock()),
        facts or HostFacts.local(),
        runs=home() / settings.out,
        host=name,
        select=select,
        jobs=jobs,
        platforms=platforms_of(windows=windows),
    )
    _print(made, format)
    done = chosen.strategy == "skip" or any(row.possible for row in made.rows)
    return 0 if done else NOTHING


def _print(made: Plan, format: str) -> None:
    from pipelines.console import console
    from pipelines.matrix.export import as_gha, as_json
    from pipelines.matrix.show import print_table

    if format == "json":
        console.print(json.dumps(as_json(made), indent=1), markup=False, soft_wrap=True)
    elif format == "gha":
        matrix = json.dumps(as_gha(made), separators=(",", ":"))
        console.print(matrix, markup=False, soft_wrap=True)
    else:
        print_table(made)


class PlanOptions(Options):
    """Flags of ``plan``: an axis may have several values here, see :func:`run_plan`."""

    select: Annotated[
        str | None, Flag("only the cells whose name fits, such as 'cp312-torch2.8-*'")
    ] = None
    format: Annotated[str, Flag("table, json, or gha (a matrix of GitHub Actions)")] = "table"
    ask: Annotated[
        bool, Flag("ask the host for its memory, cores and GPUs, instead of taking this machine's")
    ] = False
    axes = ALL
    several = True
    shared = ("jobs", "verbose")


def plan(options: PlanOptions, given: dict[str, Any]) -> int:
    """Show what can be built, what not and why, how long it takes and whether it fits."""
    request, shared = request_of(given)
    return run_plan(
        settings_of(shared),
        request.axes,
        select=options.select,
        format=options.format,
        jobs=request.jobs,
        facts=_ask(request.axes.get("host")) if options.ask else None,
    )


def _ask(host: str | None) -> HostFacts:
    """What the host says of itself."""
    from pipelines.matrix.hostfacts import HostFacts

    with aside(host) as line:
        native = ask_gpus(line.session)
        return HostFacts.told(line.session.facts, name=line.plan.host.name, native=native)


COMMAND = Command(plan, PlanOptions)
