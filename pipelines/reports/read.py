"""Reading what cannot be trusted to have any shape: records of hosts and of other versions."""

from __future__ import annotations

import math
from typing import Any


def mapping(value: Any) -> dict[str, Any]:
    """``value`` if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def rows(value: Any, most: int = 1000) -> list[dict[str, Any]]:
    """The mappings in ``value`` if it is a list; the first ``most``."""
    items = value[:most] if isinstance(value, list) else []
    return [item for item in items if isinstance(item, dict)]


def number(value: Any, most: float = 1e15) -> float | None:
    """``value`` if it is a finite number from 0 to ``most``."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        value = float(value)
    except OverflowError:
        return None
    return value if math.isfinite(value) and 0 <= value <= most else None
