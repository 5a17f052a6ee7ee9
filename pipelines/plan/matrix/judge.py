"""What is known of a target before it is built: its verdict, its cost, the name of its wheel.

A rule that rejects a target has a name and a source, and names the nearest alternative; nothing is
started for any cell before the whole matrix has been judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from packaging.version import InvalidVersion, Version

from pipelines.core.architectures.archs import compute_capability, require_supported_archs
from pipelines.core.architectures.gpus import load_gpu_table
from pipelines.core.errors import ConfigError
from pipelines.core.finding import Finding
from pipelines.core.model import Dated
from pipelines.core.target import Target
from pipelines.core.toolsets import MSVC, NEEDED, toolsets_with_api
from pipelines.core.units import join_first
from pipelines.core.versions import free_threaded, minor_release, python_release, release_in_range
from pipelines.hosts.base import Supply
from pipelines.plan.matrix import compat
from pipelines.plan.matrix.budget import Budget, plan_budget
from pipelines.plan.matrix.hostfacts import HostFacts
from pipelines.plan.matrix.paths import MAX_PATH, Longest, included_files, longest_path
from pipelines.plan.matrix.torches import load_torches
from pipelines.recipe.archmap import Translated, translate_archs
from pipelines.recipe.load import shown_file
from pipelines.recipe.model import Recipe, known_fixes
from pipelines.recipe.naming import expected_wheel_name, fixes_of, local_version
from pipelines.remote.safe_paths import tree_faults
from pipelines.toolchain.lock import load_lock
from pipelines.toolchain.variants import wanted_file
from pipelines.wheels import toolkit

#: (CUDA, torch, Python, arch) -> the violated rules.
Lookup = Callable[[str, str, str, str], tuple[compat.Rule, ...]]

#: The rule that only needs `invoke lock`.
NOT_PINNED = "tool-not-pinned"
_NO_HOST = "add a Windows machine (kind: winrm) to pipeline.yaml and name it with --host"
_DRIVERS = "https://www.nvidia.com/drivers"
_COMPATIBLE = "https://docs.nvidia.com/deploy/cuda-compatibility/"
_TORCH = "https://github.com/pytorch/pytorch/blob/main/RELEASE.md"
_TORCH_WHEELS = "torch.yaml, by the wheels on the package indexes"


@dataclass(frozen=True)
class Judged:
    """A target and everything known of it before it is built."""

    target: Target
    findings: tuple[Finding, ...] = ()
    archs: Translated | None = None
    budget: Budget | None = None
    longest: Longest | None = None
    local: str = ""
    wheel: str = ""

    @property
    def buildable(self) -> bool:
        """Whether no rule rejects it."""
        return not any(finding.failed for finding in self.findings)


@dataclass(frozen=True)
class Ground:
    """The facts that targets are judged by."""

    host: HostFacts
    build_root: str
    supply: Supply
    """What the host provides."""
    others: Callable[[], Mapping[str, Supply]] = dict
    """What other hosts provide, by name; only used if this one does not."""
    unavailable: Callable[[Target], Sequence[str]] = lambda _: ()
    """Tools of a target that are missing from the lock, or not pinned."""
    untested: Callable[[Target], Sequence[str]] = lambda _: ()
    """The torch releases of ``tested_with`` that the host cannot have."""
    offline: Callable[[Target], Iterable[Finding]] = lambda _: ()
    """Findings of missing downloads; only used if nothing else rejects the target."""
    names: Sequence[str] | None = None
    """The files of the source tree; ``None``: not downloaded yet."""
    jobs: int | None = None
    rules: tuple[compat.Rule, ...] = field(default_factory=lambda: compat.load_compat().rules)


def _rule_error(rule: str, says: str, hint: str, source: str, **more: Any) -> Finding:
    return Finding(id=rule, level="error", actual=says, hint=hint, source=source, **more)


def _warning(rule: str, says: str, hint: str, source: str) -> Finding:
    return Finding(id=rule, level="warning", actual=says, hint=hint, source=source)


def judge_targets(recipe: Recipe, targets: Iterable[Target], ground: Ground) -> list[Judged]:
    """Every target, in order, with its findings, errors first."""
    broken = _lookup(ground.rules, ground.host.msvc)
    names = [*_name_rules(recipe, ground)]
    longest: dict[str, Longest | None] = {}
    judged = []
    for target in targets:
        if target.python not in longest:
            longest[target.python] = (
                longest_path(recipe, ground.names, target.python, ground.build_root)
                if ground.names is not None
                else None
            )
        made = _judge_target(recipe, target, ground, longest[target.python], broken)
        judged.append(replace(made, findings=(*names, *made.findings)) if names else made)
    return judged


def _name_rules(recipe: Recipe, ground: Ground) -> Iterator[Finding]:
    """Names in the source that are invalid on Windows, which :func:`pack` refuses to send."""
    if faults := tree_faults(included_files(ground.names or (), recipe.exclude)):
        says = join_first(f"{name} ({reason})" for name, reason in faults.items())
        hint = "rename them, or leave them out with 'exclude' in the recipe"
        yield _rule_error(
            "file-names", f"Windows cannot have {says}", hint, shown_file(recipe.name)
        )


def _judge_target(
    recipe: Recipe, target: Target, ground: Ground, longest: Longest | None, broken: Lookup
) -> Judged:
    host = host_rules(recipe, target, ground.supply, ground.others)
    refused = any(finding.failed for finding in host)
    findings = [
        *_recipe_rules(recipe, target),
        *_torch_rules(target, ground.supply),
        *_mended(recipe, target, ground, host),
        *([] if refused else _lock_rules(target, ground)),
        *_mended(recipe, target, ground, _compat_rules(recipe, target, broken)),
    ]
    archs = budget = None
    try:
        require_supported_archs(target.archs, target.cuda)
        archs = translate_archs(recipe.arch_map, target.archs, target.cuda, recipe.name)
        findings += [_warning("archs", note, "", "the recipe") for note in archs.notes]
    except ConfigError as error:
        findings.append(_rule_error("archs", error.message, error.hint, "pipelines/recipes"))
    cost = recipe.cost(target.cuda)
    if archs is not None and cost is not None and ground.host.cores:
        try:
            budget = plan_budget(cost, ground.host, archs.effective, ground.jobs)
        except ConfigError as error:
            findings.append(_rule_error("host-too-small", error.message, error.hint, cost.basis))
    findings += _path_rules(longest)
    if not any(finding.failed for finding in findings):
        findings += ground.offline(target)
    hit = {finding.id for finding in findings}
    findings += old_rows(target, (rule for rule in ground.rules if rule.id in hit))
    findings.sort(key=lambda finding: not finding.failed)
    local = wheel = ""
    if recipe.is_wheel:
        local = local_version(recipe, target.cuda, target.torch or None)
        wheel = expected_wheel_name(recipe, local, target.python)
    return Judged(target, tuple(findings), archs, budget, longest, local, wheel)


def host_rules(
    recipe: Recipe,
    target: Target,
    supply: Supply,
    others: Callable[[], Mapping[str, Supply]] = dict,
) -> list[Finding]:
    """What the host cannot provide; the one rule of plan, doctor, provision and build.

    The hint names what it has, and the other hosts that provide everything.
    """
    found = [*_driver_rules(target, supply), *_compiler_rules(target, supply)]
    refused = list(_not_given(recipe, target, supply))
    if not refused:
        return found
    giving = [
        name
        for name, other in others().items()
        if not other.missing and not [*_not_given(recipe, target, other)]
    ]
    elsewhere = f"--host {' or '.join(giving)}" if giving else _NO_HOST
    return found + [
        _rule_error(rule, says, f"{own}, or {elsewhere}" if own else elsewhere, source)
        for rule, says, own, source in refused
    ]


def _driver_rules(target: Target, supply: Supply) -> Iterator[Finding]:
    """What is missing here for a GPU, and whether its driver is too old for the target's CUDA.

    As in the smoke suite: a driver runs every CUDA of its major version, but does not compile PTX
    of a newer minor version.
    """
    yield from supply.missing
    if supply.missing or not supply.driver or not target.cuda:
        return
    driver, wanted = Version(supply.driver), Version(target.cuda)
    own = f"this machine's driver knows CUDA {supply.driver}"
    hint = f"install a driver for CUDA {target.cuda} or newer ({_DRIVERS})"
    if driver.major < wanted.major:
        says = f"{own} and the wheel is for CUDA {target.cuda}"
        hint += ", name a --cuda that it knows, or leave the GPU out"
        yield _rule_error("driver-cuda", says, hint, _COMPATIBLE, raises="SetupError")
    elif driver < wanted:
        says = f"{own} and the wheel is for CUDA {target.cuda}: its PTX will not be compiled"
        yield _warning("driver-cuda", says, hint, _COMPATIBLE)


def _compiler_rules(target: Target, supply: Supply) -> Iterator[Finding]:
    """Conflicts with the MSVC of a host, if its version is known."""
    tools = supply.toolset
    if tools.name != MSVC.name or not tools.version:
        return
    facts = {"msvc": tools.version, "cuda": target.cuda, "torch": target.torch}
    for rule in compat.applicable_rules(
        compat.load_compat().rules, {k: v for k, v in facts.items() if v}
    ):
        if "msvc" in rule.when:
            yield rule.finding()


def _not_given(
    recipe: Recipe, target: Target, supply: Supply
) -> Iterator[tuple[str, str, str, str]]:
    """Rule, message, what would work on this host, and the source."""
    host = target.host or "the host"
    lasting = [*_unbuilt(recipe, host, supply)]
    if lasting:
        yield from lasting
        return  # no other release would work
    for axis, word, has in (
        ("cuda", "CUDA", supply.cuda),
        ("python", "Python", supply.python),
        ("torch", "torch", supply.torch),
    ):
        asked = getattr(target, axis)
        if has is None or asked in ("", *has) or (axis == "python" and not recipe.is_wheel):
            continue
        if has:
            known = " and ".join(filter(None, (", ".join(has[:-1]), has[-1])))
            own = f"--{axis} {_nearest(asked, has)}"
            yield f"host-{axis}", f"{host} has {word} {known}, not {asked}", own, supply.origin
        else:
            own = f"name one with '{axis}' of this host in pipeline.yaml"
            yield f"host-{axis}", f"{host} has no {word}", own, supply.origin


def _unbuilt(recipe: Recipe, host: str, supply: Supply) -> Iterator[tuple[str, str, str, str]]:
    """What no release of the toolset, or no host of this kind, provides."""
    has, where = supply.toolset, shown_file(recipe.name)
    bare = bool(recipe.host_requires) and not supply.programs
    if recipe.api not in has.apis:
        can = " or ".join(one.name for one in toolsets_with_api(recipe.api))
        says = f"{recipe.name} needs {NEEDED[recipe.api]}, which requires {can}"
        says += f"; the toolset of {host} is '{has.label}': {has.limitation}"
        yield "host-toolset", says, "" if bare else supply.slot, f"{where}: api: {recipe.api}"
    if bare:
        names = ", ".join(recipe.host_requires)
        yield "host-programs", f"{host} has no {names}, which builds {recipe.name}", "", where


def _lock_rules(target: Target, ground: Ground) -> Iterable[Finding]:
    where = "toolchain.lock.yaml"
    known = load_lock().tools
    missing = ground.unavailable(target)
    unpinned = [name for name in missing if name in known]
    absent = [name for name in missing if name not in known]
    if unpinned:
        says = f"{where} has no sha256 of {', '.join(unpinned)}, which this cell needs"
        yield _rule_error(NOT_PINNED, says, f"invoke lock --only {','.join(unpinned)}", where)
    if absent:
        says = f"{where} has no {', '.join(absent)} for this cell"
        yield _rule_error(NOT_PINNED, says, f"add it to {wanted_file()}, then: invoke lock", where)
    if untested := ground.untested(target):
        of = "its environment has one torch" if ground.supply.existing else f"{where} names none"
        says = f"the wheel is not tested with torch {' and '.join(untested)}: {of} for this cell"
        hint = "test on a host that has it, such as the sandbox"
        yield _warning("torch-untested", says, hint, ground.supply.origin)


def _path_rules(longest: Longest | None) -> Iterable[Finding]:
    if longest is not None and not longest.fits:
        yield _rule_error(
            "path-too-long",
            f"{len(longest.path)} characters, {MAX_PATH} are possible: {longest.path}",
            f"a build root of at most {longest.root_at_most} characters, "
            "or leave the part out with 'exclude' in the recipe",
            "https://github.com/ninja-build/ninja/issues/2400",
        )


def _called(recipe: Recipe) -> str:
    return f"{recipe.name} {recipe.version}".rstrip()


def _recipe_rules(recipe: Recipe, target: Target) -> Iterable[Finding]:
    where = shown_file(recipe.name)
    if recipe.is_wheel and target.python not in recipe.pythons:
        near = _nearest(target.python, recipe.pythons)
        says = f"{_called(recipe)} is not for Python {target.python}"
        yield _rule_error("recipe-python", says, f"the nearest is {near}", where)
    for name, value, range_ in (
        ("torch", target.torch, recipe.supports.torch),
        ("cuda", target.cuda, recipe.supports.cuda),
    ):
        if value and not release_in_range(value, range_):
            says = f"{_called(recipe)} supports {name} {range_}, not {value}"
            yield _rule_error(f"recipe-{name}", says, f"--{name} in that range", where)


def _torch_rules(target: Target, supply: Supply) -> Iterable[Finding]:
    if not target.torch:
        return
    if "torch" in supply.replacements:  # the lock has the builds without CUDA
        host = target.host or "the host"
        says = (
            f"torch is a CPU build on {host}: what is built there for CUDA {target.cuda} is tested "
            "as far as a torch without CUDA goes"
        )
        yield _warning("torch-cpu", says, "test on a host with CUDA", supply.origin)
        return
    table = load_torches()
    build = table.get(minor_release(target.torch))
    if build is None:
        says = (
            f"torch {target.torch} is not in the table, which ends with {[*table][-1]}: not checked"
        )
        yield _warning("torch-unknown", says, "check that there are wheels", _TORCH)
        return
    if target.cuda in build.announced:
        says = f"torch {target.torch} for CUDA {target.cuda} on Windows is only announced"
        hint = "check with invoke watch"
        yield _warning("torch-announced", says, hint, build.announced[target.cuda])
    elif target.cuda not in build.cuda:
        says = f"there is no torch {target.torch} for CUDA {target.cuda} on Windows"
        near = _nearest(target.cuda, build.cudas)
        yield _rule_error("torch-cuda", says, f"the nearest is {near}", build.source)
    if target.python not in build.python:
        says = f"there is no torch {target.torch} for Python {target.python} on Windows"
        near = _nearest(target.python, build.python)
        yield _rule_error("torch-python", says, f"the nearest is {near}", _TORCH_WHEELS)


def _compat_rules(recipe: Recipe, target: Target, broken: Lookup) -> list[Finding]:
    if recipe.kind == "pure":  # the rules are for nvcc and cl
        return []
    found: dict[str, compat.Rule] = {}
    for arch in dict.fromkeys((*target.archs.sass, *target.archs.ptx)):
        for rule in broken(target.cuda, target.torch, target.python, arch):
            found.setdefault(rule.id, rule)
    return [rule.finding() for rule in found.values()]


def _mended(recipe: Recipe, target: Target, ground: Ground, found: list[Finding]) -> list[Finding]:
    """The findings; those that a fix of the recipe resolves name it."""
    if not ground.supply.toolset.takes_fixes:  # fixes.yaml is about cl and Windows' headers
        return [finding for finding in found if finding.failed or finding.id not in known_fixes()]
    fixes = {one.rule: one for one in fixes_of(recipe, target.cuda, target.torch or None)}
    return [
        finding
        if finding.failed or finding.id not in fixes
        else _warning(
            finding.id,
            f"{finding.actual.removesuffix('.')}: the recipe sets "
            + ", ".join(f"{k}={v}" for k, v in fixes[finding.id].flags.items()),
            "",
            fixes[finding.id].source,
        )
        for finding in found
    ]


def _lookup(rules: tuple[compat.Rule, ...], msvc: str | None) -> Lookup:
    """The violated rules; cached, because a matrix has few combinations."""

    @cache
    def broken(cuda: str, torch: str, python: str, arch: str) -> tuple[compat.Rule, ...]:
        facts = {"cuda": cuda, "torch": torch, "arch": compute_capability(arch), "msvc": msvc or ""}
        facts["freethreaded"] = python_release(python) if free_threaded(python) else ""
        return tuple(compat.applicable_rules(rules, {k: v for k, v in facts.items() if v}))

    return broken


def old_rows(target: Target, rules: Iterable[compat.Rule]) -> Iterator[Finding]:
    """The data behind a verdict that was last confirmed long ago."""
    rows: dict[str, Dated] = {f"compat.yaml, {rule.id}": rule for rule in rules}
    table = compat.load_compat()
    rows |= {"gpus.yaml": load_gpu_table(), "toolkits.yaml": toolkit.load_cuda_table()}
    rows |= {"compat.yaml, drivers": table.drivers, "compat.yaml, windows": table.builds}
    if build := load_torches().get(minor_release(target.torch)):
        rows[f"torch.yaml, {minor_release(target.torch)}"] = build
    hint = "check that it is still true, and set its date"
    for name, row in rows.items():
        if row.old:
            yield _warning("row-old", f"{name}: last confirmed {row.date}", hint, row.source)


def _nearest(value: str, known: Iterable[str]) -> str:
    def away(other: str) -> tuple[int, bool]:
        try:
            one, two = Version(python_release(value)), Version(python_release(other))
        except InvalidVersion:
            return 1 << 20, True
        far = abs(one.major * 100 + one.minor - two.major * 100 - two.minor)  # 12.9, then 13.0
        return far, free_threaded(value) != free_threaded(other)

    return min(sorted(known), key=away, default="")
