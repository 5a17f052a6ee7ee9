"""Figures and capabilities out of the properties of a smoke suite and its cases."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated

from pydantic import Field

from pipelines.hosttext import line
from pipelines.model import Model, read_data
from pipelines.reports.model import Case
from pipelines.reports.views import Better, Capability, Figure, Group

FIGURES_FILE = Path(__file__).resolve().with_name("figures.yaml")
_HAS, _INFO = "has.", "info."  # of our suites; of python -m xformers.info
_MOST = 2000
_VALUE = re.compile(r"\s{0,8}([-+]?\d{1,20}(?:\.\d{0,20})?(?:[eE][-+]?\d{1,3})?)\s{0,8}\S{0,12}")
_PARTS = 3


class Rule(Model):
    """Properties whose name has ``pattern`` in it are figures of ``group``."""

    pattern: Annotated[str, Field(min_length=1)]
    group: Group
    unit: str
    better: Better

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """The compiled pattern."""
        return re.compile(self.pattern, re.IGNORECASE)


class Rules(Model):
    """``figures.yaml``."""

    rules: Annotated[tuple[Rule, ...], Field(min_length=1)]


@cache
def load_rules(path: Path = FIGURES_FILE) -> Rules:
    """Read the file; :class:`ConfigError` names the file and the key that is wrong."""
    return read_data(path, Rules)


@cache
def _rule(name: str) -> Rule | None:
    return next((rule for rule in load_rules().rules if rule.regex.search(name)), None)


def figures(suite: Mapping[str, str], cases: Iterable[Case]) -> tuple[Figure, ...]:
    """The figures among a suite's properties and its cases', each with a key of its own."""
    made: dict[str, Figure] = {}
    told = [("", name, value) for name, value in suite.items()]
    told += [(case.name, name, value) for case in cases for name, value in case.properties.items()]
    for owner, name, text in told:
        value = _number(text)
        rule = _rule(line(name, 200)) if value is not None else None
        if rule is None or value is None:
            continue
        figure = _figure(line(owner, 200), line(name, 200), value, rule, made)
        made.setdefault(figure.key, figure)
        if len(made) == _MOST:
            break
    return tuple(made.values())


def capabilities(suite: Mapping[str, str], cases: Iterable[Case]) -> tuple[Capability, ...]:
    """What the ``has.*`` properties say, and the ``info.*`` ones that are (un)available."""
    told = dict(suite)
    for case in cases:
        told |= {name: value for name, value in case.properties.items() if name.startswith(_HAS)}
    kept = {name.removeprefix(_HAS): said for name, said in told.items() if name.startswith(_HAS)}
    kept |= {
        name.removeprefix(_INFO): said
        for name, said in told.items()
        if name.startswith(_INFO) and said in ("available", "unavailable")
    }
    return tuple(Capability(line(name, 100), line(kept[name], 60)) for name in sorted(kept))[:_MOST]


def _number(text: str) -> float | None:
    match = _VALUE.fullmatch(text)
    if match is None:
        return None
    value = float(match[1])
    return value if math.isfinite(value) else None


def _figure(owner: str, name: str, value: float, rule: Rule, known: Mapping[str, Figure]) -> Figure:
    """``speed.<subject>.<series>``; a name without dots is of its case."""
    parts = name.split(".")
    if len(parts) >= _PARTS:
        subject, series = ".".join(parts[1:-1]), parts[-1]
    elif len(parts) > 1:
        subject, series = ".".join(parts[1:]), parts[0]
    else:
        subject, series = owner or "suite", name
    key = name if len(parts) > 1 and name not in known else f"{owner}: {name}"
    if len(parts) > 1 and name in known:
        subject = f"{subject} ({owner})"
    return Figure(key, rule.group, subject, series, value, rule.unit, rule.better)
