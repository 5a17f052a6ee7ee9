"""``invoke doctor``: inspect, judge, show.

Everything is printed by then, the answer on stdout and the rest on stderr. :class:`Outcome` has
``findings``, ``level`` (the worst of them:
error, warning, unknown or ok), ``purpose``, ``facts`` (what the findings rest on) and ``exit_code``
(0, or :data:`UNFIT` when the level is error). Without a plan this machine alone is looked at.
Neither a host that cannot be reached nor one that tells nonsense raises anything; what does is
``ConfigError`` for a ``resources.yaml``, ``compat.yaml`` or ``thresholds.yaml`` that is wrong.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelines.core.console import console, print_json, reserve_stdout, say
from pipelines.core.errors import UNFIT
from pipelines.core.finding import Finding, Level, worst_level
from pipelines.doctor import Purpose, diagnose_facts, passthrough, report
from pipelines.doctor.inspect import inspect_controller, inspect_host
from pipelines.doctor.model import Facts
from pipelines.doctor.settings import settings_to_check
from pipelines.plan.matrix.paths import longest_path
from pipelines.reports.findings import STYLES, findings_table

if TYPE_CHECKING:
    from pipelines.hosts.live import LiveSession
    from pipelines.plan.matrix.buildplan import BuildPlan

_REASON = 400  # characters of why the host was not tried


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What was found."""

    findings: tuple[Finding, ...]
    purpose: Purpose | None
    facts: dict[str, object]

    @property
    def level(self) -> Level:
        """The worst level among the findings."""
        return worst_level(one.level for one in self.findings)

    @property
    def exit_code(self) -> int:
        """0, also with warnings and with what is not known; :data:`UNFIT` with an error."""
        return UNFIT if self.level == "error" else 0


def purpose_of(plan: BuildPlan) -> Purpose:
    """What the host of ``plan`` is judged for."""
    target, recipe, layout, can = plan.target, plan.recipe, plan.layout, plan.host.capabilities
    tools = plan.cache.lock.tools
    installed = (name for r in plan.resources.resources for name in getattr(r, "tools", ()))
    toolsets = [tools[name].toolset for name in installed if name in tools]
    names = plan.source.names()
    longest = longest_path(recipe, names, target.python, layout.build_root) if names else None
    return Purpose(
        target=target,
        toolset=next(filter(None, toolsets), None) if can.msvc else None,
        jobs=plan.jobs,
        build_root=layout.build_root,
        longest=len(longest.path) if longest else None,
        windows=can.windows,
        sandbox=can.emulated,
        msvc=can.msvc,
        gpu=can.gpu,
        services=can.services,
        existing=plan.host.existing is not None,
        gpu_asked=plan.host.gpu_way.requested,
        gpu_numbers=plan.host.gpu_way.visible,
        settings=settings_to_check(plan),
        refused=tuple(plan.refused()),
    )


def run_diagnosis(plan: BuildPlan | None, session: LiveSession | None) -> Outcome:
    """Inspect and judge, and print nothing; without a plan this machine alone."""
    purpose = purpose_of(plan) if plan is not None else None
    facts: dict[str, object] = {"controller": (controller := inspect_controller(plan))}
    below = Facts(facts).at("controller", "groundwork")
    if missing := Facts(facts).text("controller", "wine", "error", limit=_REASON):
        facts["host"] = {"skipped": missing}
    elif below.tree is not None and any(one.failed for one in passthrough.judge(below)):
        facts["host"] = {"skipped": "its prerequisites are not met, and nothing was started"}
    elif purpose is not None and (refusal := _local_refusal_reason(purpose)):
        facts["host"] = {"skipped": f"{refusal}, and nothing was started"}
    elif plan is not None and session is not None:
        facts["host"] = inspect_host(plan, session)
    if plan is not None and (bridge := plan.host.bridge()) is not None:
        facts["controller"] = {**controller, "bridge": bridge.model_dump(mode="json")}
    return Outcome(findings=tuple(diagnose_facts(facts, purpose)), purpose=purpose, facts=facts)


def _local_refusal_reason(purpose: Purpose) -> str:
    """What is missing on this machine for the host, if that is why it is refused."""
    missing = (one.actual for one in purpose.refused if one.failed and one.raises != "ConfigError")
    return next(missing, "")


def run_doctor(
    plan: BuildPlan | None, session: LiveSession | None = None, *, as_json: bool = False
) -> Outcome:
    """Print the findings, as a table or as one JSON document, and return them.

    Progress (a sandbox that starts) goes to stderr when stdout is to have JSON.
    """
    with reserve_stdout() if as_json else contextlib.nullcontext():
        outcome = run_diagnosis(plan, session)
    if as_json:
        print_json(report.as_json(outcome.findings, outcome.purpose))
        return outcome
    if outcome.purpose is not None:
        say(report.headline(outcome.purpose), style="bold")
    console.print(findings_table(outcome.findings, grouped=True))
    say(report.summary(outcome.findings), style=STYLES[outcome.level])
    return outcome
