"""A variable of the machine's environment.

Processes started later see it. The WinRM service keeps the environment it started with, so this
process sets the value as well, and passes it to its children.
"""

from __future__ import annotations

import os

from . import Check, Kind, registry

_KEY = r"HKLM\SYSTEM\CurrentControlSet\Control\Session Manager\Environment"


class Spec(Kind):
    """The desired state."""

    name: str
    value: str


def check(spec: Spec) -> Check:
    """Compare with the machine's environment; its value under its name."""
    value = registry.read(_KEY, spec["name"])
    ok = value == spec["value"]
    if ok:
        os.environ[spec["name"]] = spec["value"]
    return registry.described(spec["name"], value, ok=ok)


def plan(spec: Spec) -> str:
    """The variable."""
    return f"set the machine variable {spec['name']}"


def apply(spec: Spec) -> None:
    """Set it for the machine and for this process."""
    registry.write(_KEY, spec["name"], spec["value"])
    os.environ[spec["name"]] = spec["value"]
