"""A setting of git for all users of the machine."""

from __future__ import annotations

from ..process import capture
from . import Check, Kind, RefusedError

_TIMEOUT = 60.0


class Spec(Kind):
    """The desired state."""

    git: str
    """The program."""
    name: str
    value: str


def check(spec: Spec) -> Check:
    """Query git itself, so that its own rules determine which file counts."""
    command = [spec["git"], "config", "--system", "--get", spec["name"]]
    try:
        code, output = capture(command, timeout=_TIMEOUT)
    except FileNotFoundError:
        return {"ok": False, "found": "no git", "values": {}}
    value = output.strip() if code == 0 else ""
    values = {spec["name"]: value} if value else {}
    return {"ok": value == spec["value"], "found": value or "not set", "values": values}


def plan(spec: Spec) -> str:
    """The command."""
    return f"git config --system {spec['name']} {spec['value']}"


def apply(spec: Spec) -> None:
    """Set it."""
    command = [spec["git"], "config", "--system", "--replace-all", spec["name"], spec["value"]]
    code, output = capture(command, timeout=_TIMEOUT)
    if code:
        raise RefusedError(f"git config exited with {code}: {output.strip()[-500:]}")
