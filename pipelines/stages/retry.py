"""A build that fails of something known goes on with other settings, twice at most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import IO

from pipelines.core.console import console, say
from pipelines.core.errors import BuildError
from pipelines.core.hosttext import safe_text
from pipelines.diagnosis import Change, Diagnosis, Settings, diagnose, first_error, heal
from pipelines.diagnosis.report import diagnosis_result, healed_result, render_diagnosis
from pipelines.record.results import BuildResult
from pipelines.record.run import StageLog
from pipelines.stages.hooks import Attempt, BuildHooks, Once

_TAIL = 12


class Healing(BuildHooks):
    """An attempt goes on with other settings where those that it had are known to fail."""

    def attempts(self, once: Once, log: StageLog) -> Once:
        """Until it is well, or nothing is known that could help."""

        def healed(settings: Settings, _: bool) -> Attempt:
            return until_healed(settings, once, log, alike=self.plan.divided)

        return healed


def until_healed(settings: Settings, once: Once, log: StageLog, *, alike: bool = False) -> Attempt:
    """Build until it succeeds, or no known change could help.

    ``alike``: other builds compile other units of the same wheel, so only the number of parallel
    units may change. Changes are printed, logged and recorded. Raises :class:`BuildError` with the
    first error, whatever followed.
    """
    path = log.run.path / "build.log"
    tried: list[Change] = []
    while True:
        attempt = once(settings, bool(tried))
        done = log.keep(
            attempt.result.model_copy(update={"healed": tuple(healed_result(c) for c in tried)})
        )
        if not done.exit or done.timed_out:
            return replace(attempt, result=done)
        with path.open("rb") as stream:
            above = sum(piece.count(b"\n") for piece in _pieces(stream, attempt.begin))
            found = diagnose(stream, above=above)
        change = heal(found, settings, tried) if found else None
        if change is not None and alike and not _fewer_jobs(change):
            change = None
        if change is None:
            raise _explain_build_failure(done, first_error(tried, found), log)
        tried.append(change)
        settings = change.settings
        done = log.keep(done.model_copy(update={"healed": tuple(healed_result(c) for c in tried)}))
        said = f"--- {done.story[-1]} ---"
        say(said, style="yellow")
        with path.open("ab") as stream:
            stream.write(f"\n{said}\n".encode())


def _fewer_jobs(change: Change) -> bool:
    """Whether the number of jobs, and what follows from it, is all that is changed."""
    before, after = change.before, change.settings
    unlike = {k for k, v in after.environment.items() if before.environment.get(k) != v}
    same = replace(after, jobs=before.jobs, environment=before.environment) == before
    return same and unlike <= {"MAX_JOBS"} and len(after.environment) == len(before.environment)


def _pieces(stream: IO[bytes], size: int) -> Iterator[bytes]:
    """The first ``size`` bytes, bit by bit."""
    while size and (data := stream.read(min(size, 1 << 20))):
        size -= len(data)
        yield data


def _explain_build_failure(done: BuildResult, found: Diagnosis | None, log: StageLog) -> BuildError:
    path = log.run.path / "build.log"
    code = f"the build exited with status {done.exit}"
    hint = f"Full log: {path}. Finished units are kept; invoke build continues with them."
    if found is not None:
        console.print(render_diagnosis(found, path.name))
        done = log.keep(done.model_copy(update={"diagnosis": diagnosis_result(found)}))
    known = done.diagnosis
    if known is None or not known.is_cause:  # the end of the log may say more
        return BuildError("\n".join((f"{code}:", *done.tail[-_TAIL:])), hint=hint)
    changes = f", after {len(done.healed)} changes" if done.healed else ""
    return BuildError(
        f"{code}{changes}: {safe_text(known.summary, 600)}",
        hint=f"{known.hint} {hint}",
    )
