"""Chooses the cause among the findings of a log, and says how certain it is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from packaging.version import InvalidVersion

from pipelines.core.versions import release_in_range
from pipelines.diagnosis.model import CONFIDENCES, Confidence, Scope, Signature

_SLOT = re.compile(r"\{(\w{1,20})(?:\|([^{}|]{0,200}))?\}")
_RELEASE = re.compile(r"[-=]{1,2}\d\S*$")
#: Ranks: of a doubtful cause, and the highest of what reads an error of a tool.
_DOUBT, _READ = 12, 20

Facts = Mapping[str, tuple[str, ...]]


def _fill_slots(text: str, values: Mapping[str, str]) -> str:
    return _SLOT.sub(lambda slot: values.get(slot[1]) or slot[2] or "", text)


@dataclass(frozen=True)
class Finding:
    """A signature at one line of a log; all text is safe to print."""

    signature: Signature
    line: int
    """Counted from 1 by line feeds, as editors and grep -n do."""
    column: int
    text: str
    below: tuple[str, ...] = ()
    """Lines that follow, down to the next compile unit."""
    unit: str = ""
    """Its compile unit, if ninja named one."""
    command: str = ""
    """The command of that unit."""
    values: Mapping[str, str] = field(default_factory=dict)
    """What its signature's cause and hint may name."""
    confidence: Confidence = "certain"

    @property
    def cause(self) -> str:
        """Why it failed."""
        return _fill_slots(self.signature.cause, self.values)

    @property
    def hint(self) -> str:
        """The next step; of a code its own."""
        return _fill_slots(_fill_slots(self.signature.hint, self.values), self.values)


@dataclass(frozen=True)
class Diagnosis:
    """The diagnosis of a log: the first real cause, and all other findings."""

    cause: Finding
    others: tuple[Finding, ...]
    """In the order of the log; at most five of one signature."""
    lines: int
    """Lines of the log, those above it included."""
    facts: Facts
    """What the log says of versions and packages."""

    @property
    def signature(self) -> Signature:
        """The signature of the cause."""
        return self.cause.signature

    @property
    def is_cause(self) -> bool:
        """Whether it is a known cause; otherwise it is the log's own words."""
        return self.signature.kind == "cause"

    @property
    def ended(self) -> Finding | None:
        """What ended the job, if that is not the cause."""
        ended = (one for one in self.others if one.signature.ends and one.line != self.cause.line)
        return next(ended, None)


def diagnose_findings(found: Sequence[Finding], lines: int) -> Diagnosis | None:
    """The diagnosis, of the findings in the order of the log; ``None`` if none of them is one.

    The cause is the first finding of the lowest rank: a known cause wherever it stands, else what
    general readers say, else what merely says that something failed.
    """
    facts = _facts(found)
    weighed = [weighed for finding in found if (weighed := _weighed(finding, found, facts))]
    if not weighed:
        return None
    cause = min(weighed, key=_cause_sort_key)
    others = tuple(finding for finding in weighed if finding is not cause)
    return Diagnosis(cause, others, lines, facts)


def _cause_sort_key(finding: Finding) -> tuple[int, int, int]:
    rank, confidence = finding.signature.order, finding.confidence
    # A doubtful cause stands behind the others, and before what only reads.
    rank = rank or _DOUBT * (confidence == "possible")
    return rank, finding.line, CONFIDENCES.index(confidence)


def _facts(found: Sequence[Finding]) -> Facts:
    facts: dict[str, tuple[str, ...]] = {}
    for finding in found:
        if finding.signature.kind == "fact":
            for name in finding.signature.pattern.groupindex:
                facts[name] = (*facts.get(name, ()), *finding.values.get(name, "").split())
    return facts


def _weighed(finding: Finding, found: Sequence[Finding], facts: Facts) -> Finding | None:
    """The finding with its confidence; ``None`` if the log shows that it is not the cause."""
    signature = finding.signature
    if signature.kind == "fact" or any(f.signature.id in signature.unless for f in found):
        return None
    # Of errors before the first failed unit the build went on.
    unit = next((f.line for f in found if f.signature.id == "unit-failed"), 0)
    if finding.line < unit and signature.kind != "cause" and signature.order <= _READ:
        return None
    known = {**facts, **{name: (value,) for name, value in finding.values.items()}}
    if signature.needs and not _is_within_scope(signature.needs, known, finding.values):
        return None
    holds = _is_within_scope(signature.scope, known, finding.values)
    if holds is False:
        return None
    lower = [*CONFIDENCES, "possible"][CONFIDENCES.index(signature.claims) + (holds is None)]
    return replace(finding, confidence=lower)


def _is_within_scope(scope: Scope, facts: Facts, values: Mapping[str, str]) -> bool | None:
    """Whether the log is within the scope; ``None`` if it does not say."""
    for name, expected in scope.items():
        if isinstance(expected, str):
            agrees = any(_within(version, expected) for version in facts.get(name, ()))
        else:
            names = {_normalise_package_name(_fill_slots(one, values)) for one in expected}
            agrees = not names.isdisjoint(map(_normalise_package_name, facts.get(name, ())))
        if name in facts and not agrees:
            return False
    return True if scope.keys() <= facts.keys() else None


def _normalise_package_name(name: str) -> str:
    """A package's name as it is compared: ``Flash_Attn-2.8.3`` is ``flash-attn``."""
    return _RELEASE.sub("", name.strip("'\"")).replace("_", "-").lower()


def _within(version: str, range_: str) -> bool:
    try:
        return release_in_range(version, range_)
    except InvalidVersion:
        return False
