"""A restart of Windows that something waits for. The controller carries it out.

Who asked for it is kept in the file ``marker`` with the identity of the running Windows: once that
is another one, the wish is fulfilled.
"""

from __future__ import annotations

import json
import pathlib

from .. import files, protected_dirs, reboot
from . import Check, Kind, RefusedError


class Spec(Kind):
    """What is wanted: that none is due."""

    marker: str


def ask(marker: str, reason: str) -> None:
    """Remember that ``reason`` needs a restart."""
    reasons = [*dict.fromkeys([*asked(marker), reason])]
    path = pathlib.Path(marker)
    protected_dirs.make(path.parent)
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps({"boot": reboot.boot_identity(), "reasons": reasons}), "utf-8")
    files.replace(str(part), str(path))


def asked(marker: str) -> list[str]:
    """The reasons that were given since Windows started."""
    try:
        found = json.loads(pathlib.Path(marker).read_text("utf-8"))
        current = found["boot"] == reboot.boot_identity()
        return [str(reason) for reason in found["reasons"]] if current else []
    except (OSError, ValueError, KeyError, TypeError):
        return []


def check(spec: Spec) -> Check:
    """Whether no resource waits for a restart; values: their ``reasons``.

    What Windows itself has pending is told, no more: virus scanners keep such wishes for ever, and
    a host must not restart each time it is provisioned.
    """
    reasons = asked(spec["marker"])
    found = "; ".join([*reasons, *reboot.pending_reboot()])
    values = {"reasons": "; ".join(reasons)} if reasons else {}
    return {"ok": not reasons, "found": found or "no restart pending", "values": values}


def plan(spec: Spec) -> str:
    """What the controller will do."""
    return f"restart Windows and wait for it: {check(spec)['found']}"


def apply(spec: Spec) -> None:
    """Not from here: whoever restarts a host must not be a part of it."""
    raise RefusedError(f"restart needed: {check(spec)['found']}", hint="Restart Windows.")
