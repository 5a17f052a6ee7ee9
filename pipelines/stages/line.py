"""The way through: the stages, in order, as a value; and what takes a plan along it."""

from __future__ import annotations

import logging
import pkgutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pipelines.core import plugins
from pipelines.core.console import say
from pipelines.core.errors import (
    BuildError,
    ConfigError,
    HostError,
    PipelineError,
    RemoteError,
    TransferError,
)
from pipelines.core.hosttext import safe_line
from pipelines.core.observer import report_stage
from pipelines.core.target import AXES
from pipelines.hosts.live import LiveSession
from pipelines.plan.matrix.buildplan import BuildPlan
from pipelines.record.results import (
    AuditResult,
    HostFacts,
    ProvisionResult,
    SkipResult,
    StageRecord,
    StageResult,
    UsedTool,
)
from pipelines.record.run import Run, StageLog, StageNotes
from pipelines.session.base import GoneHostError
from pipelines.stages.hooks import RunHooks, Stage, requested_features
from pipelines.stages.preflight import refuse_unbuildable, refuse_ungiven

_log = logging.getLogger(__name__)


#: How often one command line replaces a host that is gone.
REMADE = 3
Result = TypeVar("Result")


def _lazy_stage(name: str) -> Stage:
    """The function of that name in the module of that name, which is imported when it runs."""

    def run(session: LiveSession, plan: BuildPlan, log: StageLog) -> StageResult:
        function = pkgutil.resolve_name(f"{__package__}.{name}:{name}")
        done: StageResult = function(session, plan, log)
        return done

    return Stage(name, run)


#: The way through, in order. ``invoke build`` goes as far as the audit, ``invoke test`` to the end.
LINE = tuple(map(_lazy_stage, ("provision", "build", "collect", "audit", "test")))
PROVISION, BUILD, COLLECT, AUDIT, TEST = LINE


class Line:
    """One plan on its way: its session, its run, and whether its host is ready."""

    def __init__(self, plan: BuildPlan, session: LiveSession) -> None:
        self.plan = plan
        self.session = session
        self.provisioned: StageRecord | None = None
        """What provisioning left, once it was done in this process."""
        self._run: Run | None = None
        self._remade = 0
        self._unreported: list[dict[str, Any]] | None = None
        """The files of a run that was not reported yet."""

    @property
    def run(self) -> Run:
        """The run of this process, or the latest: of the plan's cell if there is one."""
        if self._run is None:
            self._run = Run.latest_of(self.plan.out, self.plan.target)
        return self._run or Run.open(self.plan.out)  # another cell's, for whoever refuses it

    @property
    def begun(self) -> bool:
        """Whether this process has a run of the plan's cell."""
        return self._run is not None

    def open_run(self, name: str) -> None:
        """Go on with a run of an earlier command: a name below ``out``, or a run's directory."""
        self._run = Run.find(self.plan.out, name)

    def begin_run(self) -> Run:
        """Begin a run, or go on with one of the same order that was cut off in its build."""
        self.tell()  # of a run before this one
        facts = self.plan.facts
        self._run = Run.take_up(self.plan.out, facts) or Run.create(self.plan.out, facts)
        for what, origin in facts.taken_from.items():
            if origin != plugins.BUILT_IN:
                say(f"{what}: {origin}")
        return self._run

    def begin_rebuild(self, published: str) -> Run:
        """Begin a run that builds a wheel of that sha256 again; none that was cut off goes on."""
        self.tell()
        facts = self.plan.facts.model_copy(update={"rebuilds": published})
        self._run = Run.create(self.plan.out, facts)
        return self._run

    def do(self, stage: Stage) -> StageResult:
        """Run one stage and record it; again if the host was gone and has been replaced."""

        def once() -> StageResult:
            report_stage(stage.name)
            _log.info("%s: stage %s", self.run.id, stage.name)
            with self.run.stage(stage.name) as log:
                return stage.run(self.session, self.plan, log)

        return self.on_a_host(once, lambda: self._ready_again(stage))

    def on_a_host(
        self, work: Callable[[], Result], ready: Callable[[], object] = lambda: None
    ) -> Result:
        """Do some work; again on the next host if this one is gone, unless that was too often.

        ``ready`` prepares that one. Other errors pass through.
        """
        while True:
            try:
                return work()
            except (HostError, TransferError, RemoteError) as error:
                self._let_go(error)
            ready()

    def _let_go(self, error: PipelineError) -> None:
        """Leave a host that is gone, for the next use to have another; else raise its error."""
        gone = isinstance(error, GoneHostError) or self.plan.host.is_gone()
        if not gone or self._remade == REMADE:
            raise error
        self._remade += 1
        say(f"{error.message}: continuing in a new one", style="yellow")
        try:
            self.session.close()
        except PipelineError as second:
            _log.warning("%s", second.message)
            raise error from second  # the first error is the one to tell
        self.provisioned = None
        if self._run is not None:
            said = safe_line(error.message, 500)
            self._run.note(remade=(*self._run.facts().remade, said))

    def _ready_again(self, stage: Stage) -> None:
        """Prepare the host that replaced another for ``stage``."""
        if stage is not PROVISION:
            self.do(PROVISION)
            self.provisioned = self.run.stages()[PROVISION.name]
        if stage is COLLECT:  # the wheel was still there
            self.do(BUILD)

    @contextmanager
    def reported(self) -> Iterator[None]:
        """Whatever becomes of the stages, the reports and the manifest tell of it."""
        from pipelines.reports.write import write_run_reports
        from pipelines.stages.manifest import write_manifest

        run = self.run
        try:
            yield
        except BaseException:
            self._unreported = []
            try:
                write_run_reports(run)
                write_manifest(run)
            except PipelineError as error:  # the first error is the one to tell
                say(f"the reports could not be written either: {error.message}", style="red")
            raise
        write_run_reports(run)
        self._unreported = write_manifest(run)

    def tell(self) -> None:
        """Say how the run stands: once, however many commands have worked at it."""
        rows, self._unreported = self._unreported, None
        if rows is None:
            return
        from pipelines.reports.write import announce_outcome
        from pipelines.stages.manifest import print_files

        for wheel in sorted((self.run.path / "wheels").glob("*.whl")):
            say(str(wheel), style="bold")
        announce_outcome(self.run)
        if rows:
            say(f"run {self.run.id}", style="bold")
            print_files(rows)

    def close(self) -> None:
        """Leave the host as it was found, and the run to others."""
        try:
            self.session.close()
        finally:
            if self._run is not None:
                self._run.close()


def run_provision(line: Line, *, dry_run: bool = False, repair: bool = False) -> None:
    """Bring the host into the desired state, or only show what would change.

    ``repair``: verify every byte.
    """
    from pipelines.stages.provision import provision, show_changes

    refuse_ungiven(line.plan)
    if dry_run:
        show_changes(line.session, line.plan, repair=repair)
        return
    started, began, notes = time.time(), time.monotonic(), StageNotes()
    result = line.on_a_host(lambda: provision(line.session, line.plan, notes, repair=repair))
    line.provisioned = StageRecord(
        name=PROVISION.name,
        state="passed",
        started=started,
        seconds=time.monotonic() - began,
        result=result,
    )


def run_build(line: Line) -> Path:
    """Provision what is missing, build, collect, audit; the run's directory.

    For a shard the objects of its compile units are downloaded.
    """
    if line.plan.given is not None:
        raise ConfigError(
            f"--wheel {line.plan.given.requested} is built already: there is nothing to build",
            hint="Omit 'build': invoke test --wheel is enough.",
        )
    if line.plan.divided or line.plan.recipe.strategy == "build":
        refuse_unbuildable(line.plan)
    joined = requested_features(RunHooks, line.plan)
    for one in joined:
        one.begin()
    run = line.begin_run()
    last = TEST if line.plan.share is None else AUDIT  # of a share there is no wheel
    with line.reported():
        if not any(one.instead(line.do) for one in joined):
            for stage in LINE[: LINE.index(last)]:
                if stage is not PROVISION:
                    line.do(stage)
                else:
                    make_ready(line, run)
    return run.path


def run_test(line: Line, *, run: str | None = None) -> Path:
    """Smoke-test the wheel of ``run``, of this process' run, or of the latest; its directory."""
    if not line.plan.recipe.is_wheel:
        raise ConfigError(
            f"{line.plan.recipe.name} builds no wheel, so there is nothing to install and test",
            hint="Omit 'test'; the build's output is in the run's directory.",
        )
    if run is not None:
        line.open_run(run)
    this = line.run
    require_same_target(line.plan, this)
    this.hold()  # so that it is not removed meanwhile; two commands may test one run
    if (skipped := this.result(SkipResult)) is not None:
        say(f"nothing to test: {skipped.skipped}", style="yellow")
        return this.path
    require_audited(this)
    if line.provisioned is None:
        run_provision(line)
    with line.reported():
        line.do(TEST)
    return this.path


def make_ready(line: Line, run: Run) -> None:
    """Provision unless that was done before in this process; note what is built with."""
    if line.provisioned is None:
        line.do(PROVISION)
        line.provisioned = run.stages()[PROVISION.name]
    else:
        run.put_stage(line.provisioned)
    host = HostFacts.of(line.session.facts, line.plan.host.origin)
    run.note(host=host, tools=_used(line))


def _used(line: Line) -> dict[str, UsedTool]:
    """The tools of the lock that are built with, each with the sha256 that was computed of it."""
    done = line.provisioned.result if line.provisioned is not None else None
    rows = done.resources if isinstance(done, ProvisionResult) else ()
    computed = {tool: sha256 for row in rows for tool, sha256 in row.sha256.items()}
    lock, names = line.plan.cache.lock, (n for one in line.plan.wanted for n in one.uploads)
    return {n: UsedTool(version=lock.tools[n].version, sha256=computed.get(n)) for n in names}


def require_audited(run: Run) -> None:
    """Refuse a run that has no wheel which the audit let pass."""
    if share := run.facts().share:
        raise BuildError(
            f"run {run.id} is shard {share} and has no wheel",
            hint="Link all shards with invoke build --objects, or name another run with --run.",
        )
    state = run.stages().get(AUDIT.name)
    if state is None or state.state != "passed" or not isinstance(state.result, AuditResult):
        raise BuildError(f"run {run.id} has no wheel that passed", hint="Type: invoke build")


def require_same_target(plan: BuildPlan, run: Run, again: str = "") -> None:
    """Refuse a run of something else than what was asked for; ``again``: what to type instead."""
    made = run.facts().target.values()
    for name, asked in plan.target.values().items():
        if name != "host" and made[name] != asked:
            flag = (AXES[name].flag or name).replace("_", "-")
            test = "test --archs '{made}'" if name == "archs" else "build --{flag} '{asked}' test"
            again = again or f"invoke {test}"
            raise ConfigError(
                f"run {run.id} is for {name} {made[name] or None}, not {asked or None}",
                hint=f"Type: {again.format(flag=flag, asked=asked, made=made[name])}",
            )
