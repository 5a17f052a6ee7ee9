"""Collects the failures of a run, with the relevant lines of its logs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.core.errors import AuditError, ProvisionError, SmokeError, TimeUpError
from pipelines.core.finding import Finding
from pipelines.core.hosttext import safe_block, safe_last_lines, safe_line, safe_text
from pipelines.core.paths import CHECKOUT
from pipelines.core.target import Target
from pipelines.record.results import (
    AuditResult,
    BuildResult,
    ErrorResult,
    ProvisionResult,
    ResourceResult,
    SmokeResult,
    StageRecord,
)
from pipelines.reports.model import Case
from pipelines.reports.views import Excerpt, Failure, RunView

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


def mask_cell_details(text: str, target: Target) -> str:
    """``text`` without details of the cell, host or time; exit codes are kept."""
    masked = _FOLDER.sub("", text[:_LONG])
    masked = _WHEEL.sub(r"\1.whl", masked)
    own = [*target.values().items(), ("cell", target.cell), ("id", target.id)]
    for name, value in sorted(own, key=lambda pair: -len(pair[1])):
        if value:
            masked = re.sub(rf"(?<![\w.]){re.escape(value)}(?!\w|\.\d)", f"<{name}>", masked)
    return " ".join(_VALUE.sub("#", _TAG.sub(r"\1#", masked)).split())


def first_and_last_lines(message: str) -> str:
    """The first and the last line, without the log in between."""
    lines = [line for line in message.splitlines() if line.strip()]
    return "\n".join(dict.fromkeys([*lines[:1], *lines[-1:]]))


def group_failure_causes(views: Sequence[RunView]) -> tuple[Cause, ...]:
    """The causes of failures in ``views``, the most common first; at most some forty.

    A cause that the catalogue knows is known by its rule. Any other is the class of the error with
    its words, without what only tells one cell from another: its axes, directories, hashes, times.
    """
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


_CASES = 50  # failing cases shown individually
_RESOURCES = 200
_LINKS = 10
_ABOVE, _BELOW = 6, 14  # lines of context in a log
_TAIL = 30
_FAR = 20_000_000  # lines; a log is not read further
_WIDE = 1 << 16  # bytes of a line
_PLACE = re.compile(r"([\w-]{1,80}\.py):(\d{1,6})")
# Links on pages: only https, nothing that a browser would run.
_CLAIM = re.compile(r"assert\b|AssertionError|Failed")
_LINK = re.compile(r"https://[^\s<>\"']{1,300}")
_LOGS = {"build": "build.log", "test": "smoke.log"}
#: What a stage raises when a case in it has failed.
_OF_CASES = {
    "provision": ProvisionError.__name__,
    "audit": AuditError.__name__,
    "test": SmokeError.__name__,
}


def is_stage_unfinished(stage: StageRecord) -> bool:
    """Whether the stage has no verdict: it is running, was killed, or timed out."""
    up = stage.error is not None and stage.error.kind == TimeUpError.__name__
    return up or stage.state in ("running", "interrupted")


def covered_by_cases(stage: StageRecord, cases: Sequence[Case]) -> bool:
    """Whether a failed stage only reports that some of its own ``cases`` failed."""
    kind = stage.error.kind if stage.error else ""
    judged = stage.state == "failed" and kind == _OF_CASES.get(stage.name)
    return judged and any(case.outcome in ("failed", "error") for case in cases)


def collect_failures(
    stages: Sequence[StageRecord],
    checks: Sequence[Finding],
    cases: Sequence[Case],
    target: Target,
    path: Path,
) -> tuple[Failure, ...]:
    """The failures of a run in its directory ``path``; what is unfinished has not failed.

    Stages come first, then resources, checks of the audit, and smoke cases. A stage that failed
    because of cases or checks is shown by these alone.
    """
    bad = [case for case in cases if case.outcome in ("failed", "error")]
    refused = [check for check in checks if check.failed]
    made, hint = [], ""
    for stage in stages:
        if stage.state == "passed" or is_stage_unfinished(stage):
            continue
        if stage.name == AuditResult.stage and refused:
            hint = safe_block(stage.error.hint, 1500) if stage.error else ""
        elif stage.name != SmokeResult.stage or not covered_by_cases(stage, cases):
            made.append(_stage_failure(stage, target, path))
    for stage in stages:
        # The failed one names its resource; later ones were not reached.
        if isinstance(stage.result, ProvisionResult) and stage.state == "passed":
            rows = stage.result.resources[:_RESOURCES]
            made += [_resource(row, target) for row in rows if not row.ok]
    made += [_audit_check_failure(check, hint, target) for check in refused]
    made += [_smoke_case_failure(case, target) for case in bad[:_CASES]]
    if len(bad) > _CASES:
        made.append(Failure("case", "smoke", f"{len(bad) - _CASES} more smoke cases failed"))
    return tuple(made)


def _stage_failure(stage: StageRecord, target: Target, path: Path) -> Failure:
    """The failure of a stage: the diagnosis of its log, or the log's end."""
    name, source = safe_line(stage.name, 40), _LOGS.get(stage.name, "")
    error = stage.error or ErrorResult(kind="", title="", message="")
    goes_on = error.kind == TimeUpError.__name__
    title = f"{name} will continue with the next command" if goes_on else f"{name} {stage.state}"
    hint, signature = error.hint, ""
    links: tuple[str, ...] = ()
    parts = (
        error.kind,
        first_and_last_lines(safe_block(error.message, 3000)),
        safe_block(hint, 1500),
    )
    cause = mask_cell_details("\n".join(parts), target)
    tail = safe_last_lines(stage.result.tail, _TAIL) if stage.result else []
    shown = Excerpt(f"end of {source or 'the log'}", 0, tuple(tail)) if any(tail) else None
    if isinstance(stage.result, BuildResult) and (diagnosis := stage.result.diagnosis):
        title, hint, signature = (
            safe_line(diagnosis.title, 600),
            diagnosis.hint or hint,
            safe_line(diagnosis.id, 60),
        )
        # A rule without a known cause matches many failures; the matched line distinguishes them.
        cause = (
            signature
            if diagnosis.is_cause
            else mask_cell_details(f"{signature} {title} {diagnosis.text}", target)
        )
        links = tuple(link for link in diagnosis.links[:_LINKS] if _LINK.fullmatch(link))
        shown = log_excerpt(path / source, diagnosis.line) or shown
    file = f"pipelines/recipes/{target.recipe}.yaml"
    return Failure(
        "stage",
        name,
        title,
        safe_block(error.message, 3000),
        safe_block(hint, 1500),
        signature,
        cause,
        links,
        shown,
        _in_repository(file) if target.recipe else "",
    )


def _in_repository(file: str) -> str:
    """``file`` if this repository has it, for annotations; else empty."""
    return file if CHECKOUT is not None and (CHECKOUT / file).is_file() else ""


def log_excerpt(log: Path, number: int) -> Excerpt | None:
    """The lines of ``log`` around line ``number`` (from 1); ``None`` when it has no such line.

    Lines are counted by line feeds, as the diagnosis counts them. The log is read as a stream.
    """
    if not 1 <= number <= _FAR or log.is_symlink() or not log.is_file():
        return None
    first = max(1, number - _ABOVE)
    with log.open("rb") as stream:
        for _ in range(first - 1):
            if not _read_line_start(stream.readline):
                return None
        relevant = [
            data
            for _ in range(number + _BELOW - first + 1)
            if (data := _read_line_start(stream.readline))
        ]
    if len(relevant) <= number - first:
        return None
    shown = tuple(
        safe_text(data.rstrip(b"\r\n").decode("utf-8", "replace")[:2000], 400) for data in relevant
    )
    return Excerpt(log.name, first, shown, number)


def _read_line_start(readline: Callable[[int], bytes]) -> bytes:
    """The start of the next line; the rest of it is skipped."""
    start = readline(_WIDE)
    piece = start
    while piece and not piece.endswith(b"\n"):
        piece = readline(_WIDE)
    return start


def _resource(row: ResourceResult, target: Target) -> Failure:
    message = f"found {safe_line(row.found)}, expected {safe_line(row.wanted)}"
    return Failure(
        "resource",
        ProvisionResult.stage,
        safe_line(row.id),
        message,
        cause=mask_cell_details(f"{safe_line(row.id)} {message}", target),
    )


def _audit_check_failure(check: Finding, hint: str, target: Target) -> Failure:
    message = f"found {check.text}"
    return Failure(
        "check",
        AuditResult.stage,
        f"{check.label} of the wheel",
        "\n".join(filter(None, (message, check.hint))),
        hint,
        cause=mask_cell_details(f"{check.label} {message}", target),
    )


def _smoke_case_failure(case: Case, target: Target) -> Failure:
    """A smoke case, with the end of its traceback and its place in the suite."""
    detail = safe_block(case.detail[-6000:], 6000).splitlines()[-_TAIL:]
    module = safe_line(case.classname, 200).rpartition(".")[2]
    folder = f"pipelines/smoke/{target.recipe.replace('-', '_')}"
    known = re.fullmatch(r"[\w-]{1,80}", module)
    file = _in_repository(f"{folder}/{module}.py") if known else ""
    lines = [int(n) for name, n in _PLACE.findall(case.detail) if name == f"{module}.py"]
    message = safe_line(case.message, 1500) or f"{case.outcome}, without a message"
    # An assertion belongs to its test; any other error may be common to several.
    of_test = _CLAIM.match(message) or not case.message
    test = f"{module}.{safe_line(case.name).partition('[')[0]} " if of_test else ""
    return Failure(
        "case",
        "smoke",
        safe_line(case.name),
        message,
        cause=mask_cell_details(f"{test}{message}", target),
        excerpt=Excerpt("its traceback", 0, tuple(text[:400] for text in detail))
        if any(detail)
        else None,
        file=file,
        line=lines[-1] if file and lines else 0,
    )
