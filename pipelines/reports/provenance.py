"""The inputs of a run as sections of names and values, bounded and safe to print."""

from __future__ import annotations

from itertools import islice

from pipelines.core import units
from pipelines.core.comparison import Comparison
from pipelines.core.hosttext import safe_line
from pipelines.record.results import BuildResult, PrebuiltResult, RunFacts
from pipelines.record.run import Run
from pipelines.record.shards import ShardsResult
from pipelines.reports.figures import SCRIPT
from pipelines.reports.model import Suite

#: The section with numbers printed by a script.
NUMBERS = "Numbers of the script"
_PAIRS = 200  # of a section


def provenance_sections(
    run: Run,
    facts: RunFacts,
    build: BuildResult | None,
    taken: PrebuiltResult | None,
    suite: Suite,
    *,
    rebuilt: Comparison | None = None,
) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    """Sections on the run, its sources, host, tools and dependencies."""
    known = recorded_facts(facts)
    begun = {"run": run.id, "created": facts.created, "source_sha256": facts.source_sha256}
    environment = build.environment if build else {}
    packages = taken.company.packages if taken is not None and taken.company else ()
    companions = {package.file: f"{package.place}, sha256 {package.sha256}" for package in packages}
    numbers = [p for case in suite.cases for p in case.properties.items()]
    sections = {
        "Run": (begun | known["run"]).items(),
        "Taken from": [*facts.taken_from.items(), *_checked_out(build)],
        NUMBERS: [
            (name.removeprefix(SCRIPT), value) for name, value in numbers if name.startswith(SCRIPT)
        ],
        "Rebuilt": rebuilt.rows.items() if rebuilt else (),
        "Compile units": _shard_unit_counts(build.divided) if build and build.divided else (),
        "Host": known["host"].items(),
        "Tools": known["tool"].items(),
        "Build environment": sorted(environment.items()),
        "Installed with it": companions.items(),
        "Smoke test": [p for p in suite.properties.items() if not p[0].startswith("has.")],
    }
    made = {
        name: tuple(
            (safe_line(k, 100), safe_line(v)) for k, v in islice(pairs, _PAIRS) if safe_line(v)
        )
        for name, pairs in sections.items()
    }
    return tuple((name, pairs) for name, pairs in made.items() if pairs)


def recorded_facts(facts: RunFacts) -> dict[str, dict[str, object]]:
    """What the facts say of the ``run``, its ``host``, and the versions of each ``tool``."""
    names = ("evidence", "publishable", "origin", "toolset", "job")
    return {
        "run": {**facts.target.values(), **{name: getattr(facts, name) for name in names}},
        "host": facts.host.model_dump(exclude_defaults=True) if facts.host else {},
        "tool": {name: tool.version for name, tool in sorted(facts.tools.items())},
    }


def _checked_out(build: BuildResult | None) -> list[tuple[str, str]]:
    """The git checkout that was built, if any."""
    checkout = build.checkout if build else None
    if checkout is None:
        return []
    rows = [("commit", checkout.commit or "none yet")]
    if checkout.count:
        more = ", ..." if checkout.count > len(checkout.changed) else ""
        names = ", ".join(checkout.changed) + more
        rows.append(("uncommitted", f"{units.pluralize(checkout.count, 'file')}: {names}"))
    return rows


def _shard_unit_counts(made: ShardsResult) -> list[tuple[str, str]]:
    """Which host compiled how many units."""
    rows = [("in all", str(len(made.units)))]
    if made.mode == "compile":
        return [*rows, (f"shard {made.share}", str(len(made.objects)))]
    rows += [(f"shard {n.share}, {n.run}", f"{n.units} by {n.host}") for n in made.lent]
    return [*rows, ("by the link", str(len(made.compiled)))]
