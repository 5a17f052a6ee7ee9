"""From a request to a plan: created once, immutable, and all that the stages use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.core.architectures import archs as arch_lists
from pipelines.core.architectures import gpus
from pipelines.core.errors import ConfigError
from pipelines.core.finding import Finding
from pipelines.core.hosttext import remember_secret, safe_line
from pipelines.core.paths import project_dir
from pipelines.core.target import AXES, Target
from pipelines.core.toolsets import Api, Toolset
from pipelines.core.units import join_first, pluralize
from pipelines.hosts.base import Events, Host, OpenOptions, Silent, Supply
from pipelines.plan.config.model import Config
from pipelines.plan.provisioning.resources import (
    EXISTING_FILE,
    RESOURCES_FILE,
    DesiredResource,
    Layout,
    Place,
    Resources,
    desired_resources,
    layout_of,
    load_resources,
)
from pipelines.recipe import naming
from pipelines.recipe.archmap import Translated, translate_archs
from pipelines.recipe.buildsystem import build_requires
from pipelines.recipe.found import taken_from
from pipelines.recipe.load import check_python, for_cell, load_recipe
from pipelines.recipe.model import Recipe
from pipelines.recipe.sourcetree import SourceTree
from pipelines.recipe.tested import cells_of_tests
from pipelines.record.results import RunFacts
from pipelines.record.shards import Share, shards_of, share_of
from pipelines.toolchain.compilecache import CompileCache
from pipelines.toolchain.lock import Cache, load_lock

if TYPE_CHECKING:
    from pipelines.plan.prebuilt.external import ExternalWheel

_MOST_JOBS = 512  # as config.Defaults
_FETCH = (
    "build once without offline; or run invoke wheelhouse DIR on a machine with a network, and "
    "name that directory here with --wheelhouse"
)


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request; the rest comes from ``pipeline.yaml`` and the recipe."""

    axes: Mapping[str, str] = field(default_factory=dict)
    """Axis of :class:`Target` -> its value as typed."""
    jobs: int | None = None
    """Compile units at a time."""
    minutes: float | None = None
    """Time limit of a build."""
    wheel: str | None = None
    """An external wheel to test instead of a recipe's."""
    share: str | None = None
    """Such as 3/20: only compile that shard of the wheel's units."""
    objects: tuple[str, ...] = ()
    """Runs of shards, by name or directory, whose objects are linked."""
    shards: str | None = None
    """Divide the units into so many shards, or ``auto``, and link them."""
    reproducible: bool = False
    """Even if the recipe is not; shards always are."""

    def of(self, target: Target) -> Request:
        """The same for one target."""
        return replace(self, axes={name: text for name, text in target.values().items() if text})


@dataclass(frozen=True, kw_only=True)
class BuildPlan:
    """What is built, where and how."""

    target: Target
    recipe: Recipe
    """At the target's releases."""
    host: Host
    archs: Translated
    """The target's architectures as the package understands them."""
    jobs: int | None
    """Compile units at a time, as requested; ``None``: the host's cores."""
    minutes: float | None
    """Time limit of a build, which the next one continues; ``None``: none."""
    resources: Resources
    place: Place
    layout: Layout
    cache: Cache
    compile_cache: CompileCache
    out: Path
    """The directory of runs."""
    supply: Callable[[], Supply]
    """What the host provides."""
    others: Callable[[], Mapping[str, Supply]]
    """What the other hosts of ``pipeline.yaml`` provide, by name."""
    given: ExternalWheel | None = None
    """An external wheel to test; ``recipe`` stands in for its recipe."""
    share: Share | None = None
    """Only compile that shard of the wheel's units."""
    objects: tuple[str, ...] = ()
    """Runs of shards, by name or directory, whose objects are linked."""
    shards: int | None = None
    """Divide the units into so many shards, and link them; 0: as many as are useful."""
    fresh: str = ""
    """If not empty: build in a new directory for this name."""

    @cached_property
    def source(self) -> SourceTree:
        """The source, one for all stages."""
        return SourceTree(self.recipe, self.cache)

    @cached_property
    def wanted(self) -> tuple[DesiredResource, ...]:
        """The desired resources of the host, in order.

        Raises :class:`LockError` for a tool that is missing from the lock.
        """
        lock = self.cache.lock
        return tuple(desired_resources(self.resources, self.recipe, lock, self.place))

    @property
    def tested(self) -> tuple[Target, ...]:
        """The cells whose environments the wheel is tested in."""
        existing = self.host.existing is not None
        lock, instead = self.cache.lock, self.host.replacements
        return cells_of_tests(self.recipe, self.target, lock, instead, existing=existing)

    @cached_property
    def toolset(self) -> Toolset:
        """The compilers there, with the stamp that their wheels get."""
        tools = self.supply().toolset
        return replace(tools, stamp="") if self.host.capabilities.publishable else tools

    def refused(self) -> list[Finding]:
        """What the host cannot provide."""
        from pipelines.plan.matrix.judge import host_rules  # not for commands that build nothing

        return host_rules(self.recipe, self.target, self.supply(), self.others)

    def offline_rules(self) -> Iterator[Finding]:
        """With ``offline``: an error for files that neither this machine nor the host can have.

        A warning for those that the host may have: it is not asked.
        """
        host, cache, lock = self.host, self.cache, self.cache.lock
        if not cache.offline:
            return
        kinds = dict.fromkeys(host.tools, "tool")
        kinds |= {name: one.spec["kind"] for one in self.wanted for name in one.uploads}
        files = cache.missing(name for name in kinds if lock.tools[name].pinned)
        source = [] if self.source.is_here() else [f"the source of {self.target.package}"]
        many = pluralize(len(source) + len(files), "file")
        says = f"offline, and {many} missing or damaged here: {join_first([*source, *files])}"
        finding = partial(Finding, hint=_FETCH, source="offline", raises="LockError")
        if source or any(kinds[name] in host.always_sent for name in files):
            yield finding(id="offline-files", level="error", actual=says)
        elif files:
            says += f"; {host.name} must have them"
            yield finding(id="offline-files", level="warning", actual=says)
        if host.image:
            says = f"offline, and only the engine knows whether it has image {host.image}"
            yield finding(id="offline-image", level="warning", actual=says)

    @property
    def divided(self) -> bool:
        """Whether its units are compiled by several builds."""
        return self.share is not None or bool(self.objects)

    @property
    def facts(self) -> RunFacts:
        """The facts that a run of this plan starts with."""
        return RunFacts(
            target=self.target,
            jobs=self.jobs,
            evidence=self.host.evidence,
            publishable=self.host.capabilities.publishable and self.given is None,
            given=self.given is not None,
            taken_from={} if self.given else taken_from(self.recipe),
            share=str(self.share or ""),
            linked=tuple(Path(run).name for run in self.objects),
        )

    @property
    def building_python(self) -> str:
        """The Python that builds there, in an environment with only the cell's packages."""
        made = (one.spec["python"] for one in self.wanted if one.spec["kind"] == "packages")
        return next(made, self.layout.python)

    @property
    def places(self) -> dict[str, str]:
        """Directories of the host that variables of a build refer to."""
        layout = self.layout
        environment = layout.above(layout.above(layout.python))
        return {"environment": environment, "toolkit": layout.cuda, "temp": layout.temp}

    @property
    def local_version(self) -> str:
        """The local version of a wheel built there."""
        recipe = self.recipe
        return naming.local_version(recipe, recipe.cuda, recipe.torch, self.toolset.stamp)


def resolve_given(request: Request) -> ExternalWheel | None:
    """The external wheel, if requested; :class:`ConfigError` with a flag for recipes."""
    if request.wheel is None:
        return None
    from pipelines.plan.prebuilt.external import read_external

    for axis in ("recipe", "version", "torch", "cuda", "archs"):
        if said := request.axes.get(axis):
            flag = (AXES[axis].flag or axis).replace("_", "-")
            raise ConfigError(
                f"--{flag} {said} is for recipes, and --wheel {safe_line(request.wheel, 200)} "
                "is built",
                hint="Leave one of them out; the audit shows what is in a wheel.",
            )
    return read_external(request.wheel)


def resolve_recipe(settings: Config, request: Request) -> Recipe:
    """The recipe with the requested releases; raises :class:`ConfigError`."""
    asked = request.axes
    chosen = load_recipe(
        asked.get("recipe") or settings.default.recipe, version=asked.get("version")
    )
    return for_cell(chosen, cuda=asked.get("cuda"), torch=asked.get("torch"))


def resolve_target(
    settings: Config, request: Request, recipe: Recipe, native: tuple[str, ...] | None = None
) -> Target:
    """The target of a request; ``native``: compute capabilities of the host's GPUs, if known."""
    default, asked = settings.default, request.axes
    host = asked.get("host") or default.host
    settings.host(host)
    archs = gpus.parse_gpu_archs(archs_asked(settings, request, recipe), native)
    arch_lists.require_supported_archs(archs, recipe.cuda)
    return Target(
        host=host,
        recipe=recipe.name,
        version=recipe.version,
        python=check_python(asked.get("python") or default.python, recipe),
        torch=recipe.torch or "",
        cuda=recipe.cuda,
        archs=archs,
    )


def finalize_recipe(recipe: Recipe, request: Request) -> Recipe:
    """The recipe, reproducible if the request or its division requires that.

    Raises :class:`ConfigError` if it cannot be divided.
    """
    asked = {"shard": request.share, "objects": request.objects, "shards": request.shards}
    divided = [f"--{flag}" for flag, value in asked.items() if value]
    if len(divided) > 1:
        raise ConfigError(
            f"{' and '.join(divided)} exclude each other",
            hint="One shard: --shard 1/4. Their link: --objects RUN,RUN. All of it: --shards 4.",
        )
    wanted = bool(divided) or request.reproducible
    if (wanted and not recipe.is_wheel) or (divided and recipe.kind == "pure"):
        raise ConfigError(
            f"{recipe.name} is of kind {recipe.kind}: only wheels can be reproducible, and only "
            "those with compiled code can be divided",
            hint="Leave --shard, --shards, --objects and --reproducible out.",
        )
    if divided and recipe.strategy not in ("build", "prebuilt-then-build"):
        raise ConfigError(
            f"recipe {recipe.name} has strategy {recipe.strategy}: nothing is compiled for it",
            hint="Leave --shard, --shards and --objects out.",
        )
    if divided and "ninja" not in recipe.build_requires:
        raise ConfigError(
            f"{' '.join(divided)}: {recipe.name} is not built with ninja, so it cannot be divided",
            hint="Omit it; or if its build runs ninja, add ninja to build_requires of the recipe.",
        )
    return recipe.model_copy(update={"reproducible": True}) if wanted else recipe


def _resolve_cell(
    settings: Config, request: Request, native: tuple[str, ...] | None
) -> tuple[ExternalWheel | None, Recipe, Target, Translated]:
    """The external wheel, if requested; what is built or tested, where, for which GPUs."""
    given = resolve_given(request)
    if given is None:
        recipe = finalize_recipe(resolve_recipe(settings, request), request)
        target = resolve_target(settings, request, recipe, native)
        archs = translate_archs(recipe.arch_map, target.archs, recipe.cuda, recipe.name)
        return None, recipe, target, archs
    from pipelines.plan.prebuilt.external import recipe_of

    recipe = recipe_of(given)
    target = _target_of(settings, request, recipe)
    return given, recipe, target, Translated("", target.archs)


def _target_of(settings: Config, request: Request, recipe: Recipe) -> Target:
    """The target of an external wheel; its Python is that of an existing environment, if any."""
    name = request.axes.get("host") or settings.default.host
    python = request.axes.get("python")
    if python is None:
        supply = settings.host(name).supply(load_lock())
        known = supply.python if supply.existing and supply.python else ()
        python = next(iter(known), settings.default.python)
    return Target(
        host=name,
        recipe=recipe.name,
        version=recipe.version,
        python=check_python(python, recipe),
    )


def archs_asked(settings: Config, request: Request, recipe: Recipe) -> str:
    """The architectures of a request, as written."""
    return request.axes.get("archs") or settings.default.archs or recipe.archs


def jobs_asked(settings: Config, request: Request) -> int | None:
    """Compile units at a time; ``None``: the host's cores."""
    jobs = settings.default.jobs if request.jobs is None else request.jobs
    if jobs is not None and not 1 <= jobs <= _MOST_JOBS:
        raise ConfigError(
            f"--jobs {jobs}: expected 1 to {_MOST_JOBS}", hint="Leave it out: all cores."
        )
    return jobs


def open_cache(settings: Config) -> Cache:
    """The download cache for ``pipeline.yaml`` and the flags."""
    house = Path(settings.wheelhouse).expanduser() if settings.wheelhouse else None
    if house is not None and not house.is_dir():
        raise ConfigError(
            f"wheelhouse: there is no directory {house}", hint="invoke wheelhouse DIR creates one."
        )
    return Cache(load_lock(), wheelhouse=house, offline=settings.offline)


def open_host(
    settings: Config,
    target: Target,
    cache: Cache,
    events: Events | None = None,
    api: Api = "plain",
) -> Host:
    """The target's host for a package that needs ``api``; nothing is started yet."""
    given = OpenOptions(target.python, cache, events or Silent(), remember_secret, api)
    return settings.host(target.host).open(target.host, given)


def resolve_build_plan(
    settings: Config,
    request: Request,
    *,
    native: tuple[str, ...] | None = None,
    host: Host | None = None,
    opened: BuildPlan | None = None,
    events: Callable[[str], Events] | None = None,
) -> BuildPlan:
    """The plan for a request; on ``host``, or on that of ``opened`` if its session fits both.

    ``events`` creates a host's listener from its name. Raises :class:`ConfigError` for an invalid
    request, before anything is started.
    """
    given, recipe, target, archs = _resolve_cell(settings, request, native)
    cache = open_cache(settings)
    if host is None and opened is not None and opened.target.session == target.session:
        host = opened.host
    if host is None:
        listener = events(target.host) if events else None
        host = open_host(settings, target, cache, listener, recipe.api)
    place = Place(
        capabilities=asdict(host.capabilities),
        target=target,
        executable=host.executable,
        existing=host.existing,
        replacements=host.replacements,
        builds=given is None,
        requires=lambda: build_requires(recipe, cache, target.python, host.capabilities.windows),
    )
    resources = load_resources(RESOURCES_FILE if host.existing is None else EXISTING_FILE)
    return BuildPlan(
        target=target,
        recipe=recipe,
        host=host,
        archs=archs,
        jobs=jobs_asked(settings, request),
        minutes=request.minutes,
        resources=resources,
        place=place,
        layout=layout_of(resources, place),
        cache=cache,
        compile_cache=settings.compile_cache,
        out=project_dir() / settings.out,
        supply=lambda: settings.host(target.host).supply(cache.lock),
        others=lambda: settings.others(target.host, cache.lock),
        given=given,
        share=share_of(request.share) if request.share else None,
        objects=request.objects,
        shards=shards_of(request.shards) if request.shards else None,
    )
