"""A build that fails of something known goes on with other settings, twice at most."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from pipelines.console import console, say
from pipelines.diagnosis import Change, Diagnosis, Settings, diagnose, first_error, heal
from pipelines.diagnosis.report import render, story, summary
from pipelines.errors import BuildError
from pipelines.hosttext import safe

_TAIL = 12

#: Builds once with these settings, as a fresh attempt or not; the result, and where its log begins.
Once = Callable[[Settings, bool], tuple[dict[str, Any], int]]


def until_healed(
    settings: Settings, once: Once, log: Path, detail: dict[str, Any]
) -> dict[str, Any]:
    """Build until it is well, or nothing is known that could help; the result.

    What was changed is said, written into the log and kept in ``detail``. Raises
    :class:`BuildError` with the first error, whatever came of the changes after it.
    """
    tried: list[Change] = []
    while True:
        result, begin = once(settings, bool(tried))
        detail["healed"] = story(tried)
        if not result["exit"] or result.get("timed_out"):
            return result
        with log.open("rb") as stream:
            above = sum(piece.count(b"\n") for piece in _pieces(stream, begin))
            found = diagnose(stream, above=above)
        change = heal(found, settings, tried) if found else None
        if change is None:
            raise _failed(result, first_error(tried, found), tried, log, detail)
        tried.append(change)
        settings = change.settings
        said = f"--- {story(tried)[-1]} ---"
        say(said, style="yellow")
        with log.open("ab") as stream:
            stream.write(f"\n{said}\n".encode())


def _pieces(stream: IO[bytes], size: int) -> Iterator[bytes]:
    """The first ``size`` bytes, bit by bit."""
    while size and (data := stream.read(min(size, 1 << 20))):
        size -= len(data)
        yield data


def _failed(
    result: dict[str, Any],
    found: Diagnosis | None,
    tried: list[Change],
    log: Path,
    detail: dict[str, Any],
) -> BuildError:
    code = f"the build left with exit code {result['exit']}"
    advice = f"The whole log is {log}. Finished units are kept: invoke build goes on from them."
    if found is not None:
        console.print(render(found, log.name))
        detail["diagnosis"] = summary(found)
    if found is None or not found.is_cause:  # the end of the log may say more
        return BuildError("\n".join((f"{code}:", *detail["tail"][-_TAIL:])), advice=advice)
    healed = f", after {len(tried)} changes" if tried else ""
    return BuildError(
        f"{code}{healed}: {safe(summary(found), 600)}",
        advice=f"{found.signature.cure} {advice}",
    )
