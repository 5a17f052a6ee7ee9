"""Reading what cannot be trusted to have any shape: records of hosts and of other versions."""

from __future__ import annotations

import math
from typing import Any

from pipelines.console import safe


def line(value: Any, limit: int = 300) -> str:
    """``value`` on one line, harmless to print, of at most about ``limit`` characters."""
    if value is None:
        return ""
    return " ".join(safe(str(value)[: 4 * limit], limit).split())


def block(value: Any, limit: int = 4000) -> str:
    """``value`` with its line ends, harmless to print; its start."""
    return "" if value is None else safe(str(value)[: 4 * limit], limit).strip("\n")


def mapping(value: Any) -> dict[str, Any]:
    """``value`` if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def rows(value: Any, most: int = 1000) -> list[dict[str, Any]]:
    """The mappings in ``value`` if it is a list; the first ``most``."""
    items = value[:most] if isinstance(value, list) else []
    return [item for item in items if isinstance(item, dict)]


def texts(value: Any, most: int = 100) -> list[str]:
    """The items of ``value`` as lines, if it is a list; the last ``most``."""
    items = value[-most:] if isinstance(value, list) else []
    return [safe(str(item)[:2000], 400).replace("\n", " ") for item in items]


def number(value: Any, most: float = 1e15) -> float | None:
    """``value`` if it is a finite number from 0 to ``most``."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        value = float(value)
    except OverflowError:
        return None
    return value if math.isfinite(value) and 0 <= value <= most else None
