"""``--fleet``: a line of commands as the order of a fleet."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pipelines.cli.lines import effective_settings, request_of
from pipelines.cli.options import Flags
from pipelines.cli.order import Call
from pipelines.core.errors import ConfigError

if TYPE_CHECKING:
    from pipelines.plan.matrix.hostfacts import HostFacts
    from pipelines.plan.matrix.plan import Plan

_STEPS = ("provision", "build", "test")
#: Flags of those commands that mean one run, or one host.
_NOT_WITH = {
    "repair": "invoke provision --host NAME --repair does that, host by host.",
    "run": "It names one run; invoke test --run tests that one.",
    "wheel": "It names one wheel; invoke test --wheel tests that one.",
    "with_": "It goes with --wheel.",
    "script": "It goes with --wheel.",
    "shard": "--shards N divides each wheel among the hosts.",
    "objects": "--shards N divides each wheel among the hosts, and links it.",
    "minutes": "invoke fleet pause lets running tasks finish, and starts no more.",
    "host": "--hosts NAME[,NAME...] says which hosts are the fleet.",
    "gpu": "Give the hosts their GPUs in pipeline.yaml: key gpu.",
}


def refuse_with_fleet(calls: Sequence[Call]) -> None:
    """Refuse what does not go with ``--fleet``, before anything is begun."""
    for name, flags in calls:
        if name not in _STEPS:
            raise ConfigError(
                f"--fleet is for {', '.join(_STEPS)}, and here is {name}",
                hint="Type it as a line of its own.",
            )
        for flag, hint in _NOT_WITH.items():
            if flags.get(flag):
                raise ConfigError(
                    f"--{flag.rstrip('_').replace('_', '-')} does not go with --fleet",
                    hint=hint,
                )
    if all(name != "build" for name, _ in calls):
        raise ConfigError(
            f"--fleet builds, and here is only {', '.join(name for name, _ in calls)}",
            hint="Type: invoke build --fleet, or invoke build test --fleet",
        )


def refuse_without_fleet(calls: Sequence[Call]) -> None:
    """Refuse hosts of a fleet where there is none: it would be done on another host than said."""
    for _, flags in calls:
        if value := flags.get("hosts"):
            raise ConfigError(
                f"--hosts {value} needs --fleet",
                hint="Add --fleet; one host alone is --host NAME.",
            )


def open_fleet(flags: Flags, steps: Iterable[str]) -> None:
    """Have the fleet do what the line says; see :func:`pipelines.fleet.run.run_fleet`."""
    from pipelines.fleet.run import FleetRequest, run_fleet, show_fleet
    from pipelines.plan.matrix.plan import plan_matrix

    request, shared = request_of(flags)
    settings = effective_settings(shared)
    asked = request.axes.get("archs") or settings.default.archs or ""
    if re.search(r"\bnative\b", asked, re.IGNORECASE):
        raise ConfigError(
            "--archs native means one host's GPUs, and a fleet has several hosts",
            hint="Name the architectures, such as --archs '80;90'.",
        )

    def plan(host: str, facts: HostFacts | None) -> Plan:
        here = replace(request, axes={**request.axes, "host": host})
        return plan_matrix(settings, here, select=shared.select, facts=facts)

    do = show_fleet if flags.get("dry_run") else run_fleet
    do(
        FleetRequest(
            settings=settings,
            request=request,
            plan=plan,
            hosts=tuple(filter(None, (shared.hosts or "").split(","))),
            select=shared.select or "",
            test="test" in steps,
        )
    )
