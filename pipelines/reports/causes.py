"""Groups the failures of many runs by cause, not just by stage.

A cause that the catalogue knows is known by its rule. Any other is the class of the error with its
words, without what only tells one cell from another: its axes, directories, hashes, times.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.record.target import Target
from pipelines.reports.views import Failure, RunView

_MOST = 40  # causes shown
_FAILURES = 200  # failures considered for each run
_LONG = 2000  # characters
_WHEEL = re.compile(r"\b([\w.]{1,80})-[\w.+!-]{0,200}\.whl\b")
_FOLDER = re.compile(r"(?:\b[A-Za-z]:[\\/]|\\\\|(?<![\w.:/])/)[^\s\"'<>|:]*[\\/]")
_TAG = re.compile(r"\b(cp|cu|torch|sm_|compute_)\d[\d.]*[af]?\b")
_VALUE = re.compile(
    r"\b(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{8,}\b"  # hashes and jobs; no exit code
    r"|\b\d{8}-\d{6}\b"
    r"|\b\d+ of \d+\b"
    r"|\bline \d+"
    r"|\b\d+(?:\.\d+)? ?(?:ms|s|min|minutes|seconds|hours|bytes|[KMGT]i?B|%)(?!\w)"
)


@dataclass(frozen=True, slots=True)
class Cause:
    """A common cause of failures."""

    title: str
    hint: str
    first: Failure
    """The failure in the first affected run."""
    where: tuple[str, ...]
    """The affected stages."""
    runs: tuple[int, ...]
    """Indexes of the affected runs."""


def words(text: str, target: Target) -> str:
    """``text`` without details of the cell, host or time; exit codes are kept."""
    masked = _FOLDER.sub("", text[:_LONG])
    masked = _WHEEL.sub(r"\1.whl", masked)
    own = [*target.values().items(), ("cell", target.cell), ("id", target.id)]
    for name, value in sorted(own, key=lambda pair: -len(pair[1])):
        if value:
            masked = re.sub(rf"(?<![\w.]){re.escape(value)}(?!\w|\.\d)", f"<{name}>", masked)
    return " ".join(_VALUE.sub("#", _TAG.sub(r"\1#", masked)).split())


def ends(message: str) -> str:
    """The first and the last line, without the log in between."""
    lines = [line for line in message.splitlines() if line.strip()]
    return "\n".join(dict.fromkeys([*lines[:1], *lines[-1:]]))


def causes(views: Sequence[RunView]) -> tuple[Cause, ...]:
    """The causes of failures in ``views``, the most common first; at most some forty."""
    groups: dict[str, list[tuple[int, Failure]]] = {}
    for number, view in enumerate(views):
        for failure in view.failures[:_FAILURES]:
            groups.setdefault(failure.cause or failure.title, []).append((number, failure))
    made = []
    for rows in groups.values():
        first = rows[0][1]
        made.append(
            Cause(
                _title(first),
                first.hint,
                first,
                tuple(dict.fromkeys(failure.where for _, failure in rows)),
                tuple(dict.fromkeys(number for number, _ in rows)),
            )
        )
    return tuple(sorted(made, key=lambda cause: (-len(cause.runs), cause.title))[:_MOST])


def _title(failure: Failure) -> str:
    """A title for a cause: the error rather than the failed stage."""
    if failure.kind != "stage" or failure.signature:
        return failure.title
    return failure.message.partition("\n")[0].strip().rstrip(":") or failure.title
