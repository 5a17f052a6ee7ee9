"""``invoke plan``: the matrix as a table, as JSON, or as a matrix of GitHub Actions."""

from __future__ import annotations

from json import dumps
from typing import TYPE_CHECKING

from pipelines.cli.command import command
from pipelines.cli.lines import effective_settings, host_facts, request_of
from pipelines.cli.options import ALL, FETCH, Flags
from pipelines.core.errors import ConfigError
from pipelines.record.shards import shards_of

if TYPE_CHECKING:
    from pipelines.plan.config.model import Config
    from pipelines.plan.matrix.buildplan import Request
    from pipelines.plan.matrix.hostfacts import HostFacts
    from pipelines.plan.matrix.plan import Plan

FORMATS = ("table", "json", "gha")

#: What a plan ends with that has not one cell to build.
NOTHING = ConfigError.exit_code


def one_format(format: str, *, json: bool = False) -> str:
    """What is asked for by ``--format`` and ``--json``."""
    if format not in FORMATS:
        raise ConfigError(f"--format {format}: unknown", hint=f"There are: {', '.join(FORMATS)}.")
    if json and format == "gha":
        raise ConfigError("--json and --format gha exclude each other", hint="Omit one of them.")
    return "json" if json else format


def run_plan(
    settings: Config,
    request: Request,
    *,
    select: str | None = None,
    format: str = "table",
    facts: HostFacts | None = None,
) -> int:
    """Print the plan; 0, or 2 when no cell can be built."""
    from pipelines.plan.matrix.buildplan import jobs_asked
    from pipelines.plan.matrix.plan import plan_matrix

    format = one_format(format)
    made = plan_matrix(settings, request, select=select, facts=facts)
    if format == "table" and not select:
        made = made.led_by(request.axes, settings.default.python)
    if request.shards:
        made = made.divided(shards_of(request.shards), jobs_asked(settings, request))
    _print_plan(made, format)
    done = made.recipe.strategy == "skip" or any(row.possible for row in made.rows)
    return 0 if done else NOTHING


def _print_plan(made: Plan, format: str) -> None:
    from pipelines.core.console import print_json
    from pipelines.plan.matrix.export import plan_as_gha_matrix, plan_as_json
    from pipelines.plan.matrix.show import print_table

    if format == "json":
        print_json(plan_as_json(made))
    elif format == "gha":
        print_json(dumps(plan_as_gha_matrix(made), separators=(",", ":")))
    else:
        print_table(made)


@command(
    shared=(*ALL, "for_", "jobs", "shards", *FETCH, "gpu"),
    help={
        "select": "only the cells whose name matches, such as 'cp312-torch2.8-*'",
        "format": "table, json, or gha (a matrix of GitHub Actions)",
        "ask": "ask the host for memory, cores and GPUs that pipeline.yaml does not have",
    },
    several=True,
)
def plan(
    flags: Flags,
    *,
    select: str | None = None,
    format: str = "table",
    ask: bool = False,
    json: bool = False,
) -> int:
    """Show what can be built, what not and why, how long it takes and whether it fits.

    Without an axis or --select the table shows the one target that a build would be of.
    """
    format = one_format(format, json=json)  # before a host is asked
    request, shared = request_of(flags)
    return run_plan(
        effective_settings(shared, request.axes.get("host")),
        request,
        select=select,
        format=format,
        facts=host_facts(request.axes.get("host"), gpu=shared.gpu) if ask else None,
    )
