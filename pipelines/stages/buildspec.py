"""What a build on the host is given: its id, variables, compile cache, steps."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pipelines.core.toolsets import WITH_LIBRARY
from pipelines.core.versions import release_in_range
from pipelines.plan.matrix.buildplan import BuildPlan
from pipelines.recipe import naming
from pipelines.recipe.library import library_build_steps, library_key
from pipelines.recipe.sourcetree import EPOCH
from pipelines.record.materials import Material, Materials
from pipelines.record.results import ProvisionResult
from pipelines.remote import builder, buildwheel, cargo, compilecache
from pipelines.stages.hooks import SpecHooks, requested_features
from pipelines.toolchain import compilecache as compile_cache

#: The CUDA whose nvcc sccache 0.16 understands: https://github.com/mozilla/sccache/pull/2722.
_CACHED = "<13.3"
#: Kind of a recipe -> the function that builds it on the host.
FUNCTIONS: dict[str, Callable[..., object]] = {
    **dict.fromkeys(("wheel", "pure"), builder.build),
    "cargo": cargo.build,
}
#: Kinds of resources that are not ours: no pin says what they are, only what was found.
THEIRS = frozenset({"distributions", "program"})
#: Of a host that is used as it is: its own compiler, linker and assembler, a material each.
COMPILERS = "compilers"
#: Read by compilers and CMake: what a user has set there makes another wheel.
_COMPILERS = (
    *("CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CL", "_CL_", "LINK", "_LINK_"),
    *("PYTORCH_NVCC", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN"),
    *("INCLUDE", "EXTERNAL_INCLUDE", "LIB", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"),
    *("LIBRARY_PATH", "GCC_EXEC_PREFIX", "COMPILER_PATH"),
    *("CMAKE_ARGS", "CMAKE_BUILD_TYPE", "CMAKE_GENERATOR", "CMAKE_PREFIX_PATH"),
    *("SKBUILD_CMAKE_ARGS", "SKBUILD_CMAKE_DEFINE", "SKBUILD_CMAKE_BUILD_TYPE"),
    *("CUDAARCHS", "CUDACXX", "CUDAFLAGS", "CUDAHOSTCXX"),
    "TORCH_CUDA_ARCH_LIST",
)


def job_id(plan: BuildPlan, made_of: Materials, part: str = "") -> str:
    """The hash of everything that decides the wheel, of ``fresh``, and of the part that is built.

    ``part``: what :meth:`.hooks.BuildHooks.part` says.
    """
    digest = hashlib.sha256((plan.fresh + part).encode())
    digest.update(json.dumps(sorted(made_of.rows())).encode())
    return digest.hexdigest()[:12]


def collect_materials(
    plan: BuildPlan,
    source_sha256: str,
    provisioned: ProvisionResult | None,
    toolset: str | None = None,
    more: Iterable[Material] = (),
) -> Materials:
    """Everything that determines the wheel: source, tools, Python, environment.

    ``provisioned`` has the values of what is not pinned; jobs and threads do not matter.
    ``toolset`` is from :func:`.toolset.toolset_for`, ``more`` from features.
    """
    rows = [
        Material("source", "archive", source_sha256),
        *_iter_planned_materials(plan),
        *_iter_found_materials(provisioned),
    ]
    if plan.host.existing is not None:
        rows += _iter_user_materials(plan)
    if toolset:
        rows.append(Material("host", "requested toolset", toolset))
    return Materials.of([*rows, *more])


def _iter_planned_materials(plan: BuildPlan) -> Iterator[Material]:
    """What the plan knows."""
    recipe, tools = plan.recipe, plan.cache.lock.tools
    for name in (name for one in plan.wanted for name in one.uploads):
        yield Material("tool", name, tools[name].sha256)
    yield Material("python", "version", plan.target.python)
    yield Material("toolset", "label", plan.toolset.label)
    # Builds outlive what they run in: a new libc++ is put there, a volume goes on to a new image.
    yield Material("toolset", "files", plan.toolset.files)
    yield Material("host", "image", plan.host.inputs)
    # Places have names of their own: but for them, variables are the same on every host.
    longest = sorted(plan.places, key=lambda place: -len(plan.places[place]))
    for name, text in environment_of(plan, 1).items():
        for place in longest:
            text = text.replace(plan.places[place] or "\0", f"{{{place}}}")  # noqa: PLW2901
        yield Material("variable", name, text)
    home = without_home if plan.host.existing is not None else str
    for place, path in plan.places.items():
        yield Material("place", place, home(path))
    if recipe.reproducible:
        yield Material("fixed place", "source", plan.layout.fixed)
    if recipe.library:  # its flags are in no variable
        yield Material("recipe", "library", recipe.library.model_dump_json())
    # In the source already; named so that statement and rebuild say which of them is another one.
    for patch in recipe.patches:
        yield Material("patch", patch.file, patch.sha256)
    if recipe.restamp:
        yield Material("wheel", "local version", plan.local_version)


def _iter_found_materials(provisioned: ProvisionResult | None) -> Iterator[Material]:
    """What no pin says, as it was found on the host."""
    for row in provisioned.resources if provisioned is not None else ():
        if row.kind in THEIRS:
            yield Material("found", row.id, json.dumps(row.values, sort_keys=True))
        elif row.kind == COMPILERS:
            yield from (Material("found", name, text) for name, text in row.values.items())
        elif row.kind == "archive" and row.ok and not row.sha256:
            # After a repair nothing that was built with it is taken for what is pinned.
            yield Material("found", row.id, "never compared")


def _iter_user_materials(plan: BuildPlan) -> Iterator[Material]:
    """Of a host that is used as it is: its user's variables reach the compilers."""
    for name in _COMPILERS:
        if name in os.environ:
            yield Material("user variable", name, without_home(os.environ[name]))
    yield Material("place", "python", without_home(plan.layout.python))


def without_home(text: str) -> str:
    """``text`` with ``~`` for this user's home directory in paths: manifests are published."""
    home = str(Path.home())
    if len(home) < 2:  # noqa: PLR2004 - of a user without one it is the root
        return text
    begins = r"""(?:^|(?<=[\s=:,;"'])|(?<=-[A-Za-z]))"""
    return re.sub(rf"{begins}{re.escape(home)}(?=$|[\s=:,;\"'/\\])", "~", text)


def programs_of(plan: BuildPlan) -> list[str]:
    """Where what the recipe's build starts was looked for."""
    wanted = (one.spec for one in plan.wanted if one.spec["kind"] == "commands")
    return [place for spec in wanted for place in spec["places"]]


def build_spec(
    plan: BuildPlan, directory: str, archive: str, source_sha256: str, jobs: int
) -> dict[str, Any]:
    """What ``builder.build``, or ``cargo.build``, is given but for its environment; see those."""
    layout = plan.layout
    fixed = plan.recipe.reproducible
    spec = {
        "directory": directory,
        "archive": archive,
        "toolset": "",
        "timeout": None if plan.minutes is None else plan.minutes * 60,
        "programs": programs_of(plan),
        "cache": _cache(plan),
    }
    if plan.recipe.kind != "cargo":
        spec |= {"local": plan.local_version} if plan.recipe.restamp else {}
        return spec | {"python": plan.building_python} | ({"fixed": layout.fixed} if fixed else {})
    return spec | {
        "steps": _kernel_library_steps(plan, source_sha256),
        "jobs": jobs,
        "root": layout.join(layout.compile_cache, "libraries"),
        "toolkit": layout.cuda,
        "ninja": layout.ninja,
        "cargo": "",
    }


def _cache(plan: BuildPlan) -> compilecache.Spec | None:
    """The compile cache, as the host gets it.

    A repeated build takes nothing from an earlier one, because it has to reproduce it. Shards have
    none: a cache changes their commands, and hosts differ in that.
    """
    layout = plan.layout
    if plan.fresh or plan.divided:
        return None
    if not (plan.recipe.compile_cache and release_in_range(plan.recipe.cuda, _CACHED)):
        return None
    exe = ".exe" if plan.host.capabilities.windows else ""
    made = compile_cache.host_spec(
        plan.compile_cache,
        executable=layout.sccache,
        directory=layout.compile_cache,
        nvcc=layout.join(layout.cuda, "bin", f"nvcc{exe}"),
        place=layout.join(layout.build_root, "s"),
        # A level deeper than jobs are: nothing that looks for those comes through the link.
        packages=layout.join(layout.build_root, "p", "site"),
        pinned=plan.host.existing is None,
    )
    for one in requested_features(SpecHooks, plan):
        made = made and one.cache(made)
    return made


def environment_of(plan: BuildPlan, jobs: int, threads: int = 1) -> dict[str, str]:
    """The variables that decide a wheel, on top of the host's and the compiler's."""
    recipe, layout, local = plan.recipe, plan.layout, plan.local_version
    variables = {
        "TEMP": layout.temp,
        "TMP": layout.temp,
        "CUDA_PATH": layout.cuda,
        "CUDA_HOME": layout.cuda,
        "SOURCE_DATE_EPOCH": str(EPOCH),
        "PYTHONUNBUFFERED": "1",
        **naming.recipe_environment(recipe, plan.archs, local=local, jobs=jobs, threads=threads),
    }
    if recipe.api in WITH_LIBRARY:
        variables |= dict(plan.toolset.with_cxx)
    if plan.toolset.takes_fixes:
        variables = naming.with_fixes(recipe, variables, recipe.cuda, recipe.torch)
    for one in requested_features(SpecHooks, plan):
        variables = one.environment(variables)
    return variables


def build_environment(plan: BuildPlan, jobs: int, threads: int) -> dict[str, str]:
    """Those, and what tells the build itself how to go about it."""
    slow = plan.recipe.slow_first  # read by remote/buildwheel.py
    variables = {"WCW_SLOW_FIRST": json.dumps(slow)} if slow else {}
    if "torch" in plan.recipe.build_requires and "torch" in plan.host.replacements:
        variables[buildwheel.CPU_TORCH] = plan.recipe.cuda
    return environment_of(plan, jobs, threads) | variables


def _kernel_library_steps(plan: BuildPlan, source_sha256: str) -> dict[str, Any]:
    """How the kernels of a crate become a library, and under which key it is kept."""
    recipe = plan.recipe
    (arch,) = plan.archs.effective.sass
    key = library_key(recipe, source_sha256, cuda=recipe.cuda, arch=arch)
    names = plan.source.names() or ()
    windows = plan.host.capabilities.windows
    return dict(library_build_steps(recipe, names, key=key, arch=arch, windows=windows).spec())
