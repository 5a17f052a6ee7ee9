"""What becomes of a work when an attempt at it has ended: pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.fleet.entries import Entry, HostEntry
from pipelines.fleet.model import Ended, Work
from pipelines.fleet.policy import pause_after
from pipelines.fleet.rules import Rules
from pipelines.record import ErrorResult
from pipelines.units import counted, few, gib

#: Stands in which nothing more is done.
FINAL = frozenset({"done", "failed", "quarantined", "cancelled", "blocked"})


def judge(
    entry: Entry, ended: Ended, rules: Rules, now: float, *, elsewhere: bool
) -> dict[str, Any]:
    """The fields of ``entry`` that change.

    ``elsewhere``: whether another host that it was not taken from could do it.
    """
    if ended.outcome == "done":
        return {"stand": "done", "error": None}
    told: dict[str, Any] = {"error": ended.error}
    if ended.outcome == "lost":
        told["losses"] = entry.losses | {ended.host: entry.losses.get(ended.host, 0) + 1}
        if ended.gone:
            told["died"] = tuple(dict.fromkeys([*entry.died, ended.host]))
    if entry.cancelled or ended.outcome == "failed":
        return told | {"stand": "cancelled" if entry.cancelled else "failed"}
    bound = {"stand": "waiting", "bound": ended.host, "until": now + rules.grace}
    if ended.outcome == "left":
        return told | bound | {"fallen": True}
    died, losses = told.get("died", entry.died), told["losses"]
    lost = sum(losses.values())
    if len(died) >= rules.deaths or lost >= rules.losses:
        return told | {"stand": "quarantined", "error": _diagnosis(ended, died, losses)}
    if elsewhere and not ended.gone and losses[ended.host] >= rules.tries:
        return told | {"stand": "waiting", "parted": (*entry.parted, ended.host)}
    pause = 0.0 if ended.gone else pause_after(lost - 1, rules.pause, rules.most_pause)
    return told | bound | {"rest": now + pause}


def _diagnosis(ended: Ended, died: tuple[str, ...], losses: dict[str, int]) -> ErrorResult:
    if len(died) > 1:
        said = f"{few(died, ' and ')} were gone while they did {ended.key}"
    else:
        said = f"{counted(sum(losses.values()), 'attempt')} at {ended.key} were lost"
    last = f"; the last said: {ended.error.message}" if ended.error else ""
    return ErrorResult(
        kind="HostError",
        title="quarantined",
        message=said + last,
        advice="Look at its log and at these hosts. When the cause is gone, build it again.",
    )


def blocked_by(key: str, stand: str) -> ErrorResult:
    """Why what comes after it is not done."""
    return ErrorResult(
        kind="BuildError",
        title="blocked",
        message=f"it comes after {key}, which is {stand}",
        advice=f"See what became of {key}.",
    )


def unwanted(key: str) -> ErrorResult:
    """Why a share is not compiled any more."""
    return ErrorResult(
        kind="BuildError",
        title="blocked",
        message=f"nothing is left that needs it: {key} is blocked",
    )


def without_host(entry: Entry, hosts: Mapping[str, HostEntry]) -> ErrorResult:
    """Why a work can be done nowhere."""
    work, why = entry.work, []
    for name, host in hosts.items():
        said = work.refused.get(name) or (_too_small(work, host) if name in work.hosts else "")
        why += [f"{name}: {said}"] if said else []
    return ErrorResult(
        kind="ConfigError",
        title="configuration",
        message=f"no host fits: {few(why, '; ') or 'none was given'}",
        advice="invoke plan --host NAME says what a host can build.",
    )


def _too_small(work: Work, host: HostEntry) -> str:
    needs, machine = work.needs, host.machine
    if needs.gpu and not set(needs.gpu) & set(machine.gpus):
        return f"it needs a GPU of {few(needs.gpu, ' or ')}"
    if needs.memory > machine.memory:
        return f"it needs {gib(needs.memory, 1)} of memory, there are {gib(machine.memory, 1)}"
    return f"it needs {counted(needs.slots, 'slot')}" if needs.slots > machine.slots else ""
