"""What keeps builds from going well, found before one is tried: ``invoke doctor``.

``inspect`` gathers facts, ``diagnose`` judges them and ``report`` shows the findings. Judging is
pure: equal facts give equal findings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pipelines.core.finding import Finding
from pipelines.doctor import (
    bridge,
    controller,
    gpus,
    machine,
    passthrough,
    paths,
    services,
    toolchain,
)
from pipelines.doctor.model import Facts, Purpose, make_finding
from pipelines.plan.matrix.compat import Compat, load_compat
from pipelines.plan.matrix.judge import old_rows
from pipelines.plan.provisioning.thresholds import Thresholds, load_thresholds

#: What only a Windows is judged for, besides its paths.
_WINDOWS = frozenset({"operating-system", "commit-limit", "page-file", "msvc-toolset", "ninja"})
_REASON = 400  # characters of why there is no session

__all__ = ["Purpose", "diagnose_facts"]


def diagnose_facts(
    facts: Mapping[str, object],
    purpose: Purpose | None = None,
    *,
    limits: Thresholds | None = None,
    compat: Compat | None = None,
) -> list[Finding]:
    """Judge ``{"controller": {...}, "host": {...}}``; never fails, whatever a host claims.

    ``host`` has the parts ``facts``, ``machine``, ``tools`` (what the functions of that name in
    ``pipelines/remote`` returned), ``resources`` (the checks of the purpose's settings, by id),
    ``skew`` (seconds that its clock is ahead); or ``error`` and ``hint`` when it could not be
    reached, or ``skipped`` with the reason why that was not tried. Without a purpose only this
    machine is judged.
    """
    limits = limits or load_thresholds()
    compat = compat or load_compat()
    findings = list(controller.judge(Facts(facts).at("controller"), limits))
    if (below := Facts(facts).at("controller", "groundwork")).tree is not None:
        findings += passthrough.judge(below)
    if (bridged := Facts(facts).at("controller", "bridge")).tree is not None:
        findings += bridge.judge(bridged)
    if purpose is None:
        return findings
    findings += _of_area(purpose.refused)
    host = Facts(facts).at("host")
    wanted = f"a session with {purpose.target.host}"
    if (skipped := host.text("skipped", limit=_REASON)) is not None:
        found = f"not tried: {skipped}"
        return [*findings, make_finding("host", "connection", "unknown", found, wanted)]
    if (error := host.text("error", limit=_REASON)) is not None:
        hint = host.text("hint", limit=_REASON)
        hint = hint or "see that it is up, and what pipeline.yaml says of it"
        return [*findings, make_finding("host", "connection", "error", error, wanted, hint)]
    judged = [
        *machine.judge(host, purpose, limits, compat),
        *paths.judge(host, purpose, limits),
        *toolchain.judge(host, purpose, limits, compat),
        *gpus.judge(host, purpose, compat),
        *services.judge(host, purpose, limits),
    ]
    named = {finding.id for finding in judged}
    judged += _of_area(old_rows(purpose.target, (r for r in compat.rules if r.id in named)))
    if not purpose.windows:
        judged = [v for v in judged if v.subject != paths.AREA and v.id not in _WINDOWS]
    return [*findings, *judged]


def _of_area(findings: Iterable[Finding]) -> Iterator[Finding]:
    """What the host cannot give, or this machine does not have for it."""
    return (one.model_copy(update={"subject": toolchain.AREA}) for one in findings)
