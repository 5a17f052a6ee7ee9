"""Compares two runs: what differs, and what is newly missing or failing.

Measured values are shown as they are. How much slower is too slow depends on the machine and on who
asks: a limit here would be wrong for most.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any, Literal

from pipelines.core import units
from pipelines.core.errors import WORSE
from pipelines.core.finding import values_of
from pipelines.core.target import AXES
from pipelines.reports.provenance import NUMBERS
from pipelines.reports.views import VERDICTS, RunView

Judgement = Literal["worse", "better", "changed"]
_UNITS = 10
_FAILED = ("failed", "error")
_NUMBER = re.compile(
    r"[-+]?(?:(?:\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(?:e[-+]?\d{1,3})?|nan|inf(?:inity)?)",
    re.IGNORECASE | re.ASCII,
)
_SCRIPT_CASE = "test_script"  # of pipelines/smoke/script


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference."""

    kind: str
    subject: str
    before: str
    after: str
    judgement: Judgement = "changed"
    """Measured values are only ``changed``."""
    ratio: float | None = None
    """After divided by before, if both are numbers."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """All differences; ``notes`` describe the runs."""

    before: RunView
    after: RunView
    notes: tuple[str, ...]
    differences: tuple[Difference, ...]

    @property
    def worse(self) -> tuple[Difference, ...]:
        """What is newly missing or failing."""
        return tuple(d for d in self.differences if d.judgement == "worse")

    @property
    def exit_code(self) -> int:
        """0, or :data:`WORSE`."""
        return WORSE if self.worse else 0


def comparison_payload(seen: Comparison) -> dict[str, Any]:
    """For programs: ``schema`` 1, the runs' names, notes, and the fields of each difference."""
    return {
        "schema": 1,
        "before": seen.before.id,
        "after": seen.after.id,
        "worse": len(seen.worse),
        "notes": list(seen.notes),
        "differences": [asdict(difference) for difference in seen.differences],
    }


def compare_runs(before: RunView, after: RunView) -> Comparison:
    """Compare two runs; what got worse comes first."""
    rules = (
        _compare_verdicts,
        _compare_capabilities,
        _archs,
        _cases,
        _compare_script_numbers,
        _measured,
    )
    differences = [difference for rule in rules for difference in rule(before, after)]
    order: tuple[Judgement, ...] = ("worse", "changed", "better")
    differences.sort(key=lambda difference: order.index(difference.judgement))
    return Comparison(before, after, _notes(before, after), tuple(differences))


def _notes(before: RunView, after: RunView) -> tuple[str, ...]:
    """How the runs themselves differ: axes, host, jobs, GPU, units."""
    was, now = (view.target.values() for view in (before, after))
    names = [*(name for name in AXES if name != "host"), "host"]
    pairs: list[tuple[str, object, object]] = [(name, was[name], now[name]) for name in names]
    pairs += [("jobs", before.jobs, after.jobs), ("GPU", before.gpu, after.gpu)]
    if before.evidence and after.evidence:
        pairs.append(("evidence", before.evidence, after.evidence))
    if before.gpu_way and after.gpu_way:  # only a run with a test on a GPU says
        pairs.append(("GPU access", before.gpu_way, after.gpu_way))
    changes = [f"different {name}: {a or '-'}, now {b or '-'}" for name, a, b in pairs if a != b]
    if others := _seconds_by_unit(before).keys() ^ _seconds_by_unit(after).keys():
        changes.append(f"{units.pluralize(len(others), 'compile unit')} in only one of the two")
    old, new = recorded_number_texts(before), recorded_number_texts(after)
    if old and new:
        same = sum(name in old and _is_same(old[name], value) for name, value in new.items())
        changes.append(f"{same} of {len(old.keys() | new.keys())} numbers of the script are equal")
    return tuple(changes)


def _compare_verdicts(before: RunView, after: RunView) -> Iterator[Difference]:
    was, now = before.word, after.word
    if was == now:
        return
    old, new = ((VERDICTS.index(v.verdict), v.tone != v.verdict) for v in (before, after))
    judgement: Judgement = "worse" if new > old else "better" if new < old else "changed"
    yield Difference("verdict", "run", was, now, judgement)


def _compare_capabilities(before: RunView, after: RunView) -> Iterator[Difference]:
    """Capabilities; not lost if the suite of the later run stated none."""
    old, new = ({c.name: c for c in view.capabilities} for view in (before, after))
    for name in sorted(old.keys() | new.keys()) if old and new else ():
        had, has = (name in side and side[name].there for side in (old, new))
        if had != has:
            was, now = (side[name].state if name in side else "-" for side in (old, new))
            yield Difference("capability", name, was, now, "worse" if had else "better")


def _archs(before: RunView, after: RunView) -> Iterator[Difference]:
    """Device code found by the audit; it is lost only for the same platform."""
    is_same = _platform(before) == _platform(after)
    for kind in ("SASS", "PTX") if before.checks and after.checks else ():
        old, new = ({*values_of(view.checks, kind.lower())} for view in (before, after))
        if old != new:
            judgement: Judgement = "worse" if old - new else "better"
            was, now = (
                " ".join(sorted(side, key=lambda arch: (len(arch.rstrip("abcdef")), arch)))
                or "none"
                for side in (old, new)
            )
            yield Difference("device code", kind, was, now, judgement if is_same else "changed")


def _platform(view: RunView) -> set[str]:
    """The platform tags of its wheels, if it has any."""
    return {wheel.path.rpartition("-")[2] for wheel in view.wheels}


def _cases(before: RunView, after: RunView) -> Iterator[Difference]:
    """Smoke cases with another outcome; a pass that became a skip is worse."""
    if not before.cases or not (after.cases or after.stage("test")):
        return
    old = {(c.classname, c.name): c.outcome for c in before.cases}
    new = {(c.classname, c.name): c.outcome for c in after.cases}
    for key, outcome in new.items():
        was = old.get(key, "-")
        failed = outcome in _FAILED and was not in _FAILED
        if failed or (was, outcome) == ("passed", "skipped"):
            yield Difference("smoke case", key[1], was, outcome, "worse")
        elif key in old and was != outcome and outcome not in _FAILED:
            yield Difference("smoke case", key[1], was, outcome, "better")
    gone, come = len(old.keys() - new.keys()), len(new.keys() - old.keys())
    if gone or come:
        judgement: Judgement = "changed" if new else "worse"  # its report cannot be read
        yield Difference("smoke case", "names", f"{gone} only then", f"{come} only now", judgement)


def _compare_script_numbers(before: RunView, after: RunView) -> Iterator[Difference]:
    """Numbers printed by scripts."""
    old, new = recorded_number_texts(before), recorded_number_texts(after)
    ran = new or any(case.name == _SCRIPT_CASE for case in after.cases)
    if old and ran:
        yield from compare_numbers(old, new)


def compare_numbers(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Difference]:
    """Numbers that differ to the last digit; one that is missing or not a number now is worse."""
    for name in [*new, *(old.keys() - new.keys())]:
        was, now = old.get(name, "-"), new.get(name, "-")
        if "-" in (was, now):
            yield Difference("number", name, was, now, "changed" if name in new else "worse")
        elif not _is_same(was, now):
            lost = math.isfinite(float(was)) and not math.isfinite(float(now))
            yield Difference("number", name, was, now, "worse" if lost else "changed")


def recorded_number_texts(view: RunView) -> dict[str, str]:
    """Numbers as text, as a float cannot represent every integer."""
    texts = dict(view.provenance).get(NUMBERS, ())
    return {name: text for name, text in texts if _NUMBER.fullmatch(text)}


def _is_same(was: str, now: str) -> bool:
    """Whether two numbers are exactly equal; nan equals nan."""
    return was.lower() == now.lower() or Decimal(was) == Decimal(now)


def _measured(before: RunView, after: RunView) -> Iterator[Difference]:
    """Times, sizes and figures of the smoke suite that differ as displayed."""
    for stage in after.stages:
        was = before.stage(stage.name)
        if was is not None and (was.state, stage.state) == ("passed", "passed"):
            yield from _compare_measurement(
                "stage", stage.name, (was.seconds, stage.seconds), units.format_seconds
            )
    old, new = _seconds_by_unit(before), _seconds_by_unit(after)
    most = sorted(old.keys() & new.keys(), key=lambda name: (-abs(new[name] - old[name]), name))
    for name in most[:_UNITS]:
        yield from _compare_measurement(
            "compile unit", name, (old[name], new[name]), units.format_seconds
        )
    sizes = (sum(wheel.size for wheel in view.wheels) or None for view in (before, after))
    yield from _compare_measurement("size", "wheel", sizes, units.format_size)
    peaks = ((view.timeline and view.timeline.peak) or None for view in (before, after))
    yield from _compare_measurement("memory", "while compiling", peaks, units.format_size)
    known = {(figure.key, figure.unit): figure.value for figure in before.figures}
    for figure in after.figures:
        if figure.group != "number":  # which stand above, in full
            subject, unit = f"{figure.subject} {figure.series}", figure.unit
            pair = known.get((figure.key, unit)), figure.value
            yield from _compare_measurement(figure.group, subject, pair, units.format_number, unit)


def _seconds_by_unit(view: RunView) -> dict[str, float]:
    """Seconds by compile unit."""
    return {unit.name: unit.seconds for unit in view.timeline.units} if view.timeline else {}


def _compare_measurement(
    kind: str,
    subject: str,
    pair: Iterable[float | None],
    shown: Callable[[float], str],
    unit: str = "",
) -> Iterator[Difference]:
    """The difference of a value measured in both runs."""
    before, after = pair
    if before is not None and after is not None and shown(before) != shown(after):
        was, now = (f"{shown(value)} {unit}".strip() for value in (before, after))
        yield Difference(kind, subject, was, now, ratio=after / before if before else None)
