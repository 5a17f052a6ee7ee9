"""``invoke plan``: the matrix as a table, as JSON, or as a matrix of GitHub Actions."""

from __future__ import annotations

import json
from typing import Literal, get_args

from pipelines.config import Config
from pipelines.console import console
from pipelines.errors import ConfigError
from pipelines.matrix.export import as_gha, as_json
from pipelines.matrix.hostfacts import HostFacts
from pipelines.matrix.plan import make_plan
from pipelines.matrix.show import print_table
from pipelines.paths import home
from pipelines.prebuilt.decide import platforms_of
from pipelines.recipe.load import check_torch, load_recipe
from pipelines.toolchain.lock import Cache, load_lock

Format = Literal["table", "json", "gha"]
FORMATS: tuple[str, ...] = get_args(Format)

#: What a plan ends with that has not one cell to build.
NOTHING = ConfigError.exit_code


def run_plan(
    settings: Config,
    *,
    host: str | None = None,
    recipe: str | None = None,
    version: str | None = None,
    select: str | None = None,
    format: str = "table",
    jobs: int | None = None,
    facts: HostFacts | None = None,
    cache: Cache | None = None,
    **axes: str | None,
) -> int:
    """Print the plan; 0, or 2 when no cell can be built.

    ``axes`` are the others of a :class:`~pipelines.target.Target`, with several values between
    commas; several lists of architectures stand between ``|``. ``facts`` of a host that was asked;
    without, this machine stands in for it. Nothing is fetched and no host is connected to; only
    what a recipe names under ``prebuilt`` is listed. Raises :class:`ConfigError` for what is not
    understood.
    """
    if format not in FORMATS:
        raise ConfigError(f"--format {format}: unknown", advice=f"There are: {', '.join(FORMATS)}.")
    name = host or settings.default.host
    windows = settings.host(name).windows
    chosen = load_recipe(recipe or settings.default.recipe, version=version)
    if torch := axes.get("torch"):
        check_torch(chosen, torch)
    if jobs is not None and jobs < 1:
        raise ConfigError(f"--jobs {jobs}: expected 1 or more", advice="Leave it out: all cores.")
    plan = make_plan(
        chosen,
        axes,
        cache or Cache(load_lock()),
        facts or HostFacts.local(),
        runs=home() / settings.out,
        host=name,
        select=select,
        jobs=jobs,
        platforms=platforms_of(windows=windows),
    )
    if format == "json":
        console.print(json.dumps(as_json(plan), indent=1), markup=False, soft_wrap=True)
    elif format == "gha":
        matrix = json.dumps(as_gha(plan), separators=(",", ":"))
        console.print(matrix, markup=False, soft_wrap=True)
    else:
        print_table(plan)
    done = chosen.strategy == "skip" or any(row.possible for row in plan.rows)
    return 0 if done else NOTHING
