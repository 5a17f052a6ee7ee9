"""A variable of the machine's environment: ``{name, value}``.

What is started later sees it. The WinRM service keeps the environment that it started with, so
this process takes the value over as well, and hands it to what it starts.
"""

from __future__ import annotations

import os
from typing import Any

from . import registry

_KEY = r"HKLM\SYSTEM\CurrentControlSet\Control\Session Manager\Environment"


def check(spec: dict[str, Any]) -> dict[str, Any]:
    """Compare with the machine's environment."""
    found = registry.read(_KEY, spec["name"])
    ok = found == spec["value"]
    if ok:
        os.environ[spec["name"]] = spec["value"]
    return {"ok": ok, "found": "not set" if found is None else str(found)}


def plan(spec: dict[str, Any]) -> str:
    """The variable."""
    return f"set the machine's variable {spec['name']}"


def apply(spec: dict[str, Any]) -> None:
    """Set it for the machine and for this process."""
    registry.write(_KEY, spec["name"], spec["value"])
    os.environ[spec["name"]] = spec["value"]
