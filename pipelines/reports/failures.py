"""What went wrong in a run, with the lines of the log that say so."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from pipelines.core.errors import AuditError, ProvisionError, SmokeError, TimeUpError
from pipelines.core.finding import Finding
from pipelines.core.hosttext import block, line, safe, texts
from pipelines.core.paths import CHECKOUT
from pipelines.record.results import (
    AuditResult,
    BuildResult,
    ErrorResult,
    ProvisionResult,
    ResourceResult,
    SmokeResult,
    StageRecord,
)
from pipelines.record.target import Target
from pipelines.reports.causes import ends, words
from pipelines.reports.model import Case
from pipelines.reports.views import Excerpt, Failure

_CASES = 50  # failing cases that are told one by one
_RESOURCES = 200
_LINKS = 10
_ABOVE, _BELOW = 6, 14  # lines of a log around the one that says it
_TAIL = 30
_FAR = 20_000_000  # lines; a log is not read further
_WIDE = 1 << 16  # bytes of a line
_PLACE = re.compile(r"([\w-]{1,80}\.py):(\d{1,6})")
# What a page makes a link of: nothing that a browser would run.
_CLAIM = re.compile(r"assert\b|AssertionError|Failed")
_LINK = re.compile(r"https://[^\s<>\"']{1,300}")
_LOGS = {"build": "build.log", "test": "smoke.log"}
#: What a stage raises when a case in it has failed.
_OF_CASES = {
    "provision": ProvisionError.__name__,
    "audit": AuditError.__name__,
    "test": SmokeError.__name__,
}


def unfinished(stage: StageRecord) -> bool:
    """Whether the stage has no verdict: it runs, was killed or left, or its time was up."""
    up = stage.error is not None and stage.error.kind == TimeUpError.__name__
    return up or stage.state in ("running", "interrupted")


def told_by_cases(stage: StageRecord, cases: Sequence[Case]) -> bool:
    """Whether a failed stage says only that some of ``cases``, its own, have failed."""
    kind = stage.error.kind if stage.error else ""
    judged = stage.state == "failed" and kind == _OF_CASES.get(stage.name)
    return judged and any(case.outcome in ("failed", "error") for case in cases)


def failures(
    stages: Sequence[StageRecord],
    checks: Sequence[Finding],
    cases: Sequence[Case],
    target: Target,
    path: Path,
) -> tuple[Failure, ...]:
    """The failures of a run in its directory ``path``; what is unfinished has not failed.

    Stages come first, then resources, checks of the audit, and smoke cases. A stage that failed
    because of cases or checks is told by these alone.
    """
    bad = [case for case in cases if case.outcome in ("failed", "error")]
    refused = [check for check in checks if check.failed]
    made, hint = [], ""
    for stage in stages:
        if stage.state == "passed" or unfinished(stage):
            continue
        if stage.name == AuditResult.stage and refused:
            hint = block(stage.error.hint, 1500) if stage.error else ""
        elif stage.name != SmokeResult.stage or not told_by_cases(stage, cases):
            made.append(_stage(stage, target, path))
    for stage in stages:
        # One that failed says itself which resource it was; those after it were not come to.
        if isinstance(stage.result, ProvisionResult) and stage.state == "passed":
            rows = stage.result.resources[:_RESOURCES]
            made += [_resource(row, target) for row in rows if not row.ok]
    made += [_check(check, hint, target) for check in refused]
    made += [_case(case, target) for case in bad[:_CASES]]
    if len(bad) > _CASES:
        made.append(Failure("case", "smoke", f"{len(bad) - _CASES} more smoke cases failed"))
    return tuple(made)


def _stage(stage: StageRecord, target: Target, path: Path) -> Failure:
    """A stage that did not pass: what the diagnosis of its log says, else the log's end."""
    name, source = line(stage.name, 40), _LOGS.get(stage.name, "")
    error = stage.error or ErrorResult(kind="", title="", message="")
    goes_on = error.kind == TimeUpError.__name__
    title = f"{name} goes on with the next command" if goes_on else f"{name} {stage.state}"
    hint, signature = error.hint, ""
    links: tuple[str, ...] = ()
    said = (error.kind, ends(block(error.message, 3000)), block(hint, 1500))
    cause = words("\n".join(said), target)
    tail = texts(stage.result.tail, _TAIL) if stage.result else []
    shown = Excerpt(f"end of {source or 'the log'}", 0, tuple(tail)) if any(tail) else None
    if isinstance(stage.result, BuildResult) and (found := stage.result.diagnosis):
        title, hint, signature = line(found.title, 600), found.hint or hint, line(found.id, 60)
        # A rule of no known cause fits many: then the line that it found tells them apart.
        cause = signature if found.is_cause else words(f"{signature} {title} {found.text}", target)
        links = tuple(link for link in found.links[:_LINKS] if _LINK.fullmatch(link))
        shown = excerpt(path / source, found.line) or shown
    file = f"pipelines/recipes/{target.recipe}.yaml"
    return Failure(
        "stage",
        name,
        title,
        block(error.message, 3000),
        block(hint, 1500),
        signature,
        cause,
        links,
        shown,
        _in_repository(file) if target.recipe else "",
    )


def _in_repository(file: str) -> str:
    """``file`` if this is a repository that has it, for annotations; else empty."""
    return file if CHECKOUT is not None and (CHECKOUT / file).is_file() else ""


def excerpt(log: Path, number: int) -> Excerpt | None:
    """The lines of ``log`` around line ``number`` (from 1); ``None`` when it has no such line.

    Lines are counted by line feeds, as the diagnosis counts them. The log is read as a stream.
    """
    if not 1 <= number <= _FAR or log.is_symlink() or not log.is_file():
        return None
    first = max(1, number - _ABOVE)
    with log.open("rb") as stream:
        for _ in range(first - 1):
            if not _next(stream.readline):
                return None
        kept = [
            data for _ in range(number + _BELOW - first + 1) if (data := _next(stream.readline))
        ]
    if len(kept) <= number - first:
        return None
    shown = tuple(
        safe(data.rstrip(b"\r\n").decode("utf-8", "replace")[:2000], 400) for data in kept
    )
    return Excerpt(log.name, first, shown, number)


def _next(readline: Callable[[int], bytes]) -> bytes:
    """The start of the next line; all of it is read, however long it is."""
    start = readline(_WIDE)
    piece = start
    while piece and not piece.endswith(b"\n"):
        piece = readline(_WIDE)
    return start


def _resource(row: ResourceResult, target: Target) -> Failure:
    said = f"found {line(row.found)}, wanted {line(row.wanted)}"
    return Failure(
        "resource",
        ProvisionResult.stage,
        line(row.id),
        said,
        cause=words(f"{line(row.id)} {said}", target),
    )


def _check(check: Finding, hint: str, target: Target) -> Failure:
    said = f"found {check.text}"
    return Failure(
        "check",
        AuditResult.stage,
        f"{check.label} of the wheel",
        "\n".join(filter(None, (said, check.hint))),
        hint,
        cause=words(f"{check.label} {said}", target),
    )


def _case(case: Case, target: Target) -> Failure:
    """A smoke case, with the end of its traceback and its place in the suite."""
    detail = block(case.detail[-6000:], 6000).splitlines()[-_TAIL:]
    module = line(case.classname, 200).rpartition(".")[2]
    folder = f"pipelines/smoke/{target.recipe.replace('-', '_')}"
    known = re.fullmatch(r"[\w-]{1,80}", module)
    file = _in_repository(f"{folder}/{module}.py") if known else ""
    lines = [int(n) for name, n in _PLACE.findall(case.detail) if name == f"{module}.py"]
    said = line(case.message, 1500) or f"{case.outcome}, and nothing more was said"
    # What a test claims is its own; any other error is the same wherever it strikes.
    of_test = _CLAIM.match(said) or not case.message
    test = f"{module}.{line(case.name).partition('[')[0]} " if of_test else ""
    return Failure(
        "case",
        "smoke",
        line(case.name),
        said,
        cause=words(f"{test}{said}", target),
        excerpt=Excerpt("its traceback", 0, tuple(text[:400] for text in detail))
        if any(detail)
        else None,
        file=file,
        line=lines[-1] if file and lines else 0,
    )
