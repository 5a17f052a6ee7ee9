"""The hooks of the stages, and the features that use them.

A feature derives a class from one of those below and overrides what it needs. :data:`FEATURES`
names it and the plans that use it; it is imported only for those, and never by a stage.
"""

# ruff: noqa: ARG002 - as they stand here, hooks do nothing

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pipelines.plan.matrix.buildplan import BuildPlan

if TYPE_CHECKING:
    from pipelines.core.finding import Finding
    from pipelines.diagnosis import Settings
    from pipelines.hosts.live import LiveSession
    from pipelines.recipe.model import Cost
    from pipelines.record.materials import Material, Materials
    from pipelines.record.results import (
        AuditedFile,
        BuildResult,
        HostFile,
        ProvisionResult,
        SmokeResult,
        StageResult,
    )
    from pipelines.record.run import Run, StageLog
    from pipelines.remote import compilecache, tester
    from pipelines.wheels.metadata import WheelFacts


@dataclass(frozen=True)
class Stage:
    """A stage: from what those before it have left in the record to its own result."""

    name: str
    run: Callable[[LiveSession, BuildPlan, StageLog], StageResult]


@dataclass(frozen=True)
class Attempt:
    """A build that has ended, and where in its log it begins."""

    result: BuildResult
    begin: int
    """In bytes."""


#: Builds once with these settings, as a fresh attempt or not.
Once = Callable[["Settings", bool], Attempt]


class Hooks:
    """Those of a stage; made for a plan each time that it comes there."""

    def __init__(self, plan: BuildPlan) -> None:
        self.plan = plan


class RunHooks(Hooks):
    """Of a run as a whole."""

    def begin(self) -> Iterable[str]:
        """Refuse what cannot work, before a host is made ready; say what the run rests on."""
        return ()

    def cost(self, cost: Cost) -> Cost:
        """What compiling takes."""
        return cost

    def instead(self, do: Callable[[Stage], StageResult]) -> bool:
        """Run stages in place of those that build; whether that was enough."""
        return False


class SpecHooks(Hooks):
    """Of what a build is given on the host."""

    def environment(self, variables: dict[str, str]) -> dict[str, str]:
        """Its variables."""
        return variables

    def cache(self, spec: compilecache.Spec) -> compilecache.Spec | None:
        """Its compile cache; ``None``: it has none."""
        return spec


class BuildHooks(Hooks):
    """Of the stage ``build``, in their order."""

    def materials(self, source: bytes, provisioned: ProvisionResult | None) -> Iterable[Material]:
        """What else decides the wheel."""
        return ()

    def part(self, session: LiveSession, made_of: Materials) -> str:
        """Refuse what does not fit; which part of the wheel is built, for the job's id."""
        return ""

    def spec(self, session: LiveSession, directory: str) -> Mapping[str, Any]:
        """What else the build on the host is given."""
        return {}

    def attempts(self, once: Once, log: StageLog) -> Once:
        """What stands for one attempt."""
        return once

    def with_toolset(self, spec: Mapping[str, Any], toolset: str) -> Mapping[str, Any]:
        """What of ``spec`` is another with this toolset."""
        return {}

    def ended(self, spec: Mapping[str, Any], answer: Mapping[str, Any], /) -> Mapping[str, object]:
        """Fields of the result, from what the host says of a build that ended well."""
        return {}

    def done(self, result: BuildResult) -> None:
        """Refuse a result, or say something of it."""


class CollectHooks(Hooks):
    """Of the stage ``collect``."""

    def wanted(self, built: BuildResult) -> Iterable[tuple[HostFile, str]]:
        """More files on the host, and what they are called in the run."""
        return ()

    def had(self, row: HostFile, target: Path, name: str) -> str:
        """Put the file there from an earlier run; its sha256, or nothing."""
        return ""


class AuditHooks(Hooks):
    """Of the stage ``audit``."""

    def instead(self, log: StageLog) -> AuditedFile | None:
        """Audit a wheel that was not built here."""
        return None

    def checks(self, facts: WheelFacts, built: BuildResult) -> Iterable[Finding]:
        """More checks of a wheel that was."""
        return ()


class SuiteHooks(Hooks):
    """Of the stage ``test``."""

    def spec(self, session: LiveSession, run: Run, spec: tester.Spec) -> tester.Spec:
        """What the suite is given on the host."""
        return spec

    def read(self, properties: Mapping[str, str], done: SmokeResult) -> Mapping[str, object]:
        """Fields of the result, from the properties of the suite's report."""
        return {}

    def require(self, properties: Mapping[str, str], done: SmokeResult) -> None:
        """Refuse a suite in which every case passed."""

    def hint(self, run: Run, text: str) -> str:
        """What to do about failed cases that say this."""
        return ""


Kind = TypeVar("Kind", bound=Hooks)
_Asked = Callable[[BuildPlan], bool]


def _is_always_enabled(_: BuildPlan) -> bool:
    return True


def _builds_wheel(plan: BuildPlan) -> bool:
    return plan.recipe.is_wheel and plan.given is None


def _reproducible(plan: BuildPlan) -> bool:
    return plan.recipe.reproducible


def _is_divided_build(plan: BuildPlan) -> bool:
    return plan.divided


def _prebuilt(plan: BuildPlan) -> bool:
    return plan.recipe.strategy != "build" and not plan.divided


def _external(plan: BuildPlan) -> bool:
    return plan.given is not None


#: The hooks of a stage -> the features that join it, in this order, and which plans ask for each.
FEATURES: dict[type[Hooks], tuple[tuple[str, _Asked], ...]] = {
    RunHooks: (
        ("pipelines.stages.objects:Linking", _is_divided_build),
        ("pipelines.stages.prebuilt:Taking", _prebuilt),
    ),
    SpecHooks: (("pipelines.stages.reproducible:Reproducible", _reproducible),),
    BuildHooks: (
        ("pipelines.publish.provenance.bill:Bill", _builds_wheel),
        ("pipelines.stages.division:Division", _is_divided_build),
        ("pipelines.stages.retry:Healing", _is_always_enabled),
    ),
    CollectHooks: (("pipelines.stages.objects:Objects", _is_divided_build),),
    AuditHooks: (
        ("pipelines.stages.given:AuditGiven", _external),
        ("pipelines.stages.prebuilt:AuditTaken", _prebuilt),
        ("pipelines.publish.provenance.bill:BillCheck", _builds_wheel),
    ),
    SuiteHooks: (
        ("pipelines.stages.given:WithCompany", _external),
        ("pipelines.stages.bridged:Bridged", _is_always_enabled),
    ),
}


def requested_features(kind: type[Kind], plan: BuildPlan) -> list[Kind]:
    """Those of ``kind`` that the plan asks for."""
    return [pkgutil.resolve_name(name)(plan) for name, asked in FEATURES[kind] if asked(plan)]
