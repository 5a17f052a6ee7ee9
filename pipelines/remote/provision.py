"""Checks and applies resources; the controller says what is wanted and uploads what is needed.

A resource goes check -> plan -> apply -> verify; to verify is to run its proof and check again.
"""

from __future__ import annotations

import contextlib
import importlib
import pathlib
import re
import shutil
from typing import Any

from .process import capture
from .resources import RefusedError, reboot
from .rpc import idempotent

_PROOF_TIMEOUT = 120.0


def _kind(spec: dict[str, Any]) -> Any:
    return importlib.import_module(f"{__package__}.resources.{spec['kind']}")


def _checked(spec: dict[str, Any]) -> dict[str, Any]:
    """``{"ok", "found"}``; what cannot be checked is not ok and says why."""
    try:
        return dict(_kind(spec).check(spec))
    except Exception as error:  # one broken resource must not hide the others
        return {"ok": False, "found": f"{type(error).__name__}: {error}"[:300]}


@idempotent
def check_all(specs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """``{"ok", "found", "plan"}`` of each resource; the plan is what apply would do."""
    results = []
    for spec in specs:
        result = _checked(spec)
        if not result["ok"]:
            with contextlib.suppress(Exception):  # the check has told what is wrong
                result["plan"] = _kind(spec).plan(spec)
        results.append({"plan": "", **result})
    return results


@idempotent
def apply_one(spec: dict[str, Any], marker: str) -> dict[str, Any]:
    """Apply a resource and verify it: ``{"ok", "found", "reboot", "error", "advice", "logs"}``.

    What is right already is left alone: this may be asked for again after a lost connection.
    ``reboot`` is why Windows must start anew, or empty; it is remembered in ``marker``. ``error``
    is empty unless the resource itself refused.
    """
    told: dict[str, Any] = {"reboot": "", "error": "", "advice": "", "logs": []}
    check = _checked(spec)
    if check["ok"]:
        return told | check
    try:
        outcome = _kind(spec).apply(spec) or {}
        told["reboot"] = outcome.get("reboot", "")
        if told["reboot"]:
            reboot.ask(marker, told["reboot"])
        _prove(spec)
    except RefusedError as error:
        if forget := getattr(_kind(spec), "forget", None):
            forget(spec)
        told |= {"error": str(error), "advice": error.advice, "logs": error.logs}
    return told | _checked(spec)


def _prove(spec: dict[str, Any]) -> None:
    """Run the command that shows that what was installed works."""
    proof = spec.get("check")
    if proof is None:
        return
    command = " ".join(proof["command"])
    try:
        code, output = capture(proof["command"], timeout=_PROOF_TIMEOUT)
    except (OSError, TimeoutError) as error:
        raise RefusedError(f"'{command}' does not run: {error}") from error
    if code or not re.search(proof["prints"], output, re.MULTILINE):
        raise RefusedError(
            f"'{command}' left with {code} and printed {output.strip()[-300:]!r}, "
            f"expected {proof['prints']!r}"
        )


@idempotent
def free_space(path: str) -> int:
    """Bytes free on the volume of ``path``, whether or not that is there already."""
    place = pathlib.Path(path)
    while not place.exists() and place != place.parent:
        place = place.parent
    return shutil.disk_usage(place).free
