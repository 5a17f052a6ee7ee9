"""What the run of a share has compiled, as its sealed record says, for a link of shares."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipelines.core.errors import AuditError, ConfigError, LockError
from pipelines.core.files import disk_errors, sha256_of
from pipelines.core.hosttext import safe_line, safe_text
from pipelines.core.jsonfile import json_differences
from pipelines.core.target import Target
from pipelines.core.units import join_first
from pipelines.plan.matrix.buildplan import BuildPlan
from pipelines.plan.matrix.shares import pin_nvcc_threads
from pipelines.recipe.model import Cost
from pipelines.record.materials import (
    Material,
    Materials,
    format_differences,
    join_difference_labels,
)
from pipelines.record.results import BuildResult, CollectResult, HostFile
from pipelines.record.run import Run
from pipelines.record.shards import ShardsResult, UnitObject
from pipelines.stages.hooks import CollectHooks, RunHooks
from pipelines.stages.line import require_same_target

FOLDER = "objects"
_AGAIN = "Compile the shard again: invoke build --shard"


@dataclass(frozen=True)
class Lender:
    """The run of a share, and what it has compiled: every object was hashed."""

    run: Run
    target: Target
    materials: Materials
    made: ShardsResult

    @property
    def name(self) -> str:
        """Its name and its host's."""
        return f"{self.run.id} ({safe_line(self.target.host, 80)})"

    def path(self, one: UnitObject) -> Path:
        """Where an object is here."""
        return self.run.path / FOLDER / one.sha256


class Linking(RunHooks):
    """Of a share, or of a link of shares."""

    def begin(self) -> Iterable[str]:
        """The runs whose objects are linked: what cannot be is refused before anything is done."""
        return [one.made.summary for one in find_lenders(self.plan)]

    def cost(self, cost: Cost) -> Cost:
        """Of a share, that of its part of the units."""
        share = self.plan.share
        count = math.ceil(cost.units / share.of) if share else cost.units
        return pin_nvcc_threads(cost).model_copy(update={"units": count})


class Objects(CollectHooks):
    """Downloads what a shard has compiled."""

    def wanted(self, built: BuildResult) -> Iterator[tuple[HostFile, str]]:
        """Each object, under its hash."""
        if self.plan.share is not None and built.divided:
            rows = {one.sha256: one for one in built.divided.objects}  # some may be alike
            for sha, row in rows.items():
                yield HostFile.model_validate(dict(row)), f"{FOLDER}/{sha}"

    def had(self, row: HostFile, target: Path, name: str) -> str:
        """From an earlier run that has the object; it is hashed again."""
        out = self.plan.out
        for path in sorted(out.glob(f"*/{name}")) if name.startswith(f"{FOLDER}/") else ():
            if path.stat().st_size == row.size and sha256_of(path) == row.sha256:
                if not target.exists() or not path.samefile(target):
                    with disk_errors(target.parent):
                        shutil.copyfile(path, target)
                return sha256_of(target)
        return ""


def find_lenders(plan: BuildPlan) -> tuple[Lender, ...]:
    """The runs whose objects the plan links, each once; what :func:`find_lender` raises."""
    found = (find_lender(plan, name) for name in plan.objects)
    return tuple({one.run.path: one for one in found}.values())


def find_lender(plan: BuildPlan, name: str) -> Lender:
    """The run called ``name``, of the plan's cell, with unchanged objects.

    Raises :class:`ConfigError` for a run without objects or of another cell, :class:`AuditError`
    for an object that differs from the run's record.
    """
    run = Run.find(plan.out, name)
    built = run.result(BuildResult)
    made = built.divided if built is not None else None
    if built is None or made is None or made.mode != "compile":
        raise ConfigError(
            f"run {run.id} has no objects: it is not a shard",
            hint="Name runs of invoke build --shard; to list all runs: invoke runs",
        )
    home = run.stages().get(CollectResult.stage)
    if home is None or home.state != "passed":
        raise ConfigError(
            f"run {run.id}: its objects were not downloaded", hint=f"{_AGAIN} {made.share}"
        )
    mine = Lender(run, run.facts().target, built.materials, made)
    require_same_target(plan, run, f"invoke build --{{flag}} '{{made}}' --objects {run.id}")
    sources = {unit.id: unit.source for unit in made.units}
    for one in made.objects:
        path, said = mine.path(one), f"{run.id}: object of {safe_text(sources[one.unit], 200)}"
        if not path.is_file():
            raise AuditError(
                f"{said}: {FOLDER}/{one.sha256} does not exist", hint=f"{_AGAIN} {made.share}"
            )
        if (size := path.stat().st_size, sha := sha256_of(path)) != (one.size, one.sha256):
            raise AuditError(
                f"{said} has {size} bytes with sha256 {sha}, but when it was compiled it had "
                f"{one.size} with {one.sha256}",
                hint=f"It is damaged or was changed, so it was not linked. {_AGAIN} {made.share}",
            )
    return mine


def require_matching_objects(
    materials: Materials, compilers: Mapping[str, str], lenders: Iterable[Lender]
) -> None:
    """Refuse objects of other materials or tools; all have the same units.

    Directories of the host count, too: they are in the objects. :class:`LockError` names each
    difference, :class:`AuditError` a unit that is another one elsewhere.
    """
    first: Lender | None = None
    ours = _with_compilers(materials, compilers)
    for one in lenders:
        theirs = _with_compilers(one.materials, one.made.compilers)
        if unlike := theirs.differences(ours):
            raise LockError(
                f"the objects of {one.name} were compiled from different inputs "
                f"({join_difference_labels(unlike)}):\n{format_differences(unlike)}",
                hint="Compile the shard again on a host with the same toolchain, or link there.",
            )
        first = first or one
        if (mine := _describe_compile_units(one)) != (known := _describe_compile_units(first)):
            raise AuditError(
                f"{one.name} has different compile units from {first.name}:\n"
                + join_first(json_differences(mine, known), "\n"),
                hint="The hosts differ in something that the build depends on: compile both again, "
                "and compare the first lines of their build.log.",
            )


def _with_compilers(materials: Materials, compilers: Mapping[str, str]) -> Materials:
    rows = (Material("compiler", name, value) for name, value in compilers.items())
    return Materials.of([*materials.rows(), *rows])


def _describe_compile_units(one: Lender) -> dict[str, str]:
    return {unit.id: f"{unit.source} -> {unit.output} by {unit.command}" for unit in one.made.units}
