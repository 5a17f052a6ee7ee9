"""A task of the Task Scheduler that runs as SYSTEM at every start."""

from __future__ import annotations

from .. import scheduler
from . import Check, Kind


class Spec(Kind):
    """What is wanted."""

    name: str
    command: list[str]


def check(spec: Spec) -> Check:
    """Compare with the task of that name; its command line under it."""
    found = scheduler.command_of(spec["name"])
    wanted = scheduler.action(spec["command"])
    if found is None:
        return {"ok": False, "found": "missing", "values": {}}
    shown = " ".join(found).strip()
    return {"ok": found == wanted, "found": shown, "values": {spec["name"]: shown}}


def plan(spec: Spec) -> str:
    """The task."""
    return f"register the task {spec['name']}"


def apply(spec: Spec) -> None:
    """Register it, over an older one of the name."""
    scheduler.register(spec["name"], spec["command"], at_start=True)
