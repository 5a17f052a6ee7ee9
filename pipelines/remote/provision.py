"""Checks and applies resources; the controller sends the desired state and uploads files.

A resource goes through check -> plan -> apply -> verify; verifying runs its proof and checks again.
"""

from __future__ import annotations

import contextlib
import importlib
import pathlib
import re
import shutil
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import cast

from . import protected_dirs
from .process import capture
from .resources import Check, Proof, RefusedError, reboot
from .rpc import idempotent

_PROOF_TIMEOUT = 120.0
#: Kinds that run, or trust, the contents of one of our directories: their "path" or "git".
_INSPECTED = ("archive", "directory", "files", "git_config", "installer", "packages")

#: A resource as its module's ``Spec``, with its ``kind``.
Spec = Mapping[str, object]


class Row(Check):
    """A check, and what apply would do."""

    plan: str
    error: str
    """Why it could not be checked; empty if it could."""


class Outcome(Check):
    """A check after applying it, and the outcome."""

    reboot: str
    """Why Windows must be restarted; empty if it need not."""
    error: str
    """Why the resource refused; empty if it did not."""
    hint: str
    logs: list[str]


def _resource_module(spec: Spec) -> ModuleType:
    return importlib.import_module(f"{__package__}.resources.{spec['kind']}")


def _inspect(spec: Spec) -> None:
    """Raise ``UnsafeError`` for a directory that may contain another user's files."""
    place = spec.get("path") or spec.get("git")
    if place and spec["kind"] in _INSPECTED:
        protected_dirs.inspect(str(place))


def _check_resource(spec: Spec) -> Row:
    """A check that fails counts as not ok, with the error."""
    try:
        _inspect(spec)
        check: Check = _resource_module(spec).check(spec)
    except protected_dirs.UnsafeError as error:
        return {"ok": False, "found": error.why, "values": {}, "plan": "", "error": error.why}
    except Exception as error:  # one broken resource must not hide the others
        why = f"{type(error).__name__}: {error}"[:300]
        return {"ok": False, "found": why, "values": {}, "plan": "", "error": why}
    return {**check, "plan": "", "error": ""}


@idempotent
def check_all(specs: Sequence[Spec]) -> list[Row]:
    """Check each resource; those that differ have a plan."""
    rows = [_check_resource(spec) for spec in specs]
    for spec, row in zip(specs, rows, strict=True):
        if not row["ok"]:
            with contextlib.suppress(Exception):  # the check has reported the problem
                row["plan"] = _resource_module(spec).plan(spec)
    return rows


@idempotent
def apply_one(spec: Spec, marker: str) -> Outcome:
    """Apply a resource and verify it.

    A correct one is left alone: this may be repeated after a lost connection. A requested restart
    is recorded in ``marker``.
    """
    wish, refused = "", RefusedError("")
    if not (check := _check_resource(spec))["ok"]:
        try:
            _inspect(spec)
            wish = (_resource_module(spec).apply(spec) or {}).get("reboot", "")
            if wish:
                reboot.ask(marker, wish)
            _prove(spec)
        except RefusedError as error:
            refused = error
        except protected_dirs.UnsafeError as error:
            refused = RefusedError(error.why, hint=error.hint)
        check = _check_resource({**spec, "thorough": False})  # only the result is checked
    done: Outcome = {
        "ok": check["ok"],
        "found": check["found"],
        "values": check["values"],
        "reboot": wish,
        "error": str(refused),
        "hint": refused.hint,
        "logs": refused.logs,
    }
    if doubt := check.get("doubt"):
        done["doubt"] = doubt
    return done


def _prove(spec: Spec) -> None:
    """Run the command that shows that the installation works; a failed one is marked as missing."""
    if "check" not in spec:
        return
    try:
        _run_proof(cast(Proof, spec["check"]))
    except RefusedError:
        if forget := getattr(_resource_module(spec), "forget", None):
            forget(spec)
        raise


def _run_proof(proof: Proof) -> None:
    command = " ".join(proof["command"])
    try:
        code, output = capture(proof["command"], timeout=_PROOF_TIMEOUT)
    except (OSError, TimeoutError) as error:
        raise RefusedError(f"'{command}' does not run: {error}") from error
    if code or not re.search(proof["prints"], output, re.MULTILINE):
        raise RefusedError(
            f"'{command}' exited with {code} and printed {output.strip()[-300:]!r}, "
            f"expected {proof['prints']!r}"
        )


@idempotent
def free_space(path: str) -> int:
    """Free bytes on the volume of ``path``, whether or not it exists yet."""
    place = pathlib.Path(path)
    while not place.exists() and place != place.parent:
        place = place.parent
    return shutil.disk_usage(place).free
