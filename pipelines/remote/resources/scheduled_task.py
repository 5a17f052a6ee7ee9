"""A task of the Task Scheduler that runs as SYSTEM at every start: ``{name, command}``."""

from __future__ import annotations

from typing import Any

from .. import scheduler


def check(spec: dict[str, Any]) -> dict[str, Any]:
    """Compare with the task of that name."""
    found = scheduler.command_of(spec["name"])
    wanted = scheduler.action(spec["command"])
    shown = "missing" if found is None else " ".join(found).strip()
    return {"ok": found == wanted, "found": shown}


def plan(spec: dict[str, Any]) -> str:
    """The task."""
    return f"register the task {spec['name']}"


def apply(spec: dict[str, Any]) -> None:
    """Register it, over an older one of the name."""
    scheduler.register(spec["name"], spec["command"], at_start=True)
