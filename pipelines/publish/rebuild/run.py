"""Builds a published wheel again, of the same materials, and says whether it is the same bytes."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from pipelines.core.comparison import Comparison
from pipelines.core.console import console, log_group, say
from pipelines.core.errors import AuditError, ConfigError
from pipelines.core.finding import failure_lines
from pipelines.core.hosttext import safe_text
from pipelines.hosts.live import LiveSession
from pipelines.plan.matrix.buildplan import BuildPlan
from pipelines.publish.rebuild.published import Published, require_same_materials
from pipelines.record.materials import Materials
from pipelines.record.results import AuditResult, RebuildResult
from pipelines.record.run import Run, StageLog
from pipelines.stages.audit import audited_wheel
from pipelines.stages.build import build
from pipelines.stages.buildspec import collect_materials
from pipelines.stages.hooks import Stage
from pipelines.stages.line import AUDIT, BUILD, COLLECT, Line, make_ready
from pipelines.stages.preflight import refuse_unbuildable
from pipelines.wheels.checked import CheckedWheel, look_into_copy
from pipelines.wheels.differences import compare_wheels

_SHOWN, _MOST = 20, 1000


def run_rebuild(line: Line, published: Published) -> Path:
    """Rebuild it from scratch and compare; the run's directory.

    Raises :class:`LockError` for other materials, before the build, and :class:`AuditError` for
    other bytes.
    """
    plan = line.plan
    if not plan.recipe.reproducible:
        raise ConfigError(
            f"recipe {plan.recipe.name} no longer has reproducible: true",
            hint="Use the recipe that the wheel was built with.",
        )
    asked = {name: text for name, text in plan.target.values().items() if name != "host" and text}
    if asked != published.axes:
        raise ConfigError(
            f"{published.manifest} states {published.axes}, which is read as {asked}",
            hint="Its architectures and versions are not in the form that wcw writes to manifests.",
        )
    line.plan = replace(plan, fresh=f"{time.time_ns():x}")
    refuse_unbuildable(line.plan)
    with TemporaryDirectory(prefix="wcw-rebuild-") as room:
        theirs = None
        if published.wheel is not None:  # before anything is built: what is hostile is refused
            theirs = look_into_copy(published.wheel, Path(room))
            published = published.with_wheel(theirs.path)
            for wrong in failure_lines(theirs.findings):
                say(f"{theirs.name}: {wrong}", style="yellow")
        require_same_materials(published, collect_materials(line.plan, "", None), reached=False)
        run = line.begin_rebuild(published.sha256)
        with line.reported():
            make_ready(line, run)
            for stage in (
                Stage(
                    BUILD.name, partial(build, accept=partial(_require_same_materials, published))
                ),
                COLLECT,
                AUDIT,
                Stage(
                    RebuildResult.stage,
                    partial(_compare_rebuilt_wheel, published, theirs, Path(room)),
                ),
            ):
                line.do(stage)
    return run.path


def _require_same_materials(published: Published, today: Materials) -> None:
    """Say what is elsewhere; :class:`LockError` where it would not be built of the same."""
    for elsewhere in require_same_materials(published, today):
        say(f"note: different directory: {elsewhere}", style="yellow")


def _compare_rebuilt_wheel(
    published: Published,
    theirs: CheckedWheel | None,
    room: Path,
    _: LiveSession,
    __: BuildPlan,
    log: StageLog,
) -> RebuildResult:
    """The verdict; :class:`AuditError` unless every byte is the same."""
    wheel = _rebuilt(log.run, published, room)
    made = Comparison(
        file=wheel.name,
        published=published.sha256,
        rebuilt=wheel.sha256,
        verdict="identical" if wheel.sha256 == published.sha256 else "different",
    )
    if made.verdict == "identical":
        say(f"{wheel.name}: identical, sha256 {wheel.sha256}", style="green")
        return log.keep(RebuildResult(compared=made))
    why = "without the published wheel it is unknown where they differ"
    if theirs is not None:
        verdict, found = compare_wheels(theirs, wheel)
        made = made.model_copy(update={"verdict": verdict, "differences": tuple(found[:_MOST])})
        why = "all files are the same, but the archive differs"
        if verdict == "different":
            why = found[0].summary
        with log_group(f"Where they differ: published / rebuilt ({len(found)})"):
            for row in found[:_SHOWN]:
                console.print(f"  {safe_text(row.summary, 300)}", markup=False)
    log.keep(RebuildResult(compared=made))
    raise AuditError(
        f"{wheel.name} differs from the published wheel: sha256 {wheel.sha256}, published "
        f"{published.sha256}: {why}",
        hint="All differences are in manifest.json of this run. One of the two builds used another "
        "compiler or source, or was tampered with.",
    )


def _rebuilt(run: Run, published: Published, room: Path) -> CheckedWheel:
    """The downloaded wheel of that name."""
    audited = (run.result(AuditResult) or AuditResult()).files
    if [one.file for one in audited] != [published.file]:
        names = ", ".join(one.file for one in audited) or "nothing"
        raise AuditError(f"{published.file} was published, but the build produced {names}")
    return audited_wheel(run, published.file, room)[0]


def rebuild_verdict_json(run: Run) -> dict[str, object]:
    """The verdict of a run, for programs; ``None`` where it did not come to one."""
    result = run.result(RebuildResult)
    made = result.compared if result else None
    return {
        "schema": 1,
        "run": run.id,
        "verdict": made.verdict if made else None,
        "compared": made.model_dump(mode="json") if made else None,
    }
