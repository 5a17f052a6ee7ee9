"""What a run was made with, in sections of names and values: bounded, harmless to print."""

from __future__ import annotations

from itertools import islice

from pipelines.core import units
from pipelines.core.hosttext import line
from pipelines.record.compared import Comparison
from pipelines.record.divided import Divided
from pipelines.record.results import BuildResult, PrebuiltResult, RunFacts
from pipelines.record.run import Run
from pipelines.reports.figures import SCRIPT
from pipelines.reports.model import Suite

#: The section of what a script printed, as it printed it.
NUMBERS = "Numbers of the script"
_PAIRS = 200  # of a section


def provenance(
    run: Run,
    facts: RunFacts,
    build: BuildResult | None,
    taken: PrebuiltResult | None,
    suite: Suite,
    *,
    rebuilt: Comparison | None = None,
) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    """Sections of names with values: of the run, its sources, host, tools, what came with it."""
    axes = facts.target.values()
    asked = {
        "run": run.id,
        "created": facts.created,
        "host": axes.pop("host"),
        "evidence": facts.evidence,
        "publishable": facts.publishable,
        "origin": facts.origin,
        **axes,
        "tool set": facts.toolset,
        "job": facts.job,
        "source_sha256": facts.source_sha256,
    }
    host = facts.host.model_dump(exclude_defaults=True) if facts.host else {}
    environment = build.environment if build else {}
    packages = taken.company.packages if taken is not None and taken.company else ()
    beside = {one.file: f"{one.place}, sha256 {one.sha256}" for one in packages}
    numbers = [p for case in suite.cases for p in case.properties.items()]
    sections = {
        "Run": asked.items(),
        "Taken from": [*facts.taken_from.items(), *_checked_out(build)],
        NUMBERS: [
            (name.removeprefix(SCRIPT), value) for name, value in numbers if name.startswith(SCRIPT)
        ],
        "Built again": _compared(rebuilt) if rebuilt else (),
        "Compile units": _divided(build.divided) if build and build.divided else (),
        "Host": host.items(),
        "Tools": sorted((name, tool.version) for name, tool in facts.tools.items()),
        "Build environment": sorted(environment.items()),
        "Installed with it": beside.items(),
        "Smoke test": [p for p in suite.properties.items() if not p[0].startswith("has.")],
    }
    made = {
        name: tuple((line(k, 100), line(v)) for k, v in islice(pairs, _PAIRS) if line(v))
        for name, pairs in sections.items()
    }
    return tuple((name, pairs) for name, pairs in made.items() if pairs)


def _checked_out(build: BuildResult | None) -> list[tuple[str, str]]:
    """What git says of the directory that was built, if it was one of this machine."""
    found = build.checkout if build else None
    if found is None:
        return []
    told = [("commit", found.commit or "none yet")]
    if found.count:
        more = ", ..." if found.count > len(found.changed) else ""
        names = ", ".join(found.changed) + more
        told.append(("not as committed", f"{units.counted(found.count, 'file')}: {names}"))
    return told


def _divided(made: Divided) -> list[tuple[str, str]]:
    """Which host compiled how many of the units."""
    told = [("in all", str(len(made.units)))]
    if made.mode == "compile":
        return [*told, (f"share {made.share}", str(len(made.objects)))]
    told += [(f"share {n.share}, {n.run}", f"{n.units} by {n.host}") for n in made.lent]
    return [*told, ("by the link", str(len(made.compiled)))]


def _compared(made: Comparison) -> list[tuple[str, str]]:
    """The verdict on a wheel that was built again, and where it is another one."""
    told = [("verdict", made.verdict), ("published sha256", made.published)]
    told.append(("sha256 here", made.rebuilt))
    return told + [(f"difference {n}", one.told) for n, one in enumerate(made.differences, 1)]
