"""Checks and applies resources; the controller says what is wanted and uploads what is needed."""

from __future__ import annotations

import importlib
import shutil
from typing import Any

from .rpc import idempotent


def _kind(spec: dict[str, Any]) -> Any:
    return importlib.import_module(f"{__package__}.resources.{spec['kind']}")


@idempotent
def check_all(specs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """``{"ok", "found"}`` of each resource; one that cannot be checked is not ok and says why."""
    results = []
    for spec in specs:
        try:
            results.append(_kind(spec).check(spec))
        except Exception as error:  # one broken resource must not hide the others
            results.append({"ok": False, "found": f"{type(error).__name__}: {error}"[:300]})
    return results


@idempotent
def apply_one(spec: dict[str, Any]) -> dict[str, Any]:
    """Apply a resource and check it again."""
    _kind(spec).apply(spec)
    return dict(_kind(spec).check(spec))


@idempotent
def free_space(path: str) -> int:
    """Bytes free on the volume of ``path``."""
    return shutil.disk_usage(path).free
