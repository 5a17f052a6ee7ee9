"""How the tasks of a fleet are done at one host: the stages, in sessions that tasks share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pipelines.core.errors import BuildError, PipelineError
from pipelines.core.files import write_atomic
from pipelines.core.paths import project_dir
from pipelines.core.units import join_first
from pipelines.fleet.checks import HostChecks
from pipelines.fleet.model import Details, Task
from pipelines.fleet.sessions import Notices, Sessions, SharedSession, session_axes
from pipelines.fleet.workers import Result, log_of
from pipelines.hosts.live import LiveSession, visible_gpu_capabilities
from pipelines.plan.config.model import Config
from pipelines.plan.matrix.buildplan import BuildPlan, Request, resolve_build_plan
from pipelines.record.results import BuildResult, CollectResult, SmokeResult, StageResult
from pipelines.record.run import Run, StageLog
from pipelines.remote.facts import Facts
from pipelines.remote.jobs import follow as remote_follow
from pipelines.session.base import UnfitHostError
from pipelines.stages.build import build
from pipelines.stages.hooks import Stage
from pipelines.stages.line import BUILD, PROVISION, Line, run_build, run_provision, run_test

#: Files of a run's jobs, by which its record knows them.
_JOBS = ("build", "smoke")


@dataclass(frozen=True)
class FleetPlan:
    """What a fleet is to do, as far as its executors must know it."""

    settings: Config
    folder: Path
    """The fleet's."""
    cells: Mapping[str, Mapping[str, str]]
    """Name of a cell -> its axes; the host is not one of them."""
    jobs: int | None = None
    reproducible: bool = False
    runs: dict[str, str] = field(default_factory=dict)
    """Key of a task that is done -> the directory of its run; executors add theirs."""

    def before(self, task: Task) -> tuple[str, ...]:
        """The runs of all that ``task`` comes after; :class:`BuildError` where one is missing."""
        if missing := [key for key in task.after if key not in self.runs]:
            raise BuildError(
                f"{task.key} comes after {join_first(missing)}, which has no run",
                hint="The same command builds what is missing.",
            )
        return tuple(self.runs[key] for key in task.after)


class FleetLine(Line):
    """A line whose session others share; it names its run for whoever resumes it."""

    def __init__(
        self, plan: BuildPlan, shared: SharedSession, checks: HostChecks, pointer: Path
    ) -> None:
        """``pointer`` is the file that names the run."""
        super().__init__(replace(plan, host=shared.session.host), shared.session)
        self._shared, self._checks, self._pointer = shared, checks, pointer

    def begin_run(self) -> Run:
        """Resume the run that this task has on this host, or begin one."""
        facts, out = self.plan.facts, self.plan.out
        left = run_of(self._pointer, out)
        self._run = Run.take_up(out, facts, (left,) if left else ()) or Run.create(out, facts)
        write_atomic(self._pointer, self._run.path.name.encode())
        return self._run

    def do(self, stage: Stage) -> StageResult:
        """As any line; what another task has provisioned is not provisioned again."""
        if stage is BUILD:
            return super().do(Stage(BUILD.name, self._build))
        if stage is not PROVISION:
            return super().do(stage)
        with self._shared.lock:
            ready = self._shared.ready.get(session_axes(self.plan))
            if ready is not None and ready.result is not None:
                self.run.put_stage(ready)
                return ready.result
            done = super().do(stage)
            self._shared.ready[session_axes(self.plan)] = self.run.stages()[PROVISION.name]
            return done

    def _build(self, session: LiveSession, plan: BuildPlan, log: StageLog) -> StageResult:
        group = "/".join((plan.target.python, plan.recipe.api, plan.recipe.cuda))
        return build(
            session, plan, log, lambda made_of: self._checks.agree(plan.host.name, group, made_of)
        )

    def _let_go(self, error: PipelineError) -> None:
        self._shared.ready.clear()
        if isinstance(error, UnfitHostError):
            raise error
        super()._let_go(error)


class HostExecutor:
    """Implements :class:`pipelines.fleet.workers.Executor` for a host of ``pipeline.yaml``."""

    def __init__(self, name: str, plan: FleetPlan, checks: HostChecks, first: Task) -> None:
        """Nothing is reached yet; it will be as ``first`` needs it."""
        self.name, self._plan, self._checks, self._first = name, plan, checks, first
        self.sessions = Sessions(plan.settings.host(name).slots, plan.folder, self._look)

    def plan(self, task: Task) -> BuildPlan:
        """What the task is, on this host."""
        plan = self._plan
        axes = {**plan.cells[task.cell], "host": self.name}
        request = Request(axes=axes, jobs=plan.jobs, reproducible=plan.reproducible)
        if task.kind == "shard":
            request = replace(request, share=task.key.rpartition("/")[2].replace("of", "/"))
        elif task.kind == "link":
            request = replace(request, objects=plan.before(task))
        return resolve_build_plan(plan.settings, request, events=Notices)

    def do(self, task: Task, result: Result) -> None:
        """Do it; ``result`` says how far it came, also where it raises."""
        plan = self.plan(task)
        with self.sessions.shared(plan) as shared:
            line = FleetLine(plan, shared, self._checks, self._pointer(task))
            try:
                if task.kind == "test":
                    self._make_ready(line, shared)
                    run_test(line, run=self._plan.before(task)[0])
                else:
                    run_build(line)
            finally:
                if line.begun:
                    result.run = str(line.run.path)
                    line.run.close()
            self._plan.runs[task.key] = result.run
            result.details |= _task_details(line.run, test=task.kind == "test")

    def _pointer(self, task: Task) -> Path:
        """The file that names the run of a task on this host."""
        return log_of(self._plan.folder, f"{task.key}@{self.name}").with_suffix(".run")

    def _make_ready(self, line: Line, shared: SharedSession) -> None:
        """Provision for a test, unless that was done before."""
        with shared.lock:
            line.provisioned = shared.ready.get(session_axes(line.plan))
            if line.provisioned is None:
                run_provision(line)
            if line.provisioned is not None:
                shared.ready[session_axes(line.plan)] = line.provisioned

    def withdraw(self, task: Task) -> None:
        """End the jobs that the task's run has left on the host, if there is one."""
        out = project_dir() / self._plan.settings.out
        if (run := run_of(self._pointer(task), out)) is None:
            return
        with self.sessions.shared(self.plan(task)) as shared:
            for name in _JOBS:
                job = run.job(name)
                if job is not None and job.host == self.name:
                    shared.session.call(remote_follow.cancel, directory=job.directory)

    def reach(self) -> None:
        """Connect to the host as its first task will, and look at it."""
        self._checks.require_agreed(self.name)
        with self.sessions.shared(self.plan(self._first)):
            return

    def survey(self) -> tuple[Facts, tuple[str, ...]]:
        """What the host says of itself, and the compute capabilities of its GPUs; reaches it."""
        plan = self.plan(self._first)
        with self.sessions.shared(plan) as shared:
            facts = shared.session.whole_facts
            gpus = visible_gpu_capabilities(shared.session) if plan.host.capabilities.gpu else ()
        return facts, gpus

    def unblock(self) -> None:
        """Break the connections; what runs on the host goes on."""
        self.sessions.unblock()

    def reachable(self) -> bool:
        """Whether the host can be reached, by a look at this moment."""
        return self.sessions.reachable()

    def close(self, *, stop: bool) -> None:
        """Hang up; ``stop``: also end what the fleet has started."""
        self.sessions.close(stop=stop)

    def _look(self, plan: BuildPlan, session: LiveSession) -> None:
        self._checks.look(self.name, session, plan.layout.build_root)


def run_of(pointer: Path, out: Path) -> Run | None:
    """The run that a pointer names, if it is there."""
    try:
        name = pointer.read_text("utf-8", "replace")
    except OSError:
        return None
    known = name == Path(name).name and (out / name / "record.sqlite").is_file()
    return Run(out / name) if known else None


def _task_details(run: Run, *, test: bool) -> Details:
    """What is shown of a task that is done."""
    if test:
        smoke = run.result(SmokeResult)
        return dict(smoke.outcomes) if smoke is not None else {}
    found: Details = {}
    built, downloaded = run.result(BuildResult), run.result(CollectResult)
    if built is not None:
        found |= {"units": built.units.total, "job": built.job, "kept": int(built.kept)}
    for file in downloaded.files if downloaded is not None else ():
        found |= {"file": file.path, "size": file.size, "sha256": file.sha256}
    return found
