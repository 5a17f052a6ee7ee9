"""How much memory and time a build takes, and how many compilers a host can run at once.

A compile job is one nvcc; with ``--threads`` it works on several architectures of its unit at a
time, and every one of these threads needs the memory of a whole compilation (3 to 5 GiB for
attention kernels: https://github.com/Dao-AILab/flash-attention/pull/2079).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pipelines.core.architectures.archs import ArchList
from pipelines.core.errors import ConfigError
from pipelines.core.units import GIB, format_gib
from pipelines.plan.matrix.hostfacts import HostFacts
from pipelines.recipe.model import Cost

#: Bytes left to Windows, the linker and other programs.
RESERVE = 2 * GIB
#: PTX alone stops before ptxas, which is most of the work.
_PTX_SHARE = 0.3


@dataclass(frozen=True)
class Budget:
    """Jobs, nvcc threads a job, bytes at the peak, core-seconds, seconds on this host."""

    jobs: int
    threads: int
    peak: int
    core_seconds: float
    wall_seconds: float


def nvcc_passes(archs: ArchList) -> int:
    """How often nvcc compiles a unit: once per architecture, including PTX of one with SASS."""
    return len({*archs.sass, *archs.ptx})


def compile_weight(archs: ArchList) -> float:
    """The same in units of one architecture's work."""
    return len(archs.sass) + _PTX_SHARE * len({*archs.ptx} - {*archs.sass})


def plan_budget(cost: Cost, host: HostFacts, archs: ArchList, jobs: int | None = None) -> Budget:
    """The fastest split of ``host`` into jobs and threads that its memory allows.

    ``jobs`` is the user's choice, which is used if it fits. Raises :class:`ConfigError` if not even
    one job fits, with what would.
    """
    each = cost.thread_gib * GIB
    room = max(0, host.usable - RESERVE)
    most = int(room / each)
    codes = nvcc_passes(archs)
    smallest = min(cost.nvcc_threads or 1, codes)
    if most < smallest or most < 1:
        raise _host_too_small_error(cost, host, smallest)
    if jobs is not None and jobs * smallest > most:
        raise ConfigError(
            f"--jobs {jobs} needs {jobs * smallest * cost.thread_gib:g} GiB, "
            f"{host.origin} has {format_gib(room)} for compilers",
            hint=f"The nearest possible value is --jobs {max(1, most // smallest)}.",
        )
    best: tuple[float, int, int] | None = None
    # More than two units at a time of each architecture's threads than cores only wait.
    for threads in [smallest] if cost.nvcc_threads else range(1, codes + 1):
        fitting = min(most // threads, max(1, host.cores // threads), cost.units)
        count = fitting if jobs is None else min(jobs, most // threads)
        if count >= 1:
            wall = _estimate_build_seconds(cost, archs, host, count, threads)
            if best is None or wall < best[0] * 0.99:
                best = (wall, count, threads)
    assert best is not None  # noqa: S101 - one job of the fewest threads fits, see above
    wall, count, threads = best
    return Budget(
        jobs=count,
        threads=cost.nvcc_threads or threads,
        peak=int(count * threads * each) + RESERVE,
        core_seconds=cost.units * cost.unit_seconds * compile_weight(archs),
        wall_seconds=wall,
    )


def _estimate_build_seconds(
    cost: Cost, archs: ArchList, host: HostFacts, jobs: int, threads: int
) -> float:
    """Rounds of units, each as long as its architectures one after the other on its threads."""
    unit = (
        cost.unit_seconds
        * compile_weight(archs)
        * math.ceil(nvcc_passes(archs) / threads)
        / nvcc_passes(archs)
    )
    crowd = max(1.0, jobs * threads / host.cores)
    return math.ceil(cost.units / jobs) * unit * crowd


def _host_too_small_error(cost: Cost, host: HostFacts, threads: int) -> ConfigError:
    needs = threads * cost.thread_gib + RESERVE / GIB
    scarce = "memory" if host.usable == host.memory else "commit limit (memory and page file)"
    hint = f"Take a host with {needs:.0f} GiB or more"
    if host.usable != host.memory and host.memory >= needs * GIB:
        hint = f"Make the page file larger by {needs - host.usable / GIB:.0f} GiB, or a"
        hint += f" host with {needs:.0f} GiB free"
    return ConfigError(
        f"{host.origin} is too small: one compile job needs {needs:g} GiB of {scarce}, "
        f"it has {host.usable / GIB:.1f} GiB",
        hint=hint + ".",
    )
