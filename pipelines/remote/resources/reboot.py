"""A pending restart of Windows. The controller carries it out.

Its requester is recorded in the file ``marker`` with the identity of the running Windows: once that
changes, the request is fulfilled.
"""

from __future__ import annotations

import json
import pathlib

from .. import files, protected_dirs, reboot
from . import Check, Kind, RefusedError


class Spec(Kind):
    """The desired state: none pending."""

    marker: str


def ask(marker: str, reason: str) -> None:
    """Record that ``reason`` requires a restart."""
    reasons = [*dict.fromkeys([*requested(marker), reason])]
    path = pathlib.Path(marker)
    protected_dirs.make(path.parent)
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps({"boot": reboot.boot_identity(), "reasons": reasons}), "utf-8")
    files.replace(str(part), str(path))


def requested(marker: str) -> list[str]:
    """The reasons recorded since Windows started."""
    try:
        data = json.loads(pathlib.Path(marker).read_text("utf-8"))
        current = data["boot"] == reboot.boot_identity()
        return [str(reason) for reason in data["reasons"]] if current else []
    except (OSError, ValueError, KeyError, TypeError):
        return []


def check(spec: Spec) -> Check:
    """Whether no resource has requested a restart; values: their ``reasons``.

    Restarts pending in Windows itself are only reported: virus scanners keep such requests forever,
    and a host must not restart each time it is provisioned.
    """
    reasons = requested(spec["marker"])
    text = "; ".join([*reasons, *reboot.pending_reboot()])
    values = {"reasons": "; ".join(reasons)} if reasons else {}
    return {"ok": not reasons, "found": text or "no restart pending", "values": values}


def plan(spec: Spec) -> str:
    """What the controller will do."""
    return f"restart Windows and wait for it: {check(spec)['found']}"


def apply(spec: Spec) -> None:
    """Not from here: the process that restarts a host must not run on it."""
    raise RefusedError(f"restart needed: {check(spec)['found']}", hint="Restart Windows.")
