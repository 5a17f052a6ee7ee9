"""How numbers are written for people, in reports and on the terminal.

Durations have three rules: :func:`format_seconds` of what was measured, :func:`format_elapsed` of
what may still run, :func:`format_estimate` of what is not known to the second.
"""

from __future__ import annotations

from collections.abc import Iterable

#: Bytes.
GIB = 1 << 30
_MINUTE, _HOUR = 60, 3600
_STEP = 1024
_SMALL, _LARGE = 0.01, 1e6
_TENS = 10


def format_seconds(value: float | None) -> str:
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


def format_elapsed(value: float) -> str:
    """``0 min 42 s``, ``3 min 05 s``, ``1 h 02 min``; nothing is less than no time."""
    minutes, rest = divmod(max(0, int(value)), _MINUTE)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def format_estimate(value: float) -> str:
    """``40 s``, ``14 min``, ``2 h 05 min``: seconds only where a person would count them."""
    if value < 1.5 * _MINUTE:
        return f"{value:.0f} s"
    hours, minutes = divmod(round(value / _MINUTE), 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min"


def format_gib(value: float, digits: int = 0) -> str:
    """``64 GiB``: bytes of memory, which come in whole ones; ``digits`` after the point."""
    return f"{value / GIB:.{digits}f} GiB"


def format_size(value: float) -> str:
    """``512 B``, ``1.5 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < _STEP:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= _STEP
    return f"{value:.1f} TiB"


def format_number(value: float) -> str:
    """Four digits that count; no more zeros than needed."""
    if value and not _SMALL <= abs(value) < _LARGE:
        return f"{value:.3g}"
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"  # noqa: PLR2004


def format_percent(share: float) -> str:
    """``87 %``."""
    return f"{share * 100:.0f} %"


def pluralize(count: int, one: str, many: str = "") -> str:
    """``1 case``, ``2 cases``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def join_first(texts: Iterable[str], between: str = ", ", most: int = 5) -> str:
    """The first ones, and how many more there are."""
    every = list(texts)
    more = len(every) - most
    return between.join(every[:most]) + (f" and {more} more" if more > 0 else "")
