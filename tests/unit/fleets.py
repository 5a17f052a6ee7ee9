"""Tasks and hosts for tests of the fleet."""

from __future__ import annotations

from typing import Any

from pipelines.core.units import GIB
from pipelines.fleet.model import Ended, Machine, Needs, Task


def machine(name: str, **given: Any) -> Machine:
    return Machine.model_validate({"name": name, "cores": 8, "memory": 64 * GIB} | given)


def cell(key: str, seconds: float = 800.0, **given: Any) -> Task:
    """Of so many core-seconds, for hosts ``a`` and ``b`` unless it says otherwise."""
    common = {"key": key, "kind": "cell", "cell": key, "core_seconds": seconds, "width": 64}
    return Task.model_validate(common | {"hosts": ("a", "b"), "cold_seconds": 0.0} | given)


def gpu_test(key: str, after: tuple[str, ...] = (), **given: Any) -> Task:
    needs = Needs(slots=0, memory=given.pop("memory", 4 * GIB), gpu=("9.0",))
    return cell(key, 60.0, kind="test", needs=needs, after=after, **given)


def end(key: str, host: str, attempt: int = 1, outcome: Any = "done", **given: Any) -> Ended:
    values = {"key": key, "host": host, "attempt": attempt, "outcome": outcome}
    return Ended.model_validate(values | given)
