"""What went wrong in a run, with the lines of the log that say so."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from pipelines.errors import TimeUpError
from pipelines.hosttext import block, line, safe, texts
from pipelines.paths import CHECKOUT
from pipelines.record import BuildResult, ErrorResult, ProvisionResult, ResourceResult, StageRecord
from pipelines.reports.model import Case
from pipelines.reports.views import Check, Excerpt, Failure

_CASES = 50  # failing cases that are told one by one
_RESOURCES = 200
_LINKS = 10
_ABOVE, _BELOW = 6, 14  # lines of a log around the one that says it
_TAIL = 30
_FAR = 20_000_000  # lines; a log is not read further
_WIDE = 1 << 16  # bytes of a line
_PLACE = re.compile(r"([\w-]{1,80}\.py):(\d{1,6})")
# What a page makes a link of: nothing that a browser would run.
_LINK = re.compile(r"https://[^\s<>\"']{1,300}")
_ALL_ANSWERED = ("passed", "running")
_LOGS = {"build": "build.log", "test": "smoke.log"}


def failures(
    stages: Sequence[StageRecord],
    checks: Sequence[Check],
    cases: Sequence[Case],
    recipe: str,
    path: Path,
) -> tuple[Failure, ...]:
    """The failures of a run in its directory ``path``.

    Stages come first, then resources, checks of the audit, and smoke cases.
    """
    bad = [case for case in cases if case.outcome in ("failed", "error")]
    made = [_stage(stage, recipe, path) for stage in stages if stage.state not in _ALL_ANSWERED]
    for stage in stages:
        # One that failed says itself which resource it was; those after it were not come to.
        if isinstance(stage.result, ProvisionResult) and stage.state == "passed":
            rows = stage.result.resources[:_RESOURCES]
            made += [_resource(row) for row in rows if not row.ok]
    made += [_check(check) for check in checks if not check.ok]
    made += [_case(case, recipe) for case in bad[:_CASES]]
    if len(bad) > _CASES:
        made.append(Failure("case", "smoke", f"{len(bad) - _CASES} more smoke cases failed"))
    return tuple(made)


def _stage(stage: StageRecord, recipe: str, path: Path) -> Failure:
    """A stage that did not pass: what the diagnosis of its log says, else the log's end."""
    name, source = line(stage.name, 40), _LOGS.get(stage.name, "")
    error = stage.error or ErrorResult(kind="", title="", message="")
    goes_on = error.kind == TimeUpError.__name__
    title = f"{name} goes on with the next command" if goes_on else f"{name} {stage.state}"
    cure, signature = error.advice, ""
    links: tuple[str, ...] = ()
    tail = texts(stage.result.tail, _TAIL) if stage.result else []
    shown = Excerpt(f"end of {source or 'the log'}", 0, tuple(tail)) if any(tail) else None
    if isinstance(stage.result, BuildResult) and (found := stage.result.diagnosis):
        title, cure, signature = line(found.title, 600), found.cure or cure, line(found.id, 60)
        links = tuple(link for link in found.links[:_LINKS] if _LINK.fullmatch(link))
        shown = excerpt(path / source, found.line) or shown
    file = f"pipelines/recipes/{recipe}.yaml"
    return Failure(
        "stage",
        name,
        title,
        block(error.message, 3000),
        block(cure, 1500),
        signature,
        links,
        shown,
        _in_repository(file) if recipe else "",
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


def _resource(row: ResourceResult) -> Failure:
    return Failure(
        "resource",
        ProvisionResult.stage,
        line(row.id),
        f"found {line(row.found)}, wanted {line(row.wanted)}",
    )


def _check(check: Check) -> Failure:
    return Failure(
        "check",
        "audit",
        f"{check.name} of the wheel",
        f"found {check.found}, wanted {check.wanted}",
        check.detail,
    )


def _case(case: Case, recipe: str) -> Failure:
    """A smoke case, with the end of its traceback and its place in the suite."""
    detail = block(case.detail[-6000:], 6000).splitlines()[-_TAIL:]
    module = line(case.classname, 200).rpartition(".")[2]
    folder = f"pipelines/smoke/{recipe.replace('-', '_')}"
    known = re.fullmatch(r"[\w-]{1,80}", module)
    file = _in_repository(f"{folder}/{module}.py") if known else ""
    lines = [int(n) for name, n in _PLACE.findall(case.detail) if name == f"{module}.py"]
    return Failure(
        "case",
        "smoke",
        line(case.name),
        line(case.message, 1500) or f"{case.outcome}, and nothing more was said",
        excerpt=Excerpt("its traceback", 0, tuple(text[:400] for text in detail))
        if any(detail)
        else None,
        file=file,
        line=lines[-1] if file and lines else 0,
    )
