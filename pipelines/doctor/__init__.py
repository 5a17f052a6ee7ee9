"""What keeps builds from going well, found before one is tried: ``invoke doctor``.

``inspect`` gathers facts, ``diagnose`` judges them and ``report`` shows the verdicts. Judging is
pure: equal facts give equal verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.doctor.controller import controller
from pipelines.doctor.gpus import gpus
from pipelines.doctor.machine import machine
from pipelines.doctor.model import Facts, Level, Order, Verdict
from pipelines.doctor.paths import paths
from pipelines.doctor.services import services
from pipelines.doctor.thresholds import Thresholds, load_thresholds
from pipelines.doctor.toolchain import toolchain
from pipelines.plan.compat import Compat, load_compat

_REASON = 400  # characters of why there is no session

__all__ = ["Level", "Order", "Verdict", "diagnose"]


def diagnose(
    facts: Mapping[str, Any],
    *,
    host_name: str | None,
    sandbox: bool,
    order: Order | None = None,
    limits: Thresholds | None = None,
    compat: Compat | None = None,
) -> list[Verdict]:
    """Judge ``{"controller": {...}, "host": {...}}``; never fails, whatever a host claims.

    ``host`` has the parts ``facts``, ``machine``, ``tools``, ``services`` (what the functions of
    that name in ``pipelines/remote`` returned) and ``skew`` (seconds that its clock is ahead); or
    ``error`` and ``advice`` when it could not be reached. Without a host's name or an order only
    this machine is judged.
    """
    limits = limits or load_thresholds()
    compat = compat or load_compat()
    verdicts = list(controller(Facts(facts).at("controller"), limits, sandbox=sandbox))
    if host_name is None or order is None:
        return verdicts
    host = Facts(facts).at("host")
    if (error := host.text("error", limit=_REASON)) is not None:
        advice = (
            host.text("advice", limit=_REASON)
            or "see that it runs and what pipeline.yaml says of it"
        )
        return [*verdicts, Verdict("host", "connection", "error", error, host_name, advice)]
    return [
        *verdicts,
        *machine(host, order, limits, compat, sandbox=sandbox),
        *paths(host, order, limits),
        *toolchain(host, order, limits, compat),
        *gpus(host, order, compat),
        *services(host, order, limits, sandbox=sandbox),
    ]
