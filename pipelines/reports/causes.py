"""What many runs failed of: by cause, wherever it struck, never by the stage alone.

A cause that the catalogue knows is known by its rule. Any other is the class of the error with its
words, without what only tells one cell from another: its axes, directories, hashes, times.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.record.target import Target
from pipelines.reports.views import Failure, RunView

_MOST = 40  # causes that are told
_FAILURES = 200  # of a run, that are looked at
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
    """Something that runs failed of."""

    title: str
    hint: str
    first: Failure
    """Of the first run that it struck."""
    where: tuple[str, ...]
    """The stages in which it showed itself."""
    runs: tuple[int, ...]
    """The places of the runs among those that were asked about."""


def words(text: str, target: Target) -> str:
    """``text`` without what is of the cell, the host or the moment alone; exit codes stay."""
    kept = _FOLDER.sub("", text[:_LONG])
    kept = _WHEEL.sub(r"\1.whl", kept)
    own = [*target.values().items(), ("cell", target.cell), ("id", target.id)]
    for name, value in sorted(own, key=lambda pair: -len(pair[1])):
        if value:
            kept = re.sub(rf"(?<![\w.]){re.escape(value)}(?!\w|\.\d)", f"<{name}>", kept)
    return " ".join(_VALUE.sub("#", _TAG.sub(r"\1#", kept)).split())


def ends(message: str) -> str:
    """The first and the last line: what a log's end says at length stands between them."""
    lines = [line for line in message.splitlines() if line.strip()]
    return "\n".join(dict.fromkeys([*lines[:1], *lines[-1:]]))


def causes(views: Sequence[RunView]) -> tuple[Cause, ...]:
    """What ``views`` failed of, the most common first; at most some forty."""
    found: dict[str, list[tuple[int, Failure]]] = {}
    for number, view in enumerate(views):
        for failure in view.failures[:_FAILURES]:
            found.setdefault(failure.cause or failure.title, []).append((number, failure))
    made = []
    for rows in found.values():
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
    """That a stage failed is no cause: its error says more."""
    if failure.kind != "stage" or failure.signature:
        return failure.title
    return failure.message.partition("\n")[0].strip().rstrip(":") or failure.title
