"""A plan for programs: as plain values for JSON, and as a matrix of GitHub Actions."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pipelines.core.errors import ConfigError
from pipelines.core.target import AXES
from pipelines.plan.matrix.paths import MAX_PATH
from pipelines.plan.matrix.plan import Plan, Row
from pipelines.plan.matrix.shares import Shares
from pipelines.plan.prebuilt.decide import Decision

#: Of jobs that one matrix of GitHub Actions may have:
#: https://docs.github.com/en/actions/reference/limits
GHA_MOST = 256


def plan_as_json(plan: Plan) -> dict[str, Any]:
    """The whole plan: ``schema`` 1, sizes in bytes, times in seconds."""
    recipe, ground = plan.recipe, plan.ground
    return {
        "schema": 1,
        "recipe": recipe.name,
        "version": recipe.version,
        "strategy": recipe.strategy,
        "host": asdict(ground.host),
        "notes": list(plan.notes),
        "source_in_cache": ground.names is not None,
        "max_path": MAX_PATH,
        "cells": [_plan_cell_json(row, plan.shares.get(row.name)) for row in plan.rows],
    }


def _plan_cell_json(row: Row, shares: Shares | None) -> dict[str, Any]:
    judged = row.judged
    return {
        "id": row.name,
        # The others are the same for all cells.
        **{axis: value for axis, value in row.target.values().items() if AXES[axis].words},
        "effective_archs": str(judged.archs.effective) if judged.archs else None,
        "arch_variables": judged.archs.variables if judged.archs else {},
        "buildable": judged.buildable,
        **_way(row.way),
        "findings": [finding.model_dump(mode="json") for finding in judged.findings],
        "budget": asdict(judged.budget) if judged.budget else None,
        "longest_path": judged.longest.path if judged.longest else None,
        "local_version": judged.local,
        "wheel": judged.wheel,
        "here": asdict(row.here),
        "shares": asdict(shares) if shares else None,
    }


def _way(way: Decision) -> dict[str, Any]:
    offer = way.offer
    place = {"file": offer.file, "place": offer.place, "sha256": offer.sha256} if offer else None
    return {"way": way.action, "why": way.why, "prebuilt": place}


def plan_as_gha_matrix(plan: Plan) -> dict[str, Any]:
    """A value for ``strategy.matrix``: the cells that can give a wheel, and nothing else.

    For a divided plan: the shards of those that have several. Raises :class:`ConfigError` without
    cells, and for more cells or shards than GitHub accepts.
    """
    good = [row for row in plan.rows if row.possible]
    if not good or len(good) > GHA_MOST:
        raise ConfigError(
            f"{len(good)} cells can be built; a matrix has 1 to {GHA_MOST}",
            hint="Choose others with --select, such as 'cp312-*'; --format table says why not.",
        )
    rows = [(row, {"cell": row.name, **row.target.values(), "way": row.way.action}) for row in good]
    if not plan.shares:
        return {"include": [entry for _, entry in rows]}
    every = [
        entry | {"share": f"{number}/{found.count}", "part": f"share{number}of{found.count}"}
        for row, entry in rows
        if (found := plan.shares.get(row.name)) and found.count > 1
        for number in range(1, found.count + 1)
    ]
    if len(every) > GHA_MOST:
        raise ConfigError(
            f"{len(every)} shards of {len(good)} cells; a matrix has at most {GHA_MOST}",
            hint="Choose fewer cells with --select, or fewer --shards.",
        )
    return {"include": every}
