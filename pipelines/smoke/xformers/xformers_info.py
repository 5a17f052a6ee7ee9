"""``python -m xformers.info``, read, and what of it must be available where.

xFormers imports with half of it missing: its own table is what tells. The rules are data, the
first that matches a row counts; a row that none matches may be either and is only recorded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_ROW = re.compile(r"(\S+):\s+(.*\S)\s*")
_VERSION = re.compile(r"xFormers (\S+)")
_MISSING = ("unavailable", "not built", "none", "False", "not available")
_THERE = ("available", "True")


@dataclass(frozen=True)
class Rule:
    """Rows that match ``row`` must be available unless an exception holds, which has a reason."""

    row: str
    must: bool = True
    least: int = 0
    """Lowest compute capability, as ``80``."""
    most: int = 9999
    windows: bool = True
    """Whether Windows must have it too."""
    why: str = ""


RULES = (
    Rule(r"cpp_library", why="without it there are no kernels of xFormers' own"),
    Rule(r"build\.info", why="without it there are no kernels of xFormers' own"),
    Rule(r"memory_efficient_attention\.cutlass[FB]-blackwell", must=False, why="for 10.0 alone"),
    Rule(r"memory_efficient_attention\.cutlass[FB](-pt)?", why="the one that runs everywhere"),
    Rule(
        r"memory_efficient_attention\.fa2[FB]@.*",
        least=80,
        windows=False,
        why="FlashAttention 2 needs Ampere, and 0.0.34 takes torch's, which torch's wheels for"
        " Windows do not have (https://github.com/pytorch/pytorch/issues/125070)",
    ),
    Rule(
        r"memory_efficient_attention\.flshatt[FB]@.*",
        least=80,
        why="FlashAttention 2 needs Ampere",
    ),
    Rule(r"memory_efficient_attention\.fa3.*", must=False, why="a part of its own, for 9.0 alone"),
    Rule(r"memory_efficient_attention\.ck.*", must=False, why="for AMD's GPUs"),
    Rule(
        r"(memory_efficient_attention\.|is_)triton.*",
        windows=False,
        why="Triton is no part of torch on Windows",
    ),
)


def parse(text: str) -> dict[str, str]:
    """Row -> what it says, in the table's order; ``version`` is from its first line."""
    rows: dict[str, str] = {}
    for line in text.splitlines():
        if match := _ROW.fullmatch(line.strip()):
            rows[match[1]] = match[2]
        elif match := _VERSION.fullmatch(line.strip()):
            rows["version"] = match[1]
    return rows


def is_status(status: str) -> bool:
    """Whether a row is about something that is there or not; others are versions and settings."""
    return status in _THERE or status.startswith(_MISSING)


def unsupported(problem: str, *, named: bool, flash: bool) -> bool:
    """Whether ``problem`` is what a wheel in order says of these inputs on this GPU.

    ``named``: one operator was asked for. ``flash``: FlashAttention takes them; the other that is
    always built, cutlass, is for GPUs up to 9.0.
    """
    return "is not supported because" in problem and (named or (not flash and "too new" in problem))


def missing(row: str, status: str, *, windows: bool, arch: int) -> tuple[str, str]:
    """``("", "")`` if it is there; else ``("fail" or "skip", why)``. ``arch`` is ``90``."""
    if status in _THERE:
        return "", ""
    rule = next((rule for rule in RULES if re.fullmatch(rule.row, row)), None)
    if rule is None:
        return "skip", f"{row} is {status}: may be"
    excused = not rule.must or not rule.least <= arch <= rule.most
    if excused or (windows and not rule.windows):
        return "skip", f"{row} is {status}: {rule.why}"
    return "fail", f"{row} is {status} and must be available: {rule.why}"
