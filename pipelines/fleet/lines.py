"""Works as the stages do them: a cell, a share of one, its link, its test; each is a line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pipelines.buildplan import BuildPlan, Request, resolve
from pipelines.config import Config
from pipelines.errors import BuildError, ConfigError, PipelineError
from pipelines.files import write_atomic
from pipelines.fleet.drivers import Done, log_of
from pipelines.fleet.looking import Hosts
from pipelines.fleet.model import Work
from pipelines.fleet.seats import Seat, Seats, Telling, axes_of
from pipelines.hosts.live import LiveSession
from pipelines.paths import home
from pipelines.record import BuildResult, CollectResult, SmokeResult, StageResult
from pipelines.remote.facts import Facts
from pipelines.remote.inspection import tools
from pipelines.remote.jobs import follow as remote_follow
from pipelines.run import Run, StageLog
from pipelines.session.base import UnfitHostError
from pipelines.stages.build import build
from pipelines.stages.line import BUILD, PROVISION, Line, Stage, run_build, run_provision, run_test
from pipelines.units import few

#: Files of a run's jobs, by which its record knows them.
_JOBS = ("build", "smoke")


@dataclass(frozen=True)
class Order:
    """What a fleet was told to do, as far as its drivers must know it."""

    settings: Config
    folder: Path
    """The fleet's."""
    cells: Mapping[str, Mapping[str, str]]
    """Name of a cell -> its axes; the host is not one of them."""
    jobs: int | None = None
    reproducible: bool = False
    runs: dict[str, str] = field(default_factory=dict)
    """Key of a work that is done -> the directory of its run; drivers add theirs."""

    def before(self, work: Work) -> tuple[str, ...]:
        """The runs of all that ``work`` comes after; :class:`BuildError` where one lacks."""
        if lacking := [key for key in work.after if key not in self.runs]:
            raise BuildError(
                f"{work.key} comes after {few(lacking)}, of which there is no run",
                advice="The same command builds what lacks.",
            )
        return tuple(self.runs[key] for key in work.after)


class FleetLine(Line):
    """A line whose session others share; it says which run it works at, and what with."""

    def __init__(self, plan: BuildPlan, seat: Seat, hosts: Hosts, pointer: Path) -> None:
        """``pointer`` is the file that names the run for whoever goes on with it."""
        super().__init__(replace(plan, host=seat.session.host), seat.session)
        self._seat, self._hosts, self._pointer = seat, hosts, pointer

    def begin_run(self) -> Run:
        """Go on with the run that this work has on this host, or begin one."""
        facts, out = self.plan.facts, self.plan.out
        left = run_of(self._pointer, out)
        self._run = Run.take_up(out, facts, (left,) if left else ()) or Run.create(out, facts)
        write_atomic(self._pointer, self._run.path.name.encode())
        return self._run

    def do(self, stage: Stage) -> StageResult:
        """As any line; what another work has provisioned is not provisioned again."""
        if stage is BUILD:
            return super().do(Stage(BUILD.name, self._build))
        if stage is not PROVISION:
            return super().do(stage)
        with self._seat.lock:
            ready = self._seat.ready.get(axes_of(self.plan))
            if ready is not None and ready.result is not None:
                self.run.put_stage(ready)
                return ready.result
            done = super().do(stage)
            self._seat.ready[axes_of(self.plan)] = self.run.stages()[PROVISION.name]
            return done

    def _build(self, session: LiveSession, plan: BuildPlan, log: StageLog) -> StageResult:
        group = "/".join((plan.target.python, plan.recipe.api, plan.recipe.cuda))
        return build(
            session, plan, log, lambda made_of: self._hosts.agree(plan.host.name, group, made_of)
        )

    def _let_go(self, error: PipelineError) -> None:
        self._seat.ready.clear()
        if isinstance(error, UnfitHostError):
            raise error
        super()._let_go(error)


class LineErrand:
    """Implements :class:`pipelines.fleet.drivers.Errand` for a host of ``pipeline.yaml``."""

    def __init__(self, name: str, order: Order, hosts: Hosts, first: Work | None) -> None:
        """Nothing is reached yet; it will be as ``first`` needs it."""
        self.name, self._order, self._hosts, self._first = name, order, hosts, first
        self._slots = order.settings.host(name).slots
        self.seats = Seats(self._slots, order.folder, self._look)

    def plan(self, work: Work) -> BuildPlan:
        """What the work is, on this host."""
        order = self._order
        axes = {**order.cells[work.cell], "host": self.name}
        request = Request(axes=axes, jobs=order.jobs, reproducible=order.reproducible)
        if work.kind == "shard":
            request = replace(request, share=work.key.rpartition("/")[2].replace("of", "/"))
        elif work.kind == "link":
            request = replace(request, objects=order.before(work))
        return resolve(order.settings, request, events=Telling)

    def do(self, work: Work, done: Done) -> None:
        """Do it; ``done`` says how far it came, also where it raises."""
        plan = self.plan(work)
        with self.seats.taken(plan) as seat:
            line = FleetLine(plan, seat, self._hosts, self._pointer(work))
            try:
                if work.kind == "test":
                    self._make_ready(line, seat)
                    run_test(line, run=self._order.before(work)[0])
                else:
                    run_build(line)
            finally:
                if line.begun:
                    done.run = str(line.run.path)
                    line.run.close()
            self._order.runs[work.key] = done.run
            done.told |= _told(line.run, test=work.kind == "test")

    def _pointer(self, work: Work) -> Path:
        """The file that names the run of a work on this host."""
        return log_of(self._order.folder, f"{work.key}@{self.name}").with_suffix(".run")

    def _make_ready(self, line: Line, seat: Seat) -> None:
        """Provision for a test, unless that was done before."""
        with seat.lock:
            line.provisioned = seat.ready.get(axes_of(line.plan))
            if line.provisioned is None:
                run_provision(line)
            if line.provisioned is not None:
                seat.ready[axes_of(line.plan)] = line.provisioned

    def withdraw(self, work: Work) -> None:
        """End the jobs that the work's run has left on the host, if there is one."""
        out = home() / self._order.settings.out
        if (run := run_of(self._pointer(work), out)) is None:
            return
        with self.seats.taken(self.plan(work)) as seat:
            for name in _JOBS:
                job = run.job(name)
                if job is not None and job.host == self.name:
                    seat.session.call(remote_follow.cancel, directory=job.directory)

    def reach(self) -> None:
        """Connect to the host as its first work will, and look at it."""
        self._hosts.require_agreed(self.name)
        if self._first is not None:
            with self.seats.taken(self.plan(self._first)):
                return

    def survey(self) -> tuple[Facts, tuple[str, ...]]:
        """What the host says of itself, and the compute capabilities of its GPUs; reaches it."""
        if self._first is None:
            raise ConfigError(f"{self.name} fits no work of this fleet")
        plan = self.plan(self._first)
        with self.seats.taken(plan) as seat:
            facts = seat.session.whole_facts
            gpus = gpus_of(seat.session) if plan.host.capabilities.gpu else ()
        return facts, gpus

    def unblock(self) -> None:
        """Break the connections; what runs on the host goes on."""
        self.seats.unblock()

    def reachable(self) -> bool:
        """Whether the host can be reached, by a look at this moment."""
        return self.seats.reachable()

    def release(self) -> None:
        """Give the host back, unless it works."""
        self.close(stop=True)

    def close(self, *, stop: bool) -> None:
        """Hang up; ``stop``: also end what the fleet has started."""
        self.seats.close(stop=stop)

    def _look(self, plan: BuildPlan, session: LiveSession) -> None:
        self._hosts.look(self.name, session, plan.layout.build_root)


def run_of(pointer: Path, out: Path) -> Run | None:
    """The run that a pointer names, if it is there."""
    try:
        name = pointer.read_text("utf-8", "replace")
    except OSError:
        return None
    known = name == Path(name).name and (out / name / "record.sqlite").is_file()
    return Run(out / name) if known else None


def gpus_of(session: LiveSession) -> tuple[str, ...]:
    """Compute capabilities (``9.0``) of the GPUs that may be seen there, as the driver tells."""
    found, visible = session.call(tools.gpus) or [], session.host.gpu_way.visible
    chosen = [gpu for number, gpu in enumerate(found) if not visible or number in visible]
    told = [str(gpu.get("capability", "")) for gpu in chosen if isinstance(gpu, dict)]
    return tuple(text for text in told if re.fullmatch(r"\d{1,2}\.\d", text))


def _told(run: Run, *, test: bool) -> dict[str, str | int | float]:
    """What is shown of a work that is done."""
    if test:
        smoke = run.result(SmokeResult)
        return dict(smoke.outcomes) if smoke is not None else {}
    told: dict[str, str | int | float] = {}
    built, home = run.result(BuildResult), run.result(CollectResult)
    if built is not None:
        told |= {"units": built.units.total, "job": built.job, "kept": int(built.kept)}
    for file in home.files if home is not None else ():
        told |= {"file": file.path, "size": file.size, "sha256": file.sha256}
    return told
