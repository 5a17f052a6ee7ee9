"""What a build would do, said without doing any of it: nothing is started, fetched or recorded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelines.core import units
from pipelines.core.console import log_group, say
from pipelines.core.errors import BuildError, ConfigError
from pipelines.core.hosttext import safe_text
from pipelines.hosts.base import Host
from pipelines.hosts.live import LiveSession
from pipelines.plan.matrix.budget import plan_budget
from pipelines.plan.matrix.buildplan import BuildPlan
from pipelines.plan.matrix.hostfacts import HostFacts
from pipelines.recipe.model import SEARCHING
from pipelines.recipe.sourcetree import Packed
from pipelines.recipe.suite import suite_of
from pipelines.record.results import ProvisionResult, ResourceResult
from pipelines.record.run import Run
from pipelines.stages.hooks import RunHooks, requested_features
from pipelines.stages.line import Line, require_audited, require_same_target
from pipelines.stages.pace import cost_of
from pipelines.stages.preflight import refuse_unbuildable, refuse_ungiven

if TYPE_CHECKING:
    from pipelines.stages.detached import State

_WIDTH = 10  # of the names in front
_SHARES = "each shard has its own, and so does the link"
NOTHING = "nothing was done (--dry-run)"


def show_build(line: Line) -> None:
    """Print what ``run_build`` would do with this line.

    Only a host that is running is asked, or this machine. Raises what a build would raise before it
    starts, such as :class:`ConfigError`.
    """
    plan, recipe = line.plan, line.plan.recipe
    with log_group(f"Would build {plan.target.package} for {plan.target.label}"):
        if recipe.strategy == "skip":
            print_dry_run_row("nothing", recipe.skip)
            return
        if recipe.strategy in SEARCHING:
            print_dry_run_row("first", f"look for a prebuilt wheel at {', '.join(recipe.prebuilt)}")
        refuse_unbuildable(plan, fetch=False)
        for one in requested_features(RunHooks, plan):
            for said in one.begin():
                print_dry_run_row("objects", said)
        show_host(plan.host)
        for name, said in _Look(line.session, plan).rows():
            print_dry_run_row(name, said)
    say(NOTHING, style="green")


def show_test(line: Line, *, run: str | None = None) -> None:
    """Print what ``run_test`` would do with this line, or with the wheel that it builds first.

    Raises what a test of ``run`` would before it begins.
    """
    recipe = line.plan.recipe
    suite = suite_of(recipe)
    count = units.pluralize(len(suite.files), "file")
    what = f"{suite.instead} only" if suite.instead else f"smoke suite {recipe.smoke}"
    refuse_ungiven(line.plan)
    with log_group(f"Would test {line.plan.target.package} for {line.plan.target.label}"):
        show_host(line.plan.host)
        print_dry_run_row("suite", f"{what}, {count}")
        print_dry_run_row("wheel", _wheel_of(line, run))
    say(NOTHING, style="green")


def _wheel_of(line: Line, name: str | None) -> str:
    """Whose wheel it would be."""
    plan = line.plan
    if name is not None:
        run = Run.find(plan.out, name)
        require_same_target(plan, run)
        require_audited(run)
        return f"from {run.id}"
    try:
        latest = Run.latest_of(plan.out, plan.target)
    except ConfigError:
        latest = None
    if latest is None:
        return "none for this cell yet: build it first"
    try:
        require_audited(latest)
    except BuildError:
        return f"none passed in the latest run, {latest.id}: build it first"
    return f"from {latest.id}, unless one is built first"


def show_host(host: Host) -> None:
    """Its name; with a bridge its GPUs, and what there is of the bridge."""
    print_dry_run_row("host", f"{host.name}: {host.evidence.meaning}")
    if (bridge := host.bridge()) is None:
        return
    print_dry_run_row(
        "GPU", f"{'; '.join(bridge.gpus)}; driver {bridge.driver}, CUDA {bridge.cuda}"
    )
    tested = f"self-test: {bridge.selftest}" if bridge.selftest else "not tested since the start"
    print_dry_run_row(
        "bridge", f"built; {tested}" if bridge.built else "would be built and tested at the start"
    )


def print_dry_run_row(name: str, said: str) -> None:
    """A line of what would be done."""
    say(f"  {name:<{_WIDTH}} {said}")


@dataclass
class _Look:
    session: LiveSession
    plan: BuildPlan

    def rows(self) -> Iterator[tuple[str, str]]:
        """What there is to say, as names with texts."""
        asked = self._may_ask()
        found = self._found() if asked else None
        yield "provision", self._provision(found)
        yield "fetch", self._fetch()
        if self.plan.source.names() is None:
            yield "source", "not in the cache: it would be downloaded"
            yield "job", "its id is known once the source is downloaded"
        else:
            source = self.plan.source.pack()
            yield (
                "source",
                f"{units.format_size(len(source.data))} packed, sha256 {source.sha256[:16]}…",
            )
            yield "job", self._job(source, found) if self.plan.shards is None else _SHARES
        yield "cost", self._cost(asked=asked)
        run = Run.cut_off_of(self.plan.out, self.plan.facts)
        yield "run", f"continues {run.id}, which was interrupted" if run else "a new one"

    def _may_ask(self) -> bool:
        host = self.plan.host
        running = host.lifecycle is not None and bool(host.lifecycle.address())
        return running or host.existing is not None

    def _found(self) -> list[ResourceResult]:
        from pipelines.stages.provision import check_resources

        return check_resources(self.session, [*self.plan.wanted])

    def _provision(self, found: list[ResourceResult] | None) -> str:
        if found is None:
            host = self.plan.host
            why = "it is not running" if host.lifecycle is not None else "--dry-run asks no host"
            count = units.pluralize(len(self.plan.wanted), "resource")
            return f"{count}; unknown which of them differ: {why} (see invoke provision --dry-run)"
        differ = [row.id for row in found if not row.ok]
        if not differ:
            return f"all {len(found)} resources are up to date"
        return f"{len(differ)} of {len(found)} resources would change: {', '.join(differ)}"

    def _fetch(self) -> str:
        cache = self.plan.cache
        wanted = dict.fromkeys(tool for one in self.plan.wanted for tool in one.uploads)
        tools = [name for name in wanted if cache.lock.tools[name].pinned]
        missing = cache.missing(tools)
        return (
            f"{len(missing)} of {len(tools)} pinned files, {cache.sizes(missing)}"
            if missing
            else f"nothing: {units.pluralize(len(tools), 'pinned file')} cached"
        )

    def _job(self, source: Packed, found: list[ResourceResult] | None) -> str:
        if found is None:
            return "not known before the host is contacted"
        from pipelines.remote.jobs import store
        from pipelines.stages.build import inputs_of
        from pipelines.stages.detached import State, validate_job_state

        provisioned = ProvisionResult(resources=tuple(found))
        job = inputs_of(self.session, self.plan, source, provisioned).job
        host, layout = self.plan.host.name, self.plan.layout
        directory = layout.join(layout.build_root, job)
        now = validate_job_state(host, self.session.call(store.state, directory=directory), State)
        return f"{job}: {_REUSED[now.state if not _has_job_failed(now) else 'failed']}"

    def _cost(self, *, asked: bool) -> str:
        archs, cost = self.plan.archs.effective, cost_of(self.plan)
        if cost is None:
            return "not known: the recipe has no estimate for this CUDA"
        host = HostFacts.local()
        if asked:
            host = HostFacts.from_session(self.session.facts, name=self.plan.host.name)
        try:
            budget = plan_budget(cost, host, archs, self.plan.jobs)
        except ConfigError:
            if asked:
                raise
            return f"{cost.units} units; {host.origin} is too small to stand in for the host"
        return (
            f"about {units.format_estimate(budget.wall_seconds)} for {cost.units} units, "
            f"{budget.jobs} at a time on the {host.cores} cores of {safe_text(host.origin, 40)}; "
            f"{units.format_estimate(budget.core_seconds)} of core time, "
            f"{units.format_gib(budget.peak)} of memory"
        )


#: What a build makes of a job that is there.
_REUSED = {
    "absent": "compiled from the beginning",
    "running": "running there now; it would be followed",
    "lost": "interrupted there; it would continue with its finished units",
    "failed": "failed there before; it would continue with its finished units",
    "ended": "built there before; its wheel would be used if it is still intact",
}


def _has_job_failed(now: State) -> bool:
    """Whether it has ended without what a build takes."""
    ended = now.result
    return ended is not None and (ended.cancelled or ended.result.get("exit") != 0)
