"""The cells in whose environments a wheel is tested, where one wheel is for several."""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.core.errors import LockError
from pipelines.core.target import Target
from pipelines.recipe.model import Recipe
from pipelines.toolchain.lock import ToolchainLock


def cells_of_tests(
    recipe: Recipe,
    target: Target,
    lock: ToolchainLock,
    instead: Mapping[str, str],
    *,
    existing: bool,
) -> tuple[Target, ...]:
    """The target with each torch of ``tested_with`` that the lock names for it; else itself.

    With the others it is not tested, which plan and report say; ``instead`` is the host's. An
    environment that is used as it is (``existing``) has one torch, the target's.
    """
    cells = [target.model_copy(update={"torch": release}) for release in recipe.tested_with]
    return tuple(c for c in cells if not existing and _has_locked_torch(lock, c, instead)) or (
        target,
    )


def _has_locked_torch(lock: ToolchainLock, cell: Target, instead: Mapping[str, str]) -> bool:
    try:
        lock.entries_for(["torch"], cell, instead)
    except LockError:
        return False
    return True
