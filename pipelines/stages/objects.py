"""``objects.json``: what a share's run has compiled, read again only as its record tells it."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, ValidationError

from pipelines.core.errors import AuditError, ConfigError, LockError
from pipelines.core.files import disk_errors, sha256_of, write_atomic
from pipelines.core.hosttext import line, safe
from pipelines.core.model import Model, first_problem
from pipelines.matrix.buildplan import BuildPlan
from pipelines.matrix.shares import alike
from pipelines.recipe.model import Cost
from pipelines.record.materials import Material, Materials, listed, named
from pipelines.record.prebuilt import Sha256
from pipelines.record.results import BuildResult, CollectResult, HostFile, Size
from pipelines.record.run import Run
from pipelines.record.shards import LIST, READ, UNITS, ShardsResult, Text, Unit, UnitId
from pipelines.record.target import AXES
from pipelines.stages.hooks import CollectHooks, RunHooks

FOLDER = "objects"
_MOST = 64 << 20  # bytes of the list
_SHOWN = 8
_AGAIN = "Compile the share again: invoke build --shard"


class Object(Model):
    """One compile unit's, in the run's directory ``objects`` under its hash."""

    unit: UnitId
    sha256: Sha256
    size: Size
    seconds: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
    """That it took."""


class ObjectList(Model):
    """The file: what was compiled, of what, with what."""

    model_config = ConfigDict(populate_by_name=True)

    schema_: Annotated[Literal[2], Field(alias="schema")] = 2
    host: str
    share: str
    cell: dict[str, str]
    """The axes of its wheel."""
    materials: Materials
    compilers: Annotated[dict[str, Text], Field(max_length=100)]
    units: Annotated[tuple[Unit, ...], Field(max_length=UNITS)]
    """All of the wheel's."""
    objects: Annotated[tuple[Object, ...], Field(max_length=UNITS)]
    """Those of this share."""
    read: Annotated[dict[Text, Sha256], Field(max_length=READ)]
    """What was read to compile them, by its place there."""


@dataclass(frozen=True)
class Lender:
    """The run of a share, and what it has compiled: every object was hashed."""

    run: Run
    list: ObjectList
    made: ShardsResult
    """As its record has it, with where the objects were on its host."""

    @property
    def told(self) -> str:
        """Its name and its host's."""
        return f"{self.run.id} ({line(self.list.host, 80)})"

    def path(self, one: Object) -> Path:
        """Where an object is here."""
        return self.run.path / FOLDER / one.sha256


class Linking(RunHooks):
    """Of a share, or of a link of shares."""

    def begin(self) -> Iterable[str]:
        """The runs whose objects are linked: what cannot be is refused before anything is done."""
        return [one.made.summary for one in lenders(self.plan)]

    def cost(self, cost: Cost) -> Cost:
        """Of a share, that of its part of the units."""
        share = self.plan.share
        count = math.ceil(cost.units / share.of) if share else cost.units
        return alike(cost).model_copy(update={"units": count})


class Objects(CollectHooks):
    """What a share has compiled comes home, and its list is written."""

    def wanted(self, built: BuildResult) -> Iterator[tuple[HostFile, str]]:
        """Each object, under its hash."""
        if self.plan.share is not None and built.divided:
            rows = {one.sha256: one for one in built.divided.objects}  # some may be alike
            for sha, row in rows.items():
                yield HostFile.model_validate(dict(row)), f"{FOLDER}/{sha}"

    def had(self, row: HostFile, target: Path, name: str) -> str:
        """From an earlier run that has the object, such as that of a share done before.

        It has come with that hash, and is hashed again.
        """
        out = self.plan.out
        for path in sorted(out.glob(f"*/{name}")) if name.startswith(f"{FOLDER}/") else ():
            if path.stat().st_size == row.size and sha256_of(path) == row.sha256:
                if not target.exists() or not path.samefile(target):
                    with disk_errors(target.parent):
                        shutil.copyfile(path, target)
                return sha256_of(target)
        return ""

    def done(self, run: Run) -> None:
        """Write the list."""
        if self.plan.share is not None:
            write_list(run)


def list_of(run: Run) -> tuple[ObjectList, ShardsResult]:
    """What the record says of a share; :class:`ConfigError` where it has none."""
    facts, built = run.facts(), run.result(BuildResult)
    made = built.divided if built is not None else None
    if built is None or made is None or made.mode != "compile":
        raise ConfigError(
            f"run {run.id} has no objects: it is not of a share",
            hint="Name the runs of invoke build --shard; invoke runs lists all.",
        )
    rows = [Object(**one.model_dump(exclude={"path"})) for one in made.objects]
    told = ObjectList(
        host=facts.target.host,
        share=made.share,
        cell={name: text for name, text in facts.target.values().items() if name != "host"},
        materials=built.materials,
        compilers=made.compilers,
        units=made.units,
        objects=tuple(rows),
        read=made.read,
    )
    return told, made


def write_list(run: Run) -> None:
    """Write the file; the record has all of it already."""
    told, _ = list_of(run)
    write_atomic(run.path / LIST, told.model_dump_json(by_alias=True, indent=1).encode() + b"\n")


def lenders(plan: BuildPlan) -> tuple[Lender, ...]:
    """The runs whose objects the plan links, each once; what :func:`lender` raises."""
    found = (lender(plan, name) for name in plan.objects)
    return tuple({one.run.path: one for one in found}.values())


def lender(plan: BuildPlan, name: str) -> Lender:
    """The run called ``name``, of the plan's cell, with every object as it was compiled.

    Raises :class:`ConfigError` for a run without objects, or of another cell, and
    :class:`AuditError` for a list, or an object, that is not what the run's record says.
    """
    run = Run.find(plan.out, name)
    told, made = list_of(run)
    home = run.stages().get(CollectResult.stage)
    if home is None or home.state != "passed":
        raise ConfigError(
            f"run {run.id}: its objects have not come home", hint=f"{_AGAIN} {made.share}"
        )
    _require_cell(plan, run, told.cell)
    found = _read(run)
    if found != told:
        pairs = ((key, getattr(found, key), getattr(told, key)) for key in ObjectList.model_fields)
        key, there, recorded = next(row for row in pairs if row[1] != row[2])
        raise AuditError(
            f"{run.id}: {LIST} says other {key} than its record:\n{_differing(there, recorded)}",
            hint=f"Somebody changed one of them: nothing of it is linked. {_AGAIN} {told.share}",
        )
    mine = Lender(run, told, made)
    sources = {unit.id: unit.source for unit in told.units}
    for one in told.objects:
        path, said = mine.path(one), f"{run.id}: object of {safe(sources[one.unit], 200)}"
        if not path.is_file():
            raise AuditError(
                f"{said}: there is no {FOLDER}/{one.sha256}", hint=f"{_AGAIN} {told.share}"
            )
        if (size := path.stat().st_size, sha := sha256_of(path)) != (one.size, one.sha256):
            raise AuditError(
                f"{said} has {size} bytes with sha256 {sha}, and {one.size} with {one.sha256} "
                "were compiled",
                hint=f"It is damaged, or was changed: nothing of it is linked. "
                f"{_AGAIN} {told.share}",
            )
    return mine


def _read(run: Run) -> ObjectList:
    path = run.path / LIST
    try:
        with path.open("rb") as stream:
            data = stream.read(_MOST + 1)
        if len(data) > _MOST:
            raise ValueError(f"more than {_MOST >> 20} MiB")  # noqa: TRY301
        return ObjectList.model_validate_json(data)
    except ValidationError as error:
        why = first_problem(error)
    except (OSError, ValueError, RecursionError) as error:
        why = str(error)
    raise AuditError(f"{path} cannot be read: {line(why, 300)}", hint=f"{_AGAIN} K/N")


def _require_cell(plan: BuildPlan, run: Run, cell: Mapping[str, str]) -> None:
    asked = {name: text for name, text in plan.target.values().items() if name != "host"}
    for name, text in asked.items():
        if text != (theirs := cell.get(name, "")):
            flag = (AXES[name].flag or name).replace("_", "-")
            raise ConfigError(
                f"--objects {run.id}: it is of {name} {theirs or None}, not {text or None}",
                hint="Link what belongs together; such as: "
                f"invoke build --{flag} '{theirs}' --objects {run.id}",
            )


def require_same(
    materials: Materials, compilers: Mapping[str, str], lenders: Iterable[Lender]
) -> None:
    """Refuse objects that were made of, or with, other things; all of them have the same units.

    Places on the host count as well: they stand in the objects. :class:`LockError` names each thing
    with both values, :class:`AuditError` a unit that is another one elsewhere.
    """
    first: Lender | None = None
    ours = _with_compilers(materials, compilers)
    for one in lenders:
        theirs = _with_compilers(one.list.materials, one.list.compilers)
        if unlike := theirs.differences(ours):
            raise LockError(
                f"the objects of {one.told} were made of other things than are here "
                f"({named(unlike)}):\n{listed(unlike)}",
                hint="Compile the share again on a host with the same tool chain, or link there.",
            )
        first = first or one
        if (mine := _units(one)) != (known := _units(first)):
            raise AuditError(
                f"{one.told} has other compile units than {first.told}:\n{_differing(mine, known)}",
                hint="Their hosts differ in something that the build goes by: do both again, and "
                "look at the first lines of their build.log.",
            )


def _with_compilers(materials: Materials, compilers: Mapping[str, str]) -> Materials:
    rows = (Material("compiler", name, value) for name, value in compilers.items())
    return Materials.of([*materials.rows(), *rows])


def _units(one: Lender) -> dict[str, str]:
    return {unit.id: f"{unit.source} -> {unit.output} by {unit.command}" for unit in one.list.units}


def _differing(there: object, here: object) -> str:
    """Both values of what differs, a line each."""
    if isinstance(there, Materials) and isinstance(here, Materials):
        return listed(there.differences(here))
    if not isinstance(there, Mapping) or not isinstance(here, Mapping):
        if isinstance(there, tuple) and isinstance(here, tuple):
            pairs = ((a, b) for a, b in zip(there, here, strict=False) if a != b)
            there, here = next(pairs, (f"{len(there)} rows", f"{len(here)} rows"))
        return f"  {line(there, 400)}\n  and {line(here, 400)}"
    names = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    said = [(safe(str(n), 100), _said(there, n), _said(here, n)) for n in names]
    rows = [f"  {name}: there {one}, here {other}" for name, one, other in said]
    return "\n".join(rows[:_SHOWN]) + (
        f"\n  and {len(rows) - _SHOWN} more" if rows[_SHOWN:] else ""
    )


def _said(told: Mapping[str, object], name: str) -> str:
    return line(told[name], 200) or "empty" if name in told else "nothing"
