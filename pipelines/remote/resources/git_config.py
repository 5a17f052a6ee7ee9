"""A setting of git for all users of the machine: ``{git, name, value}``."""

from __future__ import annotations

from typing import Any

from ..process import capture
from . import RefusedError

_TIMEOUT = 60.0


def check(spec: dict[str, Any]) -> dict[str, Any]:
    """Ask git itself, so that its own rules decide which file counts."""
    command = [spec["git"], "config", "--system", "--get", spec["name"]]
    try:
        code, output = capture(command, timeout=_TIMEOUT)
    except FileNotFoundError:
        return {"ok": False, "found": "no git"}
    found = output.strip() if code == 0 else ""
    return {"ok": found == spec["value"], "found": found or "not set"}


def plan(spec: dict[str, Any]) -> str:
    """The command."""
    return f"git config --system {spec['name']} {spec['value']}"


def apply(spec: dict[str, Any]) -> None:
    """Set it."""
    command = [spec["git"], "config", "--system", "--replace-all", spec["name"], spec["value"]]
    code, output = capture(command, timeout=_TIMEOUT)
    if code:
        raise RefusedError(f"git config left with {code}: {output.strip()[-500:]}")
