"""How numbers are written in every report."""

from __future__ import annotations

_MINUTE, _HOUR = 60, 3600
_STEP = 1024
_SMALL, _LARGE = 0.01, 1e6
_TENS = 10


def seconds(value: float | None) -> str:
    """``0.3 s``, ``42 s``, ``3 min 05 s``, ``1 h 02 min``; ``""`` for none."""
    if value is None:
        return ""
    if value < _TENS:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE:02d} s"
    return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE:02d} min"


def size(value: float) -> str:
    """``512 B``, ``1.5 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < _STEP:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= _STEP
    return f"{value:.1f} TiB"


def number(value: float) -> str:
    """Four digits that count; no more zeros than needed."""
    if value and not _SMALL <= abs(value) < _LARGE:
        return f"{value:.3g}"
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"  # noqa: PLR2004


def percent(share: float) -> str:
    """``87 %``."""
    return f"{share * 100:.0f} %"


def counted(count: int, one: str, many: str = "") -> str:
    """``1 case``, ``2 cases``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
