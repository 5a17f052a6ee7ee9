"""Extracts figures and capabilities from the properties of a smoke suite and its cases."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated

from pydantic import Field

from pipelines.core.hosttext import safe_line
from pipelines.core.model import Model, read_data
from pipelines.reports.model import Case
from pipelines.reports.views import Better, Capability, Figure, Group

FIGURES_FILE = Path(__file__).resolve().with_name("figures.yaml")
_HAS, _INFO = "has.", "info."  # of our suites; of python -m xformers.info
#: Prefix of a case's properties for numbers printed by a script.
SCRIPT = "script."
_MOST = 2000
_VALUE = re.compile(r"\s{0,8}([-+]?\d{1,20}(?:\.\d{0,20})?(?:[eE][-+]?\d{1,3})?)\s{0,8}\S{0,12}")
_PARTS = 3
#: The time of another implementation in the same case: ``milliseconds_math``.
_RIVAL = re.compile(r"(milliseconds|microseconds|ms|us)_(\w{1,60})")


class Rule(Model):
    """Properties whose names match ``pattern`` are figures of ``group``."""

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


def load_rules(path: Path = FIGURES_FILE) -> Rules:
    """Read the file; :class:`ConfigError` names the file and the key that is wrong."""
    return read_data(path, Rules)


@cache
def _rule(name: str) -> Rule | None:
    return next((rule for rule in load_rules().rules if rule.regex.search(name)), None)


def extract_figures(suite: Mapping[str, str], cases: Iterable[Case]) -> tuple[Figure, ...]:
    """The figures in a suite's properties and its cases', with unique keys."""
    made: dict[str, Figure] = {}
    cases = list(cases)
    properties = [("", name, value) for name, value in suite.items()]
    properties += [
        (case.name, name, value) for case in cases for name, value in case.properties.items()
    ]
    shapes = {case.name: _shape(case) for case in cases}
    for owner, name, text in properties:
        value = _parse_figure_value(text)
        rule = _rule(safe_line(name, 200)) if value is not None else None
        if rule is None or value is None:
            continue
        figure = _figure(safe_line(owner, 200), safe_line(name, 200), value, rule, made)
        if "." not in name and (shape := shapes.get(owner)):
            figure = _with_rival(figure, name, shape)
        made.setdefault(figure.key, figure)
        if len(made) == _MOST:
            break
    return tuple(made.values())


@dataclass(frozen=True, slots=True)
class _Shape:
    """A case that times another implementation as well."""

    name: str
    rival: str
    own: Mapping[str, float]
    """By the name of the property."""


def _shape(case: Case) -> _Shape | None:
    """What ``case`` measures of whom: ``milliseconds_math`` is math's next to ``milliseconds``.

    Cases that differ in the rival alone are one shape. They name it themselves as the property
    ``shape``; else it is the case without the parameter that is the rival. One that had to measure
    something smaller than the others has a property ``batch``, and is a shape of its own.
    """
    rivals = {m[2]: m[1] for name in case.properties if (m := _RIVAL.fullmatch(name))}
    own = {
        name: value
        for name in rivals.values()
        if (value := _parse_figure_value(case.properties.get(name, ""))) is not None
    }
    if len(rivals) != 1 or not own:
        return None
    (rival,) = rivals
    base, bracket, parameters = case.name.partition("[")
    parts = [part for part in parameters.rstrip("]").split("-") if part != rival]
    shape = case.properties.get("shape") or base + (f"[{'-'.join(parts)}]" if bracket else "")
    return _Shape(safe_line(case.name if "batch" in case.properties else shape, 200), rival, own)


def _with_rival(figure: Figure, name: str, shape: _Shape) -> Figure:
    match = _RIVAL.fullmatch(name)
    if match is None:
        return replace(figure, shape=shape.name)
    own = shape.own[match[1]]
    return replace(
        figure,
        shape=shape.name,
        rival=safe_line(shape.rival, 60),
        factor=figure.value / own if own else None,
    )


def extract_capabilities(suite: Mapping[str, str], cases: Iterable[Case]) -> tuple[Capability, ...]:
    """Capabilities from ``has.*`` properties and ``info.*`` ones that are (un)available."""
    properties = dict(suite)
    for case in cases:
        properties |= {
            name: value for name, value in case.properties.items() if name.startswith(_HAS)
        }
    features = {
        name.removeprefix(_HAS): value
        for name, value in properties.items()
        if name.startswith(_HAS)
    }
    features |= {
        name.removeprefix(_INFO): value
        for name, value in properties.items()
        if name.startswith(_INFO) and value in ("available", "unavailable")
    }
    return tuple(
        Capability(safe_line(name, 100), safe_line(features[name], 60)) for name in sorted(features)
    )[:_MOST]


def _parse_figure_value(text: str) -> float | None:
    match = _VALUE.fullmatch(text)
    if match is None:
        return None
    value = float(match[1])
    return value if math.isfinite(value) else None


def _figure(owner: str, name: str, value: float, rule: Rule, known: Mapping[str, Figure]) -> Figure:
    """``speed.<subject>.<series>``; a name without dots belongs to its case."""
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
