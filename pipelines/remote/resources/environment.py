"""A variable of the machine's environment.

What is started later sees it. The WinRM service keeps the environment that it started with, so
this process takes the value over as well, and hands it to what it starts.
"""

from __future__ import annotations

import os

from . import Check, Kind, registry

_KEY = r"HKLM\SYSTEM\CurrentControlSet\Control\Session Manager\Environment"


class Spec(Kind):
    """What is wanted."""

    name: str
    value: str


def check(spec: Spec) -> Check:
    """Compare with the machine's environment; its value under its name."""
    found = registry.read(_KEY, spec["name"])
    ok = found == spec["value"]
    if ok:
        os.environ[spec["name"]] = spec["value"]
    return registry.told(spec["name"], found, ok=ok)


def plan(spec: Spec) -> str:
    """The variable."""
    return f"set the machine's variable {spec['name']}"


def apply(spec: Spec) -> None:
    """Set it for the machine and for this process."""
    registry.write(_KEY, spec["name"], spec["value"])
    os.environ[spec["name"]] = spec["value"]
