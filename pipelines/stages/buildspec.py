"""What a build on the host is given: its id, environment, jobs, cache, steps."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

from pipelines.compilecache import spec as compile_cache
from pipelines.matrix.budget import plan_budget
from pipelines.matrix.hostfacts import HostFacts
from pipelines.recipe import naming
from pipelines.recipe.library import library_key, steps
from pipelines.recipe.sourcetree import EPOCH, names_if_here
from pipelines.stages.work import Work

#: Read by compilers: what a user has set there makes another wheel.
_COMPILERS = (
    *("CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CL", "_CL_", "LINK", "_LINK_"),
    *(
        "PYTORCH_NVCC",
        "NVCC_PREPEND_FLAGS",
        "NVCC_APPEND_FLAGS",
        "NVCC_CCBIN",
        "TORCH_CUDA_ARCH_LIST",
    ),
)


def job_id(source: bytes, work: Work, environment: dict[str, str]) -> str:
    """The hash of everything that decides the wheel: source, tools, Python, environment.

    ``environment`` is that of one job with one thread: how many work at it makes no other wheel.
    """
    digest = hashlib.sha256(source)
    pins = [
        f"{tool}={sha}" for w in work.wanted for tool in w.uploads for sha in [_pin(work, tool)]
    ]
    if work.provisioned is not None:  # of what is not ours there is no pin: what was found
        theirs = {w.id for w in work.wanted if w.spec["kind"] in ("distributions", "program")}
        rows = work.provisioned.detail["resources"]
        pins += [f"{row['id']}={row['found']}" for row in rows if row["id"] in theirs]
    if work.host.existing is not None:  # this machine: its variables reach the compilers
        pins += [f"{name}={os.environ[name]}" for name in _COMPILERS if name in os.environ]
        pins.append(work.layout.python)
    wheel = sorted(f"{k}={v}" for k, v in environment.items() if not k.startswith("WCW_"))
    library = work.recipe.library  # its flags are in no variable
    crate = (library.model_dump_json(),) if library else ()
    for text in (*pins, work.order.python, *wheel, *crate):
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()[:12]


def _pin(work: Work, tool: str) -> str:
    return work.cache.lock.tool(tool).sha256


def job_environment(work: Work, jobs: int, threads: int = 1) -> dict[str, str]:
    """The variables a build gets on top of the host's and the compiler's."""
    recipe, layout = work.recipe, work.layout
    stamp = "" if work.host.capabilities.publishable else f".{work.host.name}".replace("-", "")
    local = naming.local_version(recipe, recipe.cuda, recipe.torch, stamp)
    return {
        "TEMP": layout.temp,
        "TMP": layout.temp,
        "CUDA_PATH": layout.cuda,
        "CUDA_HOME": layout.cuda,
        "SOURCE_DATE_EPOCH": str(EPOCH),
        "PYTHONUNBUFFERED": "1",
        # Read by remote/buildwheel.py.
        **({"WCW_SLOW_FIRST": json.dumps(recipe.slow_first)} if recipe.slow_first else {}),
        **naming.environment(recipe, work.archs, local=local, jobs=jobs, threads=threads),
    }


def build_spec(work: Work, directory: str, archive: str, built: dict[str, Any]) -> dict[str, Any]:
    """What ``builder.build``, or ``cargo.build``, is given; see those.

    ``built`` has ``jobs``, ``environment`` and ``source_sha256``.
    """
    layout, minutes = work.layout, work.order.minutes
    exe = ".exe" if work.host.capabilities.windows else ""
    spec = {
        "directory": directory,
        "archive": archive,
        "environment": built["environment"],
        "toolset": "",
        "timeout": None if minutes is None else minutes * 60,
        # Where what the recipe's build starts was looked for.
        "programs": [
            place
            for wanted in work.wanted
            if wanted.spec["kind"] == "commands"
            for place in wanted.spec["places"]
        ],
        "cache": compile_cache.host_spec(
            work.config.compile_cache,
            executable=layout.sccache,
            directory=layout.compile_cache,
            nvcc=layout.join(layout.cuda, "bin", f"nvcc{exe}"),
            place=layout.join(layout.build_root, "s"),
            # A level deeper than jobs are: nothing that looks for those comes through the link.
            packages=layout.join(layout.build_root, "p", "site"),
            pinned=work.host.existing is None,
        ),
    }
    if work.recipe.kind != "cargo":
        return spec | {"python": layout.python}
    return spec | {
        "steps": _steps(work, built["source_sha256"]),
        "jobs": built["jobs"],
        "root": layout.join(layout.compile_cache, "libraries"),
        "toolkit": layout.cuda,
        "ninja": layout.ninja,
        "cargo": "",
    }


def _steps(work: Work, source_sha256: str) -> dict[str, Any]:
    """How the kernels of a crate become a library, and under which key it is kept."""
    recipe = work.recipe
    (arch,) = work.archs.effective.sass
    key = library_key(recipe, source_sha256, cuda=recipe.cuda, arch=arch)
    names = names_if_here(recipe, work.cache) or ()
    windows = work.host.capabilities.windows
    return dict(steps(recipe, names, key=key, arch=arch, windows=windows).spec())


def job_budget(work: Work) -> tuple[int, int]:
    """Compile units at a time and threads of nvcc, from the host's cores and memory.

    Raises :class:`ConfigError` when not even one fits, before anything is sent.
    """
    cost = work.recipe.cost(work.recipe.cuda)
    if cost is None:
        return work.order.jobs or int(work.facts["cpus"]), 1
    host = HostFacts.told(work.facts, name=work.host.name)
    budget = plan_budget(cost, host, work.archs.effective, work.order.jobs)
    return budget.jobs, budget.threads
