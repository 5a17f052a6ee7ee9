"""Findings as people and programs read them."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pipelines.core.finding import LEVELS, Finding, worst
from pipelines.core.hosttext import safe
from pipelines.doctor.model import Purpose

SCHEMA = 1
_DEEP, _MANY, _LONG, _BITS = 8, 200, 2000, 64  # what is kept of a host's facts
_VALUES = 5000  # of them in all


def headline(purpose: Purpose) -> str:
    """What is looked at, and for what."""
    target = purpose.target
    what = f"{target.recipe} for cp{target.python.replace('.', '')}, CUDA {target.cuda}"
    return f"Doctor {target.host}: {what}, {target.archs}"


def count(findings: Iterable[Finding]) -> dict[str, int]:
    """How many there are of each level."""
    counted = Counter(finding.level for finding in findings)
    return {level: counted[level] for level in LEVELS}


def summary(findings: Sequence[Finding]) -> str:
    """One line: ``12 ok, 2 warnings, 1 error``, and ``3 not known`` where something is not."""
    counted = count(findings)
    parts = [f"{counted['ok']} ok"]
    for word in ("warning", "error"):
        number = counted[word]
        parts.append(f"{number} {word}{'' if number == 1 else 's'}")
    if counted["unknown"]:
        parts.append(f"{counted['unknown']} not known")
    return ", ".join(parts)


class _Bounded:
    """Copies of values that are harmless, and without what is too deep, too many or no JSON."""

    def __init__(self) -> None:
        self.left = _VALUES

    def __call__(self, value: object, depth: int = 0) -> object:
        self.left -= 1
        match value:
            case _ if depth > _DEEP or self.left < 0:
                kept: object = "..."
            case str():
                kept = safe(value[: _LONG * 4], _LONG)
            case None | bool():
                kept = value
            case int():
                kept = value if value.bit_length() < _BITS else "..."
            case float():
                kept = value if math.isfinite(value) else None
            case Mapping():
                kept = self._pairs(value, depth)
            case list() | tuple():
                kept = [self(item, depth + 1) for item in value[: min(_MANY, max(self.left, 0))]]
            case _:
                kept = f"({type(value).__name__})"
        return kept

    def _pairs(self, value: Mapping[object, object], depth: int) -> dict[str, object]:
        kept: dict[str, object] = {}
        for key, item in list(value.items())[:_MANY]:
            if self.left <= 0:
                break
            name = key if isinstance(key, str) else repr(key)
            kept[safe(name[:400], 100)] = self(item, depth + 1)
        return kept


def _order(purpose: Purpose) -> dict[str, object]:
    """What was asked, flat."""
    told = {field.name: getattr(purpose, field.name) for field in dataclasses.fields(purpose)}
    del told["target"], told["settings"], told["refused"]
    axes = purpose.target.values()
    return {**axes, "torch": axes["torch"] or None, **told}


def as_json(
    findings: Sequence[Finding], facts: Mapping[str, object], purpose: Purpose | None = None
) -> str:
    """One JSON object, ASCII only, two blanks of indentation; keys do not change within a schema.

    - ``schema``: 1
    - ``host``: the host's name, or null when only this machine was looked at
    - ``order``: what the host was judged for, the axes of its target (``torch`` is null when none
      is needed) and the fields of :class:`.model.Purpose`, or null; not its ``settings``, and not
      what is ``refused``, which the findings tell
    - ``level``: the worst of them
    - ``summary``: how many there are of each level
    - ``findings``: in the order of the table, each a :class:`pipelines.core.finding.Finding`;
      ``subject`` is the area, ``hint`` is never empty where the level is warning or error, and
      ``command`` is to be typed on the host
    - ``facts``: ``{"controller", "host"}``, what the findings rest on, as
      ``pipelines/remote/inspection`` and ``remote/provision.py`` (``resources``) describe it,
      shortened where it was too long
    """
    bounded = _Bounded()
    told = {
        "schema": SCHEMA,
        "host": purpose.target.host if purpose else None,
        "order": _order(purpose) if purpose else None,
        "level": worst(one.level for one in findings),
        "summary": count(findings),
        "findings": [finding.model_dump(mode="json") for finding in findings],
        "facts": {key: bounded(facts.get(key)) for key in ("controller", "host")},
    }
    return json.dumps(told, indent=2, allow_nan=False)
