"""Two runs side by side: what got slower, larger, or lost a capability; and what got better."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from pipelines import units
from pipelines.errors import WORSE
from pipelines.model import Model, read_data
from pipelines.reports.figures import SCRIPT
from pipelines.reports.provenance import NUMBERS
from pipelines.reports.views import VERDICTS, Better, RunView
from pipelines.target import AXES

COMPARE_FILE = Path(__file__).resolve().with_name("compare.yaml")

Judgement = Literal["worse", "better", "changed"]
_CASES = 50
_FAILED = ("failed", "error")
_NUMBER = re.compile(
    r"[-+]?(?:(?:\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(?:e[-+]?\d{1,3})?|nan|inf(?:inity)?)",
    re.IGNORECASE | re.ASCII,
)
_SCRIPT_CASE = "test_script"  # of pipelines/smoke/script


class Threshold(Model):
    """What is more than ``ratio`` times as much and more by ``difference`` has got worse."""

    ratio: Annotated[float, Field(ge=1)]
    difference: Annotated[float, Field(ge=0)]

    def passed(self, before: float, after: float) -> bool:
        """Whether ``after`` is that much more than ``before``."""
        return after > before * self.ratio and after - before > self.difference


class Thresholds(Model):
    """``compare.yaml``."""

    stage: Threshold
    unit: Threshold
    wheel: Threshold
    peak: Threshold
    figure: Threshold
    number: Threshold


@cache
def load_thresholds(path: Path = COMPARE_FILE) -> Thresholds:
    """Read the file; :class:`ConfigError` names the file and the key that is wrong."""
    return read_data(path, Thresholds)


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as it was."""

    kind: str
    subject: str
    before: str
    after: str
    judgement: Judgement
    ratio: float | None = None
    """After by before, where both are numbers."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that differs; what was compared with what stands in ``notes``."""

    before: RunView
    after: RunView
    notes: tuple[str, ...]
    differences: tuple[Difference, ...]

    @property
    def worse(self) -> tuple[Difference, ...]:
        """What got worse."""
        return tuple(d for d in self.differences if d.judgement == "worse")

    @property
    def exit_code(self) -> int:
        """0, or :data:`WORSE`."""
        return WORSE if self.worse else 0


def told(seen: Comparison) -> dict[str, Any]:
    """For programs: ``schema`` 1, the runs' names, notes, and the fields of each difference."""
    return {
        "schema": 1,
        "before": seen.before.id,
        "after": seen.after.id,
        "worse": len(seen.worse),
        "notes": list(seen.notes),
        "differences": [asdict(difference) for difference in seen.differences],
    }


def compare(before: RunView, after: RunView, thresholds: Thresholds | None = None) -> Comparison:
    """What differs between two runs, what got worse first.

    Times count only of the same host with the same jobs, GPU figures only of the same GPU, device
    code and sizes only of wheels for the same platform: of others they are shown as changed.
    """
    given = thresholds or load_thresholds()
    old, new = before.target, after.target
    same_host = (old.host, before.jobs) == (new.host, after.jobs)
    same_cell = old == new.model_copy(update={"host": old.host})
    same_platform = _platform(before) == _platform(after)
    cell = "" if same_platform else "another platform"
    cell = cell if same_cell else "another cell"
    same_gpu = before.gpu == after.gpu and (bool(after.gpu) or old.host == new.host)
    found = [
        *_verdict(before, after),
        *_capabilities(before, after),
        *_archs(before, after, same_platform),
        *_cases(before, after),
        *_times(before, after, given, same_host),
        *_sizes(before, after, given, same_host=same_host, cell=cell),
        *_figures(before, after, given.figure, same_gpu),
        *_told_numbers(before, after, given.number),
    ]
    order: tuple[Judgement, ...] = ("worse", "changed", "better")
    return Comparison(
        before,
        after,
        _notes(before, after),
        tuple(sorted(found, key=lambda d: order.index(d.judgement))),
    )


def _notes(before: RunView, after: RunView) -> tuple[str, ...]:
    """What was not the same to begin with: every axis, the host last, jobs and GPU."""
    was, now = (view.target.values() for view in (before, after))
    names = [*(name for name in AXES if name != "host"), "host"]
    pairs: list[tuple[str, object, object]] = [(name, was[name], now[name]) for name in names]
    pairs += [("jobs", before.jobs, after.jobs), ("GPU", before.gpu, after.gpu)]
    if before.evidence and after.evidence:
        pairs.append(("evidence", before.evidence, after.evidence))
    if before.gpu_way and after.gpu_way:  # a run of before this was recorded does not say
        pairs.append(("way of the GPU", before.gpu_way, after.gpu_way))
    said = [f"another {name}: {a or '-'}, now {b or '-'}" for name, a, b in pairs if a != b]
    old, new = _printed(before), _printed(after)
    if old and new:
        same = sum(name in old and _is_same(old[name], value) for name, value in new.items())
        said.append(f"{same} of {len(old.keys() | new.keys())} numbers of the script are the same")
    return tuple(said)


def _verdict(before: RunView, after: RunView) -> Iterator[Difference]:
    was, now = before.word, after.word
    if was == now:
        return
    old, new = ((VERDICTS.index(v.verdict), v.tone != v.verdict) for v in (before, after))
    judgement: Judgement = "worse" if new > old else "better" if new < old else "changed"
    yield Difference("verdict", "run", was, now, judgement)


def _capabilities(before: RunView, after: RunView) -> Iterator[Difference]:
    """Those of a run whose suite said none are not lost: it was not asked."""
    if not before.capabilities or not after.capabilities:
        return
    old = {c.name: c for c in before.capabilities}
    new = {c.name: c for c in after.capabilities}
    for name in sorted(old.keys() | new.keys()):
        a, b = old.get(name), new.get(name)
        had, has = a is not None and a.there, b is not None and b.there
        if had != has:
            judgement: Judgement = "worse" if had else "better"
            said = (a.state if a else "-", b.state if b else "-")
            yield Difference("capability", name, *said, judgement)


def _platform(view: RunView) -> set[str]:
    """The platform tags of its wheels, if it has any."""
    return {wheel.path.rpartition("-")[2] for wheel in view.wheels}


def _archs(before: RunView, after: RunView, same: bool) -> Iterator[Difference]:
    """Device code that the audit found in the wheel."""
    for kind in ("SASS", "PTX"):
        old, new = (
            {arch for check in view.checks if check.name == kind for arch in check.values}
            for view in (before, after)
        )
        if old != new and before.checks and after.checks:
            judgement: Judgement = "worse" if old - new else "better"
            if not same:
                judgement = "changed"
            was, now = (
                " ".join(sorted(side, key=lambda arch: (len(arch.rstrip("abcdef")), arch)))
                or "none"
                for side in (old, new)
            )
            yield Difference("device code", kind, was, now, judgement)


def _cases(before: RunView, after: RunView) -> Iterator[Difference]:
    """Smoke cases that say something else; a pass that became a skip shows nothing any more."""
    if not before.cases or not after.cases:
        return
    old = {(c.suite, c.name): c.outcome for c in before.cases}
    new = {(c.suite, c.name): c.outcome for c in after.cases}
    rows = []
    for key, outcome in new.items():
        was = old.get(key)
        if was == outcome or was is None or {was, outcome} <= set(_FAILED):
            if was is None and outcome in _FAILED:
                rows.append(Difference("smoke case", key[1], "-", outcome, "worse"))
            continue
        worse = outcome in _FAILED or (was == "passed" and outcome == "skipped")
        rows.append(Difference("smoke case", key[1], was, outcome, "worse" if worse else "better"))
    yield from rows[:_CASES]
    if len(rows) > _CASES:
        worst = any(row.judgement == "worse" for row in rows[_CASES:])
        yield Difference(
            "smoke case", f"{len(rows) - _CASES} more", "", "", "worse" if worst else "changed"
        )
    gone = len(old.keys() - new.keys())
    come = len(new.keys() - old.keys())
    if gone or come:
        yield Difference("smoke case", "names", f"{gone} only then", f"{come} only now", "changed")


def _times(before: RunView, after: RunView, given: Thresholds, same: bool) -> Iterator[Difference]:
    old, new = (
        {unit.name: unit.seconds for unit in view.timeline.units} if view.timeline else {}
        for view in (before, after)
    )
    note = "" if same else "another host or number of jobs"
    for stage in after.stages:
        was = before.stage(stage.name)
        if was is None or was.seconds is None or stage.seconds is None:
            continue
        if was.state != "passed" or stage.state != "passed":
            continue
        others = stage.name == "build" and old.keys() != new.keys()
        why = note or ("other units were compiled" if others else "")
        yield from _numbers(
            "stage",
            stage.name,
            was.seconds,
            stage.seconds,
            given.stage,
            shown=units.seconds,
            note=why,
        )
    for name in sorted(old.keys() & new.keys()):
        yield from _numbers(
            "compile unit", name, old[name], new[name], given.unit, shown=units.seconds, note=note
        )


def _sizes(
    before: RunView, after: RunView, given: Thresholds, *, same_host: bool, cell: str
) -> Iterator[Difference]:
    old, new = (sum(wheel.size for wheel in view.wheels) for view in (before, after))
    if old and new:
        yield from _numbers("size", "wheel", old, new, given.wheel, shown=units.size, note=cell)
    if before.timeline and after.timeline and before.timeline.peak and after.timeline.peak:
        peaks = (before.timeline.peak, after.timeline.peak)
        note = cell if same_host else "another host or number of jobs"
        yield from _numbers(
            "memory", "while compiling", *peaks, given.peak, shown=units.size, note=note
        )


def _figures(before: RunView, after: RunView, given: Threshold, same: bool) -> Iterator[Difference]:
    old = {figure.key: figure for figure in before.figures}
    for figure in after.figures:
        was = old.get(figure.key)
        if was is None or was.unit != figure.unit or figure.group == "number":
            continue

        def shown(value: float, unit: str = figure.unit) -> str:
            return f"{units.number(value)} {unit}".strip()

        yield from _numbers(
            figure.group,
            f"{figure.subject} {figure.series}",
            was.value,
            figure.value,
            given,
            shown=shown,
            better=figure.better,
            note="" if same else "another GPU",
        )


def _told_numbers(before: RunView, after: RunView, given: Threshold) -> Iterator[Difference]:
    """What scripts printed, in full; one that is not told any more is lost, whatever it meant."""
    old, new = _printed(before), _printed(after)
    ran = new or any(case.name == _SCRIPT_CASE for case in after.cases)
    for name in [*new, *(old.keys() - new.keys())] if old and ran else ():
        was, now = old.get(name, "-"), new.get(name, "-")
        if "-" in (was, now):
            yield Difference("number", name, was, now, "changed" if name in new else "worse")
        elif not _is_same(was, now):
            pair = float(was), float(now)
            found = [*_numbers("number", name, *pair, given, shown=_whole, better="neither")]
            told = found[0] if found else Difference("number", name, was, now, "changed")
            finite = all(map(math.isfinite, pair))
            worse = math.isfinite(pair[0]) and not finite  # what was a number is none now
            judgement: Judgement = "worse" if worse else "changed"
            ratio = told.ratio if finite else None
            yield replace(told, before=was, after=now, judgement=judgement, ratio=ratio)


def _printed(view: RunView) -> dict[str, str]:
    """The numbers that a script printed, as it printed them: a float has not all of an integer."""
    own = [figure for figure in view.figures if figure.group == "number"]
    told = {figure.key.removeprefix(SCRIPT): _whole(figure.value) for figure in own}
    texts = dict(dict(view.provenance).get(NUMBERS, ()))
    return told | {name: text for name, text in texts.items() if _NUMBER.fullmatch(text)}


def _is_same(was: str, now: str) -> bool:
    """Whether two numbers are the same to the last digit; nan is nan."""
    return was.lower() == now.lower() or Decimal(was) == Decimal(now)


def _whole(value: float) -> str:
    return repr(value).removesuffix(".0")


def _numbers(
    kind: str,
    subject: str,
    before: float,
    after: float,
    given: Threshold,
    *,
    shown: Callable[[float], str],
    better: Better = "lower",
    note: str = "",
) -> Iterator[Difference]:
    """A difference if it passes the threshold either way; judged if nothing speaks against it."""
    more, less = given.passed(before, after), given.passed(after, before)
    if not more and not less:
        return
    judgement: Judgement = "changed"
    if not note and better != "neither":
        judgement = "worse" if more == (better == "lower") else "better"
    ratio = after / before if before else None
    yield Difference(kind, subject, shown(before), shown(after), judgement, ratio, note)
