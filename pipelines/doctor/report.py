"""Findings as people and programs read them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence

from pipelines.core.finding import LEVELS, Finding, worst_level
from pipelines.doctor.model import Purpose


def headline(purpose: Purpose) -> str:
    """What is looked at, and for what."""
    target = purpose.target
    what = f"{target.recipe} for cp{target.python.replace('.', '')}, CUDA {target.cuda}"
    return f"Doctor {target.host}: {what}, {target.archs}"


def count_by_level(findings: Iterable[Finding]) -> dict[str, int]:
    """How many there are of each level."""
    counted = Counter(finding.level for finding in findings)
    return {level: counted[level] for level in LEVELS}


def summary(findings: Sequence[Finding]) -> str:
    """One line: ``12 ok, 2 warnings, 1 error``, and ``3 not known`` where something is not."""
    counted = count_by_level(findings)
    parts = [f"{counted['ok']} ok"]
    for word in ("warning", "error"):
        number = counted[word]
        parts.append(f"{number} {word}{'' if number == 1 else 's'}")
    if counted["unknown"]:
        parts.append(f"{counted['unknown']} not known")
    return ", ".join(parts)


def _flatten_purpose(purpose: Purpose) -> dict[str, object]:
    """What was asked, flat."""
    order = {field.name: getattr(purpose, field.name) for field in dataclasses.fields(purpose)}
    del order["target"], order["settings"], order["refused"]
    axes = purpose.target.values()
    return {**axes, "torch": axes["torch"] or None, **order}


def as_json(findings: Sequence[Finding], purpose: Purpose | None = None) -> dict[str, object]:
    """As plain values; keys do not change within a schema.

    - ``schema``: 2
    - ``host``: the host's name, or null when only this machine was looked at
    - ``order``: what the host was judged for, the axes of its target (``torch`` is null when none
      is needed) and the fields of :class:`.model.Purpose`, or null; not its ``settings``, and not
      what is ``refused``, which the findings tell
    - ``level``: the worst of them
    - ``summary``: how many there are of each level
    - ``findings``: in the order of the table, each a :class:`pipelines.core.finding.Finding`;
      ``subject`` is the area, ``hint`` is never empty where the level is warning or error, and
      ``command`` is to be typed on the host
    """
    return {
        "schema": 2,
        "host": purpose.target.host if purpose else None,
        "order": _flatten_purpose(purpose) if purpose else None,
        "level": worst_level(one.level for one in findings),
        "summary": count_by_level(findings),
        "findings": [finding.model_dump(mode="json") for finding in findings],
    }
