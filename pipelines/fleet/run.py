"""``invoke build --fleet``: from what was asked for to its tasks, ledger and scheduler."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.core import errors, units
from pipelines.core.console import console, say
from pipelines.core.errors import PipelineError, StorageError
from pipelines.core.files import disk_errors, sha256_of
from pipelines.core.hosttext import safe_line
from pipelines.core.paths import project_dir
from pipelines.fleet import report
from pipelines.fleet.checks import HostChecks, Survey, survey_hosts
from pipelines.fleet.executor import FleetPlan, HostExecutor
from pipelines.fleet.history import fleet_state
from pipelines.fleet.ledger import Ledger
from pipelines.fleet.model import Span, Task, TaskEntry
from pipelines.fleet.policy import Limits
from pipelines.fleet.scheduler import Scheduler, Summary
from pipelines.fleet.tasks import Cells, plan_hosts, tasks_of
from pipelines.fleet.terminal import LiveView
from pipelines.fleet.workers import HostWorker, HostWorkers
from pipelines.plan.config.model import Config
from pipelines.plan.matrix.buildplan import Request
from pipelines.plan.matrix.hostfacts import HostFacts
from pipelines.plan.matrix.plan import Plan
from pipelines.recipe.model import Recipe
from pipelines.recipe.origin import PathSource
from pipelines.recipe.sourcetree import SourceTree
from pipelines.record.results import AuditResult, CollectResult, SkipResult
from pipelines.record.run import Run
from pipelines.record.shards import shards_of
from pipelines.remote.locks import claim
from pipelines.stages.dryrun import NOTHING
from pipelines.stages.line import require_audited
from pipelines.toolchain.lock import Cache, load_lock

#: Seconds between two drawings of the view, and how often as long as one of them takes.
_EVERY, _PART = 0.5, 30.0


@dataclass(frozen=True)
class FleetRequest:
    """What was typed, and how a plan is made of it for a host."""

    settings: Config
    request: Request
    """Its axes may have several values each, as for ``invoke plan``."""
    plan: Callable[[str, HostFacts | None], Plan]
    """The cells on a host of that name, with what is known of it."""
    hosts: tuple[str, ...] = ()
    select: str = ""
    test: bool = False
    """Whether every wheel is tested as well."""

    def hash_of(self, recipe: Recipe) -> str:
        """Of what is built, and from what: the same command finds its fleet by it, on any hosts.

        What was done with another recipe, lock or source is not a part of this fleet.
        """
        lock, source = load_lock(), ""
        if isinstance(recipe.source, PathSource):
            source = SourceTree(recipe, Cache(lock)).pack().sha256
        values = {
            "recipe": recipe.model_dump(mode="json"),
            "lock": lock.model_dump(mode="json"),
            "source": source,
            "axes": dict(sorted(self.request.axes.items())),
            "select": self.select,
            "test": self.test,
            "jobs": self.request.jobs,
            "shards": self.request.shards,
            "reproducible": self.request.reproducible,
            "default": self.settings.default.model_dump(mode="json"),
        }
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def cells(self, names: Sequence[str], known: Survey) -> Cells:
        """The tasks on these hosts, by what is known of them."""
        hosts = {name: self.settings.host(name) for name in names}
        shards = None if self.request.shards is None else shards_of(self.request.shards)
        plans = plan_hosts(hosts, known.facts, self.plan)
        return tasks_of(plans, known.machines, test=self.test, shards=shards)


class FleetError(PipelineError):
    """Tasks of a fleet were not done. It exits with the worst of their exit codes."""

    title = "fleet"

    def __init__(self, message: str, *, hint: str, exit_code: int) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code


def show_fleet(request: FleetRequest) -> None:
    """Say what :func:`run_fleet` would begin with; no host is reached and nothing is recorded."""
    cells = request.cells(request.settings.fleet_hosts(request.hosts), Survey())
    _say_left_out(cells)
    for task in cells.tasks:
        say(f"{task.key}: {units.join_first(task.hosts)}")
    if request.request.shards == "auto":
        say("the number of shards is known once the hosts have been asked", "dim")
    say(NOTHING, style="green")


def run_fleet(request: FleetRequest) -> Path:
    """Build the cells on the hosts of the fleet until nothing is left to do; its directory.

    An unfinished fleet of the same request is resumed. Raises :class:`FleetError` if tasks failed
    or were left, :class:`ConfigError` if no host fits, or another process is running it.
    """
    names = request.settings.fleet_hosts(request.hosts)
    cells = request.cells(names, Survey())  # refuses what cannot be, before anything is reached
    out, order = project_dir() / request.settings.out, request.hash_of(cells.recipe)
    ledger = open_ledger(out, order)
    try:
        _say_left_out(cells)
        return _execute_fleet(request, names, cells, ledger)
    finally:
        ledger.close()


def _say_left_out(cells: Cells) -> None:
    for why in dict.fromkeys(cells.left_out.values()):
        left_out = [name for name, reason in cells.left_out.items() if reason == why]
        say(f"left out: {units.join_first(left_out)}: {safe_line(why, 500)}", style="yellow")


def open_ledger(out: Path, order: str) -> Ledger:
    """The fleet of that order, found or begun, and held."""
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        # Of two that begin at the same moment the second finds the fleet of the first.
        with claim(out / ".fleets", patience=30):
            ledger = Ledger.find(out, order, lambda why: say(f"skipped: {why}", style="yellow"))
            if ledger is None:
                return Ledger.create(out, order)
            say(f"resuming {ledger.path.name}", style="bold")
            try:
                ledger.hold()
            except BaseException:
                ledger.close()
                raise
            return ledger


def _execute_fleet(
    request: FleetRequest, names: Sequence[str], cells: Cells, ledger: Ledger
) -> Path:
    """Look at the hosts, have the ledger know what is to be done, do it, say how it went."""
    settings, folder = request.settings, ledger.path
    for key, why in redo_lost(ledger, time.time()).items():
        say(f"{key} is built again: {why}", style="yellow")
    plan = FleetPlan(
        settings,
        folder,
        cells.axes,
        jobs=request.request.jobs,
        reproducible=request.request.reproducible,
        runs={one.key: one.run for one in ledger.attempts() if one.outcome == "done" and one.run},
    )
    checks = HostChecks(settings.fleet, folder, names)
    executors = {}
    for name in names:
        if first := next((task for task in cells.tasks if name in task.hosts), None):
            executors[name] = HostExecutor(name, plan, checks, first)
    finished = False
    try:
        say(f"checking {units.pluralize(len(executors), 'host')}")
        known = survey_hosts(settings, {name: one.survey for name, one in executors.items()})
        for name, error in known.left_out.items():
            say(f"{name} is left out: {error.message}. {error.hint}", style="yellow")
            executors.pop(name).close(stop=False)
        if not executors:
            raise next(iter(known.left_out.values()))
        for name, why in known.aside.items():
            say(f"{name} is set aside: {why}", style="yellow")
        tasks = request.cells(tuple(executors), known).tasks
        ledger.put(tasks, known.machines.values(), time.time())
        counts = (len({task.cell for task in tasks}), "cell"), (len(tasks), "task")
        what, hosts = ", ".join(units.pluralize(*one) for one in counts), len(known.machines)
        say(f"{what} on {units.pluralize(hosts, 'host')}: {folder}", style="bold")
        workers = {name: HostWorker(name, one, folder) for name, one in executors.items()}
        summary = _schedule(ledger, workers, settings)
        finished = True
    except KeyboardInterrupt:
        say(
            f"Jobs continue on the hosts: the same command resumes {folder.name}, "
            "invoke fleet shows it.",
            style="yellow",
        )
        raise
    finally:
        for executor in executors.values():
            executor.close(stop=finished)
    say(f"{report.write_fleet_report(ledger)}", style="bold")
    _say_end(ledger, summary)
    return folder


def _schedule(ledger: Ledger, workers: Mapping[str, HostWorker], settings: Config) -> Summary:
    """Run until nothing is left to do, and show it; :class:`StorageError` for our own disk."""
    pool = HostWorkers(workers)
    next_view = 0.0

    def show() -> None:
        nonlocal next_view
        began = time.monotonic()
        progress = {name: one.progress() for name, one in workers.items()}
        view.update(fleet_state(ledger, progress))
        ended = time.monotonic()
        next_view = ended + max(_EVERY, _PART * (ended - began))

    def look() -> None:
        if broken := next((one.broken for one in workers.values() if one.broken), None):
            raise StorageError(
                broken.message,
                hint="Free some space here; jobs on the hosts continue, and the same command "
                "finds it again.",
            )
        if time.monotonic() >= next_view:
            show()

    try:
        limits = Limits(grace=settings.fleet.wait_minutes * 60)
        scheduler = Scheduler(ledger, pool, limits)
        with LiveView(console, ledger) as view:
            summary = scheduler.run(look)
            show()  # what came last
    finally:
        pool.close()
    return summary


def _say_end(ledger: Ledger, summary: Summary) -> None:
    """Say how it went; :class:`FleetError` unless all of it is done."""
    counts = ", ".join(f"{many} {state}" for state, many in sorted(summary.tasks.items()))
    say(f"{ledger.path.name}: {counts}", style="green" if summary.complete else "yellow")
    if summary.complete:
        return
    bad = [one for one in ledger.tasks() if one.state != "done"]
    named = units.join_first([f"{one.task.key} ({one.state})" for one in bad])
    raise FleetError(
        f"{len(bad)} of {sum(summary.tasks.values())} tasks are not done: {named}"
        + (f"; {summary.stuck}" if summary.stuck else ""),
        hint="invoke fleet shows why. "
        + (
            "To repeat a task: invoke fleet retry TASK, then the same command, which otherwise "
            "starts a new fleet."
            if ledger.fact("ended")
            else "The same command resumes what can be done."
        ),
        exit_code=exit_code_of(bad),
    )


def exit_code_of(bad: Sequence[TaskEntry]) -> int:
    """The exit code for these unfinished tasks: the worst of their errors.

    Without errors that of an interruption if tasks were cancelled, else that of hosts.
    """
    states = {one.state for one in bad}
    cancelled = "cancelled" in states and states <= {"cancelled", "blocked"}
    nothing = errors.INTERRUPTED if cancelled else errors.HostError.exit_code
    classes = [getattr(errors, one.error.kind, None) for one in bad if one.error]
    known = [
        one if isinstance(one, type) and issubclass(one, PipelineError) else PipelineError
        for one in classes
    ]
    return max((one.exit_code for one in known), default=nothing)


def redo_lost(ledger: Ledger, at: float) -> dict[str, str]:
    """Repeat finished tasks whose results are gone: key -> what is wrong.

    The ledger is held. A shard is only checked until its link is done.
    """
    entries = ledger.tasks()
    attempts = {one.key: one for one in ledger.attempts()}
    lost: dict[str, str] = {}
    for shards in (False, True):
        undone = [one for one in entries if one.state != "done" or one.task.key in lost]
        needed = {key for one in undone for key in one.task.after}
        for entry in entries:
            task = entry.task
            if entry.state != "done" or (task.kind == "shard") is not shards:
                continue
            looked_at = not shards or task.key in needed
            if looked_at and (why := _why_not_done(task, attempts.get(task.key))):
                lost[task.key] = why
            elif task.kind == "test" and lost.keys() & {*task.after}:
                lost[task.key] = "the wheel that it tested is built again"
    if lost:
        with ledger.change(at) as change:
            for entry in entries:
                if entry.task.key in lost:
                    change.task(entry, state="waiting", bound="", error=None)
                    change.event("not there", entry.task.key, message=lost[entry.task.key])
    return lost


def _why_not_done(task: Task, attempt: Span | None) -> str:
    """Why a task is not done though the ledger says so; empty: it is."""
    if attempt is None or attempt.outcome != "done" or not attempt.run:
        return "no attempt has ended"
    folder = Path(attempt.run)
    if not (folder / "record.sqlite").is_file():
        return f"its run {safe_line(folder.name, 100)} is gone"
    try:
        return (
            ""
            if task.kind == "test"
            else _first_changed_artifact(Run(folder), shard=task.kind == "shard")
        )
    except PipelineError as error:
        return safe_line(error.message)
    except OSError as error:
        return f"its run {safe_line(folder.name, 100)} cannot be read: {error.strerror}"


def _first_changed_artifact(run: Run, *, shard: bool) -> str:
    """The first file that differs from the run's record; raises what reading it does.

    :class:`BuildError` for a run without an audited wheel.
    """
    if run.result(SkipResult) is not None:
        return ""
    if not shard:
        require_audited(run)
    collected, audit = run.result(CollectResult), run.result(AuditResult)
    files = {one.path: one.sha256 for one in collected.files} if collected else {}
    if audit is not None and not files:  # taken from elsewhere
        files = {f"wheels/{one.file}": one.sha256 for one in audit.files}
    for path, sha256 in files.items():
        name = safe_line(Path(path).name, 100)
        if not (run.path / path).is_file():
            return f"{name} is not in its run {run.id}"
        if sha256_of(run.path / path) != sha256:
            return f"{name} in its run {run.id} is not the file that was built"
    return ""
