"""What a build gets for a shard, or for a link of objects; and what it reports of them."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from pipelines.core import units
from pipelines.core.console import bytes_progress, say
from pipelines.core.errors import AuditError, BuildError, HostError
from pipelines.core.hosttext import safe_text
from pipelines.core.model import first_problem
from pipelines.hosts.live import LiveSession
from pipelines.plan.matrix.buildplan import BuildPlan
from pipelines.record.materials import Materials
from pipelines.record.results import BuildResult
from pipelines.record.shards import ObjectSource, ShardsResult, UnitObject
from pipelines.remote import files, sharding
from pipelines.remote import objects as remote_objects
from pipelines.stages.buildspec import programs_of, without_home
from pipelines.stages.hooks import BuildHooks
from pipelines.stages.objects import FOLDER, Lender, find_lenders, require_matching_objects
from pipelines.stages.pace import cost_of

_LONGEST = 16_000  # characters of a variable
_AT_ONCE = 500  # files that the host is asked about in a call


class Division(BuildHooks):
    """How the units of a build are divided: a share of them is compiled, or all are linked."""

    _compilers: Mapping[str, str]
    _lenders: tuple[Lender, ...] = ()
    _objects: Mapping[str, tuple[Lender, UnitObject]]
    """By the units' ids."""

    def part(self, session: LiveSession, made_of: Materials) -> str:
        """The part of the wheel that is built, and the programs for it.

        Raises what :func:`.objects.find_lender` and :func:`.objects.require_matching_objects` do
        for unsuitable objects, and :class:`AuditError` if a unit has two.
        """
        self._compilers = compilers_of(session, self.plan)
        if self.plan.share is not None:
            asked: object = self._compile()
        else:
            self._lenders = find_lenders(self.plan)
            require_matching_objects(made_of, self._compilers, self._lenders)
            self._objects = objects_of(self._lenders)
            asked = sorted((unit, one.sha256) for unit, (_, one) in self._objects.items())
        said = json.dumps([asked, sorted(self._compilers.items())])
        return hashlib.sha256(said.encode()).hexdigest()

    def spec(self, session: LiveSession, directory: str) -> Mapping[str, Any]:
        """The order to compile the share; or to link, once the host has the objects."""
        if self.plan.share is not None:
            return {"units": self._compile()}
        known = sorted({unit.id for one in self._lenders for unit in one.made.units})
        read = {path: sha for one in self._lenders for path, sha in one.made.read.items()}
        sent = self._sent(session, directory)
        order = {"mode": "link", "objects": sent, "known": known, "read": read, **self._costs()}
        return {"units": order}

    def _compile(self) -> sharding.Units:
        share = self.plan.share
        assert share is not None  # noqa: S101 - see above
        return {"mode": "compile", "share": [share.number, share.of], **self._costs()}

    def _costs(self) -> sharding.Units:
        cost, costs = cost_of(self.plan), self.plan.recipe.unit_costs
        return {
            "costs": [[glob, seconds] for glob, seconds in costs.items()],
            "cost": cost.unit_seconds if cost else 1.0,
        }

    def _sent(self, session: LiveSession, directory: str) -> list[sharding.ForeignObject]:
        """Send what the host does not have; where each object is there."""
        layout, host = self.plan.layout, self.plan.target.host
        folder = layout.join(directory, FOLDER)
        session.call(files.make_dirs, path=folder)
        places: dict[str, list[str]] = {}
        for owner, one in self._objects.values():
            places.setdefault(one.sha256, [layout.join(folder, one.sha256)])
            if owner.target.host == host:  # it was compiled there
                places[one.sha256].append(one.path)
        there = set(_iter_intact_objects(session, places))
        paths = {sha: next((p for p in known if p in there), "") for sha, known in places.items()}
        files_here = {one.sha256: (owner.path(one), one) for owner, one in self._objects.values()}
        missing = {sha: files_here[sha] for sha, path in paths.items() if not path}
        total = sum(one.size for _, one in missing.values())
        say(
            f"{units.pluralize(len(self._objects), 'object')} to link, "
            f"{units.pluralize(len(missing), 'file')} with {units.format_size(total)} sent to "
            f"{host}"
        )
        with bytes_progress() as progress:
            task, before = progress.add_task("send objects", total=total), 0
            for sha, (path, one) in missing.items():
                paths[sha] = places[sha][0]
                session.send(path, paths[sha], sha)
                before += one.size
                progress.update(task, completed=before)
        return [
            {"unit": unit, "path": paths[one.sha256], "sha256": one.sha256}
            for unit, (_, one) in self._objects.items()
        ]

    def ended(self, _: Mapping[str, Any], answer: Mapping[str, Any]) -> Mapping[str, object]:
        """The host's answer; :class:`HostError` if it is invalid.

        :class:`AuditError` for a link with other objects than the given ones.
        """
        share = self.plan.share
        mode = "link" if share is None else "compile"
        keys = ("units", "objects", "read") if share else ("units", "placed", "compiled")
        said = {key: answer.get(key) for key in keys}
        try:
            made = ShardsResult.model_validate(
                {"mode": mode, "share": str(share or ""), "compilers": self._compilers, **said}
            )
        except ValidationError as error:
            raise HostError(
                f"{self.plan.host.name} sent an invalid result of a divided build: "
                f"{safe_text(first_problem(error), 200)}",
                hint="Remove the job's directory there; to see where it is: invoke jobs",
            ) from None
        if share is not None:
            return {"divided": made}
        if sorted(made.placed) != sorted(self._objects):
            strange = sorted({*made.placed} ^ {*self._objects})
            raise AuditError(
                f"the link was given {len(self._objects)} objects, but reports {len(made.placed)}; "
                f"the first difference is {strange[0]}",
                hint="The wheel was not used. Compile the shards again.",
            )
        took = Counter(owner.run.id for owner, _ in self._objects.values())
        lent = (
            ObjectSource(
                run=one.run.id,
                host=one.target.host,
                share=one.made.share,
                units=took[one.run.id],
                sealers=tuple(sorted({*one.run.sealers.values()})),
            )
            for one in self._lenders
        )
        return {"divided": made.model_copy(update={"lent": tuple(lent)})}

    def done(self, result: BuildResult) -> None:
        """:class:`BuildError` for a shard with a wheel: the other shards' units are not in it."""
        if self.plan.share is not None and result.wheels:
            raise BuildError(
                f"shard {self.plan.share} produced a wheel from only some of the units: "
                f"{safe_text(result.wheels[0].path, 200)}",
                hint="It was not used. Build the package without --shard, and report this.",
            )
        if result.divided is not None:
            say(result.divided.summary)


def compilers_of(session: LiveSession, plan: BuildPlan) -> dict[str, str]:
    """The host's own programs that compile and link, by their sha256, and what they read."""
    toolkit = plan.layout.cuda if plan.host.existing is not None else ""
    python, programs = plan.layout.python, programs_of(plan)
    found = session.call(
        remote_objects.compilers, python=python, programs=programs, toolkit=toolkit
    )
    home = without_home if plan.host.existing is not None else str  # manifests are published
    return {safe_text(str(k), 60): safe_text(home(str(v)), _LONGEST) for k, v in found.items()}


def objects_of(found: tuple[Lender, ...]) -> dict[str, tuple[Lender, UnitObject]]:
    """The object of each unit that one of them has compiled, by the unit's id."""
    objects: dict[str, tuple[Lender, UnitObject]] = {}
    for one in found:
        for row in one.made.objects:
            owner, known = objects.setdefault(row.unit, (one, row))
            if known.sha256 != row.sha256:
                source = next(unit.source for unit in one.made.units if unit.id == row.unit)
                raise AuditError(
                    f"{safe_text(source, 200)} was compiled twice, with different results: "
                    f"{owner.name} "
                    f"has {known.sha256}, {one.name} has {row.sha256}",
                    hint="The two hosts compile different things, or one is broken. Link without "
                    "the one that you trust less.",
                )
    _require_read_alike(found)
    _report_missing_objects(found, objects)
    return objects


def _require_read_alike(found: Iterable[Lender]) -> None:
    """:class:`AuditError` for a file that hosts have read, and that was not the same on each."""
    known: dict[str, tuple[Lender, str]] = {}
    for one in found:
        for path, sha in one.made.read.items():
            owner, before = known.setdefault(path, (one, sha))
            if before != sha:
                raise AuditError(
                    f"{safe_text(path, 300)} was different on the hosts that compiled: "
                    f"{owner.name} "
                    f"read {before}, {one.name} read {sha}",
                    hint="The header differs between the hosts, or each build generates another. "
                    "Fix that, then compile the shards again.",
                )


def _report_missing_objects(found: tuple[Lender, ...], objects: Mapping[str, object]) -> None:
    every = found[0].made.units
    missing = [safe_text(unit.source, 120) for unit in every if unit.id not in objects]
    if missing:
        more = f" and {len(missing) - 3} more" if missing[3:] else ""
        say(
            f"{len(missing)} of {len(every)} compile units have no object; the link compiles them: "
            f"{', '.join(missing[:3])}{more}",
            style="yellow",
        )


def _iter_intact_objects(session: LiveSession, places: Mapping[str, list[str]]) -> Iterator[str]:
    rows = [
        remote_objects.Expected(path=path, sha256=sha) for sha, ps in places.items() for path in ps
    ]
    for start in range(0, len(rows), _AT_ONCE):
        yield from session.call(remote_objects.intact, expected=rows[start : start + _AT_ONCE])
