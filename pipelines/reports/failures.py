"""What went wrong in a run, with the lines of the log that say so."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipelines.diagnosis import load_catalogue
from pipelines.hosttext import block, line, safe, texts
from pipelines.paths import CHECKOUT
from pipelines.reports.model import Case
from pipelines.reports.read import rows
from pipelines.reports.views import Excerpt, Failure
from pipelines.run import StageRecord

_CASES = 50  # failing cases that are told one by one
_ABOVE, _BELOW = 6, 14  # lines of a log around the one that says it
_TAIL = 30
_FAR = 20_000_000  # lines; a log is not read further
_WIDE = 1 << 16  # bytes of a line
# As pipelines.diagnosis.report.summary writes it.
_SUMMARY = re.compile(r"line (\d{1,8}): (.{0,600}) \(([a-z0-9-]{1,60})\)", re.DOTALL)
_PLACE = re.compile(r"([\w-]{1,80}\.py):(\d{1,6})")
_ALL_ANSWERED = ("passed", "running")
_LOGS = {"build": "build.log", "test": "smoke.log"}


def failures(
    stages: Sequence[StageRecord], cases: Sequence[Case], recipe: str, path: Path
) -> tuple[Failure, ...]:
    """The failures of a run in its directory ``path``: stages, then checks, then smoke cases."""
    bad = [case for case in cases if case.outcome in ("failed", "error")]
    made = [_stage(stage, recipe, path) for stage in stages if stage.state not in _ALL_ANSWERED]
    made += [failure for stage in stages for failure in _within(stage)]
    made += [_case(case, recipe) for case in bad[:_CASES]]
    if len(bad) > _CASES:
        made.append(Failure("smoke", f"{len(bad) - _CASES} more smoke cases failed"))
    return tuple(made)


def _stage(stage: StageRecord, recipe: str, path: Path) -> Failure:
    detail = stage.detail
    said = line(detail.get("diagnosis"), 800)
    found = _SUMMARY.fullmatch(said)
    source = _LOGS.get(stage.name, "")
    recipe_file = f"pipelines/recipes/{recipe}.yaml" if recipe else ""
    common: dict[str, Any] = {
        "where": line(stage.name, 40),
        "title": f"{line(stage.name, 40)} {line(stage.state, 20)}",
        "message": block(detail.get("error"), 3000),
        "cure": block(detail.get("advice"), 1500),
        "file": _in_repository(recipe_file),
    }
    tail = texts(detail.get("tail"), _TAIL)
    kept = Excerpt(f"end of {source or 'the log'}", 0, tuple(tail)) if any(tail) else None
    if found is None:
        return Failure(**common, excerpt=kept)
    number, cause, signature = int(found[1]), found[2], found[3]
    known = load_catalogue().by_id.get(signature)
    common["title"] = cause
    if known is not None:
        common["cure"] = known.cure
    return Failure(
        **common,
        signature=signature,
        links=known.evidence if known is not None else (),
        excerpt=excerpt(path / source, number) or kept,
    )


def _in_repository(file: str) -> str:
    """``file`` if this is a repository that has it, for annotations; else empty."""
    return file if file and CHECKOUT is not None and (CHECKOUT / file).is_file() else ""


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


def _next(readline: Any) -> bytes:
    """The start of the next line; all of it is read, however long it is."""
    start: bytes = readline(_WIDE)
    piece = start
    while piece and not piece.endswith(b"\n"):
        piece = readline(_WIDE)
    return start


def _within(stage: StageRecord) -> list[Failure]:
    """What a stage's rows say is wrong: resources, checks of the wheel."""
    made = [
        Failure(
            line(stage.name, 40),
            line(row.get("id")),
            f"found {line(row.get('found'))}, wanted {line(row.get('wanted'))}",
        )
        for row in rows(stage.detail.get("resources"))
        if row.get("ok") is False
    ]
    wheels = rows(stage.detail.get("wheels")) if stage.name == "audit" else []
    checks = itertools.chain.from_iterable(rows(wheel.get("checks")) for wheel in wheels)
    made += [
        Failure(
            "audit",
            f"{line(check.get('name'))} of the wheel",
            f"found {line(check.get('found'))}, wanted {line(check.get('wanted'))}",
            block(check.get("detail"), 1000),
        )
        for check in checks
        if check.get("ok") is False
    ]
    return made


def _case(case: Case, recipe: str) -> Failure:
    """A smoke case, with the end of its traceback and its place in the suite."""
    detail = block(case.detail[-6000:], 6000).splitlines()[-_TAIL:]
    module = line(case.classname, 200).rpartition(".")[2]
    folder = f"pipelines/smoke/{recipe.replace('-', '_')}"
    known = re.fullmatch(r"[\w-]{1,80}", module)
    file = _in_repository(f"{folder}/{module}.py") if known else ""
    lines = [int(n) for name, n in _PLACE.findall(case.detail) if name == f"{module}.py"]
    return Failure(
        "smoke",
        line(case.name),
        line(case.message, 1500) or f"{case.outcome}, and nothing more was said",
        excerpt=Excerpt("its traceback", 0, tuple(text[:400] for text in detail))
        if any(detail)
        else None,
        file=file,
        line=lines[-1] if file and lines else 0,
    )
