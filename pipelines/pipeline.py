"""The way through: from the user's words to an order, and from an order through the stages."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.architectures import archs as arch_lists
from pipelines.architectures import gpus
from pipelines.config import Config, load_config
from pipelines.console import bars, say
from pipelines.errors import BuildError, ConfigError, PipelineError
from pipelines.hosts.base import Host, Opening
from pipelines.hosttext import secret
from pipelines.recipe.archmap import translate
from pipelines.recipe.load import check_python, for_cell, load_recipe
from pipelines.remote.inspection import tools as remote_tools
from pipelines.run import Run, StageRecord
from pipelines.session.base import Bars
from pipelines.stages.report import publish
from pipelines.stages.work import Order, Work
from pipelines.toolchain.lock import Cache, load_lock


def take_order(
    settings: Config,
    *,
    host: str | None = None,
    recipe: str | None = None,
    python: str | None = None,
    archs: str | None = None,
    jobs: int | None = None,
    recipe_version: str | None = None,
    torch: str | None = None,
    cuda: str | None = None,
    minutes: float | None = None,
    native: tuple[str, ...] | None = None,
) -> Order:
    """Check what was asked for, filled up from ``pipeline.yaml`` and the recipe.

    ``native`` are the compute capabilities of the host's GPUs, see :func:`ask_gpus`.
    """
    default = settings.default
    name = host or default.host
    settings.host(name)
    chosen = load_recipe(recipe or default.recipe, version=recipe_version)
    chosen = for_cell(chosen, cuda=cuda, torch=torch)
    wanted = gpus.read(archs or default.archs or chosen.archs, native)
    arch_lists.check(wanted, chosen.cuda)
    translate(chosen.arch_map, wanted, chosen.cuda, chosen.name)  # refuses what it cannot be
    units = default.jobs if jobs is None else jobs
    if units is not None and not 1 <= units <= 512:  # noqa: PLR2004 - as in config.Defaults
        raise ConfigError(f"--jobs {units}: expected 1 to 512", advice="Leave it out: all cores.")
    return Order(
        host=name,
        recipe=chosen.name,
        python=check_python(python or default.python, chosen),
        archs=wanted,
        jobs=units,
        version=chosen.version,
        torch=chosen.torch,
        cuda=chosen.cuda,
        minutes=minutes,
    )


@dataclass(frozen=True)
class Tell:
    """Tells a person what a host is doing while it is made ready."""

    name: str

    def step(self, text: str) -> None:
        """A line for each step."""
        say(f"{self.name}: {text}", style="dim")

    def bars(self) -> AbstractContextManager[Bars]:
        """A bar for each transfer."""
        return bars()


def open_host(settings: Config, name: str, python: str, cache: Cache) -> Host:
    """The host called ``name``; nothing is started yet."""
    given = Opening(python, cache, Tell(name), secret)
    return settings.host(name).open(name, given)


def open_work(order: Order, settings: Config) -> Work:
    """Everything the stages need for ``order``."""
    house = Path(settings.wheelhouse).expanduser() if settings.wheelhouse else None
    if house is not None and not house.is_dir():
        raise ConfigError(
            f"wheelhouse: there is no directory {house}", advice="invoke wheelhouse DIR makes one."
        )
    cache = Cache(load_lock(), wheelhouse=house, offline=settings.offline)
    recipe = load_recipe(order.recipe, version=order.version or None)
    recipe = for_cell(recipe, cuda=order.cuda or None, torch=order.torch)
    return Work(
        order, settings, recipe, open_host(settings, order.host, order.python, cache), cache
    )


def ask_gpus(work: Work) -> tuple[str, ...]:
    """Compute capabilities (``9.0``) of the host's GPUs, as its driver tells them."""
    found = work.session.call(remote_tools.gpus) or []
    told = [str(gpu.get("capability", "")) for gpu in found if isinstance(gpu, dict)]
    return tuple(text for text in told if re.fullmatch(r"\d{1,2}\.\d", text))


# -- the stages, as the tasks call them ------------------------------------------------------------


def run_plan(*, ask: bool, host: str | None, **asked: Any) -> int:
    """Print the plan; 0, or 2 when nothing can be built. ``ask``: of the host, not this machine."""
    from pipelines.commands.plan import run_plan as show
    from pipelines.matrix.hostfacts import HostFacts

    settings = load_config()
    facts = None
    if ask:
        work = open_work(take_order(settings, host=host), settings)
        try:
            facts = HostFacts.told(work.facts, name=work.host.name, native=ask_gpus(work))
        finally:
            work.close()
    return show(settings, host=host, facts=facts, **asked)


def run_doctor(work: Work, *, as_json: bool) -> int:
    """Judge this machine and the host of ``work``; 0, or 14 when something keeps builds from it."""
    from pipelines.doctor.run import run_doctor as doctor

    return doctor(work, as_json=as_json).exit_code


def run_wheelhouse(work: Work, folder: Path, *, controller_python: str | None = None) -> None:
    """Fill ``folder`` with what ``work`` and the pipeline itself need on an unconnected machine."""
    from pipelines.recipe.origin import FileSource, GitSource
    from pipelines.recipe.sourcetree import fetch_file
    from pipelines.toolchain import wheelhouse

    if isinstance(work.recipe.source, GitSource):  # of a packed commit no hash is pinned
        raise ConfigError(
            f"{work.recipe.name} {work.recipe.version} comes from git: no wheelhouse can hold it",
            advice="Take a release with --recipe-version, or bring the whole download cache.",
        )

    folder.mkdir(parents=True, exist_ok=True)
    tools = [tool for wanted in work.wanted for tool in wanted.uploads]
    with bars() as show:
        fresh = wheelhouse.gather_files(work.cache, tools, folder, show)
        if isinstance(work.recipe.source, FileSource):
            path = fetch_file(work.recipe.source, work.recipe, work.cache, show)
            fresh += wheelhouse.put(path, work.recipe.source.sha256, folder)
    fresh += wheelhouse.gather_controller(folder, controller_python)
    size = sum(path.stat().st_size for path in folder.iterdir()) >> 20
    say(f"{folder}: {fresh} files are new, {size} MiB in all", style="green")


def run_provision(work: Work, *, dry_run: bool = False) -> None:
    """Bring the host into the wanted state."""
    from pipelines.stages.provision import provision

    started, began = time.time(), time.monotonic()
    rows = provision(work, dry_run=dry_run)
    if not dry_run:
        detail = {"resources": rows}
        seconds = time.monotonic() - began
        work.provisioned = StageRecord("provision", "passed", started, seconds, detail)


def run_build(work: Work) -> Path:
    """Provision what is missing, build, collect, audit; the run's directory."""
    from pipelines.stages.audit import audit
    from pipelines.stages.build import build
    from pipelines.stages.collect import collect
    from pipelines.stages.prebuilt import audit_prebuilt, skipped, take_prebuilt
    from pipelines.stages.preflight import refuse_unbuildable

    if work.recipe.strategy == "build":
        refuse_unbuildable(work)
    run = work.new_run()

    def stages() -> None:
        if work.recipe.strategy == "skip":
            with run.stage("skip") as detail:
                run.note(origin=skipped(work, detail))
            return
        if work.recipe.strategy != "build":
            with run.stage("prebuilt") as detail:
                taken = take_prebuilt(work, detail)
            run.note(origin=detail["origin"])
            if taken:
                with run.stage("audit") as detail:
                    audit_prebuilt(work, taken, detail)
                return
            refuse_unbuildable(work)
        if work.provisioned is None:
            with run.stage("provision"):
                run_provision(work)
        if work.provisioned is not None:
            run.put_stage(work.provisioned)
        host = work.facts
        kept = {k: host.get(k) for k in ("platform", "machine", "python", "cpus")}
        run.note(
            host_facts=kept | {"windows": (host.get("windows") or {}).get("version")},
            tools={
                tool: work.cache.lock.tool(tool).version
                for wanted in work.wanted
                for tool in wanted.uploads
            },
        )
        with run.stage("build") as built:
            build(work, built)
        run.note(job=built["job"], source_sha256=built["source_sha256"])
        with run.stage("collect") as detail:
            wheels = collect(work, built, detail)
        with run.stage("audit") as detail:
            audit(work, wheels, detail)

    _and_publish(work, run, stages)
    return run.path


def run_test(work: Work, *, run: str | None = None) -> Path:
    """Smoke-test the wheel of ``run``, of this process' run, or of the latest; its directory."""
    from pipelines.stages.test import test

    if run is not None:
        work.open_run(run)
    this = work.run
    facts, order = this.facts(), work.order
    for key in ("recipe", "version", "python", "torch", "cuda"):
        asked, flag = getattr(order, key), "recipe-version" if key == "version" else key
        if (facts.get(key) or None) != (asked or None):
            raise ConfigError(
                f"the run {this.id} is of {key} {facts.get(key)}, not {asked}",
                advice=f"Type: invoke build --{flag} {asked} test",
            )
    if (made := facts.get("archs")) not in (None, str(order.archs)):
        raise ConfigError(
            f"the run {this.id} is for {made}, not {order.archs}",
            advice=f"Type: invoke test --archs '{made}'",
        )
    if "skip" in this.stages():
        say(f"nothing to test: {this.stages()['skip'].detail.get('skipped', '')}", style="yellow")
        return this.path
    if work.provisioned is None:
        run_provision(work)
    state = this.stages().get("audit")
    if state is None or state.state != "passed":
        raise BuildError(f"run {this.id} has no wheel that passed", advice="Type: invoke build")

    def stages() -> None:
        with this.stage("test") as detail:
            test(work, detail)

    _and_publish(work, this, stages)
    return this.path


def _and_publish(work: Work, run: Run, stages: Callable[[], None]) -> None:
    """Whatever becomes of the stages, the JUnit report and the manifest tell of it."""
    from pipelines.stages.collect import print_files, write_manifest

    try:
        stages()
    except BaseException:
        try:
            publish(run)
            write_manifest(work)
        except PipelineError as error:  # the first error is the one to tell
            say(f"the reports could not be written either: {error.message}", style="red")
        raise
    publish(run)
    write_manifest(work)
    say(f"run {run.id}", style="bold")
    print_files(run)
