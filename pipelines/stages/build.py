"""Ships the source to the host, builds the wheel there and follows the log."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PureWindowsPath
from typing import Annotated, Any

from pydantic import BaseModel, Field, StringConstraints, ValidationError
from rich.progress import Progress, TaskID

from pipelines.core import units
from pipelines.core.console import (
    console,
    host_line,
    log_group,
    say,
    transfer_progress,
    units_progress,
)
from pipelines.core.errors import BuildError, HostError, RemoteError, TimeUpError
from pipelines.core.hosttext import safe_line, safe_text
from pipelines.core.logs import is_verbose
from pipelines.core.model import first_problem
from pipelines.core.observer import report_units
from pipelines.diagnosis import Settings, diagnose
from pipelines.hosts.live import LiveSession
from pipelines.plan.matrix.buildplan import BuildPlan
from pipelines.plan.provisioning.thresholds import load_thresholds
from pipelines.recipe.progress import make_progress_parser
from pipelines.recipe.sourcetree import Packed
from pipelines.record.materials import Materials
from pipelines.record.results import BuildResult, HostFile, ProvisionResult, Timeline, Units
from pipelines.record.run import StageLog
from pipelines.remote import builder, files
from pipelines.remote.jobs import prune
from pipelines.stages.buildspec import (
    FUNCTIONS,
    build_environment,
    build_spec,
    collect_materials,
    job_id,
)
from pipelines.stages.detached import TAIL, Job, JobSpec, decode_log_lines, read_log_tail
from pipelines.stages.hooks import Attempt, BuildHooks, Once, requested_features
from pipelines.stages.pace import Pace, job_budget, pace_of
from pipelines.stages.toolset import list_host_toolsets, toolset_for
from pipelines.toolchain import compilecache as compile_cache

_FIGURES, _MOST = 100, 1 << 60  # of the compile cache: how many, how large
_LEFT = 200  # lines of what a reproducible build took out of its wheel
LOG = "build.log"


@dataclass(frozen=True)
class Inputs:
    """All that decides a build, and the id of its job."""

    source: Packed
    features: list[BuildHooks]
    toolsets: list[str]
    """Those of MSVC that the host has."""
    toolset: str | None
    """The one that is asked for, if its default does not do."""
    materials: Materials
    job: str


def inputs_of(
    session: LiveSession,
    plan: BuildPlan,
    source: Packed,
    provisioned: ProvisionResult | None,
    accept: Callable[[Materials], None] | None = None,
) -> Inputs:
    """What a build of ``source`` is of; ``accept`` as :func:`build` has it."""
    joined = requested_features(BuildHooks, plan)
    there = list_host_toolsets(session, plan.host)
    toolset = toolset_for(there, plan)
    more = [row for one in joined for row in one.materials(source.data, provisioned)]
    made_of = collect_materials(plan, source.sha256, provisioned, toolset, more)
    if accept is not None:
        accept(made_of)
    part = "".join(one.part(session, made_of) for one in joined)
    return Inputs(source, joined, there, toolset, made_of, job_id(plan, made_of, part))


def build(
    session: LiveSession,
    plan: BuildPlan,
    log: StageLog,
    accept: Callable[[Materials], None] | None = None,
) -> BuildResult:
    """Build on the host: the job, and the wheels there.

    The host's log streams into ``build.log`` of the run, so that it is always kept. ``accept`` gets
    the materials before anything starts, and may raise. Raises :class:`BuildError` with the log's
    last lines.
    """
    jobs, threads = job_budget(plan, session)
    with transfer_progress() as show:
        source = plan.source.pack(show)
    inputs = inputs_of(session, plan, source, log.run.result(ProvisionResult), accept)
    settings = Settings(
        jobs=jobs,
        build_root=plan.layout.build_root,
        nvcc_threads=threads,
        environment=build_environment(plan, jobs, threads),
        toolset=inputs.toolset,
        toolsets=tuple(inputs.toolsets),
    )
    begun = _record_build_start(plan, log, inputs, settings)
    with log_group(f"Build {plan.target.id}: {plan.target.archs}"):
        _say_begun(session, plan, begun)
        _prune_old_builds(session, plan, begun.job)
        spec = _spec(session, plan, begun, inputs)

        def once(now: Settings, fresh: bool) -> Attempt:
            pace = pace_of(plan, session, now.jobs)
            following = _Following(session, plan, log, pace, inputs.features, fresh=fresh)
            return following.follow(_apply_healed_settings(spec, settings, now, inputs.features))

        attempt: Once = once
        for one in inputs.features:
            attempt = one.attempts(attempt, log)
        done = attempt(settings, False).result
    _require_wheel(plan, done)
    for one in inputs.features:
        one.done(done)
    return done


def _record_build_start(
    plan: BuildPlan, log: StageLog, inputs: Inputs, settings: Settings
) -> BuildResult:
    """What the record has of it from now on."""
    begun = log.keep(
        BuildResult(
            job=inputs.job,
            directory=plan.layout.join(plan.layout.build_root, inputs.job),
            jobs=settings.jobs,
            environment=dict(settings.environment),
            source_sha256=inputs.source.sha256,
            checkout=inputs.source.checkout,
            toolset=plan.toolset.label,
            materials=inputs.materials,
        )
    )
    log.run.note(job=begun.job, source_sha256=begun.source_sha256, toolset=begun.toolset)
    return begun


def _say_begun(session: LiveSession, plan: BuildPlan, begun: BuildResult) -> None:
    planned = pace_of(plan, session, begun.jobs).planned
    about = f" about {units.format_estimate(planned)} (estimate)," if planned else ""
    where = f"{begun.directory} on {plan.host.name}"
    say(f"job {begun.job}, {begun.jobs} compile units at a time,{about} in {where}")


def _spec(
    session: LiveSession, plan: BuildPlan, begun: BuildResult, inputs: Inputs
) -> dict[str, Any]:
    """What the build there is given, once it has the source."""
    archive = _send_source(session, plan, begun, inputs.source.data)
    spec = build_spec(plan, begun.directory, archive, begun.source_sha256, begun.jobs)
    for one in inputs.features:
        spec |= one.spec(session, begun.directory)
    return spec


def _require_wheel(plan: BuildPlan, done: BuildResult) -> None:
    """Raise what speaks against an attempt that ended well as far as the host knows."""
    if done.timed_out:
        raise TimeUpError(
            f"the build was stopped after {plan.minutes or 0:g} minutes (--minutes) with "
            f"{done.units.done} of {done.units.total or '?'} units done",
            hint="Finished units are kept; the same command continues with them.",
        )
    if done.exit:
        raise BuildError(f"the build exited with status {done.exit}")
    if done.kept:
        what = "the wheel is" if plan.share is None else "the objects are"
        say(f"nothing was rebuilt: {what} from an earlier build with the same inputs")
    if plan.recipe.is_wheel and not done.wheels and plan.share is None:
        raise BuildError("the build succeeded but produced no wheel", hint="Is it a wheel project?")


def _prune_old_builds(session: LiveSession, plan: BuildPlan, job: str) -> None:
    """Remove old builds there when so little is free that the doctor warns of it."""
    limits, layout = load_thresholds(), plan.layout
    least = (limits.sandbox_disk if plan.host.capabilities.emulated else limits.host_disk).warn
    environment = PureWindowsPath(plan.building_python).parent.parent.name
    keep, size = [job, environment, PureWindowsPath(layout.marker).name], int(least * units.GIB)
    removed = session.call(
        prune.make_room, root=layout.build_root, temp=layout.temp, keep=keep, least=size
    )
    if removed:
        many = units.pluralize(len(removed), "old build or file", "old builds and files")
        say(f"{plan.host.name} had less than {least:g} GiB free: removed {many} there")


def _send_source(session: LiveSession, plan: BuildPlan, begun: BuildResult, source: bytes) -> str:
    """The archive of the source on the host; sent unless those very bytes are there."""
    session.call(files.make_dirs, path=begun.directory)
    name = f"src-{begun.source_sha256[:12]}.tar.gz"
    archive = plan.layout.join(begun.directory, name)
    if not session.has(archive, begun.source_sha256):
        with tempfile.TemporaryDirectory() as scratch:
            packed = Path(scratch) / "src.tar.gz"
            packed.write_bytes(source)
            session.put(packed, archive)
    return archive


def _apply_healed_settings(
    spec: Mapping[str, Any], before: Settings, now: Settings, joined: list[BuildHooks]
) -> dict[str, Any]:
    """The build's specification with healed settings; another root is another directory."""
    directory = now.build_root + spec["directory"].removeprefix(before.build_root)
    changed = {"environment": dict(now.environment), "toolset": now.toolset or ""}
    if now.toolset:
        for one in joined:
            changed |= one.with_toolset(spec, now.toolset)
    return {**spec, **changed, "directory": directory}


class _Ended(BaseModel):
    """What a host says a build left, as far as it is relied on."""

    exit: Annotated[int, Field(ge=-(2**32), le=2**32)]
    timed_out: bool = False
    seconds: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] = 0.0
    wheels: Annotated[tuple[HostFile, ...], Field(max_length=100)] = ()
    library: HostFile | None = None
    programs: Annotated[tuple[HostFile, ...], Field(max_length=100)] = ()
    toolset: Annotated[str, StringConstraints(pattern=r"^[\d.]{0,20}$")] = ""
    leftovers: Annotated[tuple[str, ...], Field(max_length=10_000)] = ()
    timeline: object = None
    cache: object = None

    @property
    def well(self) -> bool:
        """Whether it came to its end."""
        return not self.exit and not self.timed_out


def _read_ended(host: str, answer: Mapping[str, Any]) -> _Ended:
    try:
        return _Ended.model_validate(answer)
    except ValidationError as error:
        raise HostError(
            f"{host} sent an invalid build result: {safe_text(first_problem(error), 200)}",
            hint="Remove the job's directory there; to see where it is: invoke jobs",
        ) from None


def _read_timeline(data: object) -> Timeline | None:
    """The timeline if it makes sense; a build is as good without one."""
    try:
        return Timeline.model_validate(data) if data else None
    except ValidationError:
        return None


def _read_cache(data: object) -> dict[str, Any]:
    """The figures of the compile cache; what is no number, or none of a cache, becomes text."""
    rows = islice(data.items(), _FIGURES) if isinstance(data, dict) else ()
    return {
        safe_text(str(key), 40): value
        if isinstance(value, int | float) and abs(value) <= _MOST
        else safe_text(str(value), 200)
        for key, value in rows
        if value is not None
    }


@dataclass
class _Following:
    """One attempt of the build: its log as it comes, and what it left."""

    session: LiveSession
    plan: BuildPlan
    log: StageLog
    pace: Pace
    features: list[BuildHooks]
    fresh: bool

    def __post_init__(self) -> None:
        self.step = make_progress_parser(self.plan.recipe.progress)
        self.tail: list[str] = []
        self.units = Units()

    def follow(self, spec: Mapping[str, Any]) -> Attempt:
        """Run the build and show its log; its result, and where in build.log it begins."""
        path = self.log.run.path / LOG
        job = self._job(spec, path)
        try:
            with path.open("ab") as sink, units_progress() as progress:
                task = progress.add_task("compile units", total=None, unit="", left=self.pace)
                for line in decode_log_lines(job.follow(), sink):
                    if isinstance(line, dict):
                        return Attempt(self._ended(job, line, path, spec), job.base)
                    self._line(line, progress, task, kept=job.kept)
        except RemoteError as error:
            found = diagnose(io.BytesIO(error.message.encode()))
            raise BuildError(
                f"the build could not be run: {error.message}",
                hint=found.cause.hint if found else "Try: invoke provision",
            ) from error
        finally:
            self._keep(lost=tuple(job.lost), attempt=job.attempt)
        raise BuildError("the build log ended without a result", hint="Run the same command again.")

    def _job(self, spec: Mapping[str, Any], path: Path) -> Job:
        plan = self.plan
        secrets = compile_cache.sccache_secrets(plan.compile_cache) if spec["cache"] else {}
        return Job(
            self.session,
            self.log.run,
            JobSpec(
                spec["directory"],
                f"{plan.target.id} {plan.share}" if plan.share else plan.target.id,
                FUNCTIONS[plan.recipe.kind],
                {"spec": dict(spec)},
                secrets,
            ),
            path,
            keep=self._is_whole,
            fresh=self.fresh,
        )

    def _is_whole(self, left: dict[str, Any]) -> bool:
        """Whether a build that has ended left files that are still there as it left them."""
        rows = [*left.get("wheels", []), *left.get("objects", [])]
        read = left.get("read")
        if rows and isinstance(read, dict):
            # Headers of the host: no material tells when they change. What is at the fixed place
            # is there while something is built.
            fixed = tuple(self.plan.layout.fixed.casefold() + mark for mark in "/\\")
            outside = (path for path in read if not path.casefold().startswith(fixed))
            rows += [{"path": path, "sha256": read[path]} for path in outside]
        rows += [left["library"]] if left.get("library") else []
        return not left.get("exit", 1) and self.session.call(builder.intact_wheels, wheels=rows)

    def _keep(self, **changes: object) -> BuildResult:
        """What is known of the build now, into the record."""
        known = self.log.result
        assert isinstance(known, BuildResult)  # noqa: S101 - kept before anything is followed
        if not known.tail or self.tail:
            changes = {"tail": tuple(self.tail), "units": self.units} | changes
        return self.log.keep(known.model_copy(update=changes))

    def _ended(
        self, job: Job, answer: Mapping[str, Any], path: Path, spec: Mapping[str, Any]
    ) -> BuildResult:
        ended = _read_ended(self.plan.host.name, answer)
        self.tail = read_log_tail(path, TAIL)  # also what came before we did
        well = {**answer, "toolset": ended.toolset}
        more = [one.ended(spec, well) for one in self.features if ended.well]
        return self._keep(
            attempt=job.attempt,
            lost=tuple(job.lost),
            kept=job.kept,
            exit=ended.exit,
            timed_out=ended.timed_out,
            wheels=ended.wheels,
            library=ended.library,
            programs=ended.programs,
            leftovers=tuple(safe_line(text, 300) for text in ended.leftovers[:_LEFT]),
            timeline=_read_timeline(ended.timeline),
            cache=_read_cache(ended.cache),
            process_seconds=ended.seconds,
            **{name: value for one in more for name, value in one.items()},
        )

    def _line(self, line: str, progress: Progress, task: TaskID, *, kept: bool) -> None:
        """One line of the log: kept, counted, shown unless an earlier command has shown it."""
        self.tail.append(safe_text(line, 500))
        del self.tail[:-TAIL]
        step = self.step(line)
        if step:
            self.units = Units(done=step.done, total=step.total)
            self.pace.finished(step.done, step.total)
            report_units(step.done, step.total)
            unit = safe_text(step.unit, 40)
            progress.update(task, completed=step.done, total=step.total, unit=unit)
        if (not console.is_terminal or step) and (not kept or is_verbose()):
            host_line(line)
