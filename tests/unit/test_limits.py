"""How much of a machine a container or a job may use."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.remote import limits

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux' files")
GIB = 1 << 30


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(limits, "_ROOT", str(tmp_path))
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    return tmp_path


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


@pytest.mark.parametrize(
    ("files", "cores", "memory"),
    [
        ({}, 64, 8 * GIB),
        # docker run --memory 4g --cpus 1.5, version 2: the group is the root of what it sees
        (
            {
                "proc/self/cgroup": "0::/",
                "sys/fs/cgroup/memory.max": str(4 * GIB),
                "sys/fs/cgroup/cpu.max": "150000 100000",
            },
            2,
            4 * GIB,
        ),
        # a job of Slurm, of which a group above has the limit
        (
            {
                "proc/self/cgroup": "0::/system.slice/slurmstepd.scope/job_7/step_0",
                "sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/memory.max": str(2 * GIB),
                "sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/step_0/memory.max": "max",
                "sys/fs/cgroup/cpu.max": "max 100000",
                "proc/self/status": "Name:\tx\nCpus_allowed:\t00000000,0000000f\n",
            },
            4,
            2 * GIB,
        ),
        # version 1, the path being one of outside the container
        (
            {
                "proc/self/cgroup": "5:memory:/docker/ab\n3:cpu,cpuacct:/docker/ab\n0::/",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": str(3 * GIB),
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "300000",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            3,
            3 * GIB,
        ),
        # without a limit version 1 has a number above all memory, and -1
        (
            {
                "proc/self/cgroup": "5:memory:/\n3:cpu:/",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            64,
            8 * GIB,
        ),
    ],
)
def test_the_least_of_all_limits(
    root: Path, files: dict[str, str], cores: int, memory: int
) -> None:
    write(root, **files)
    assert (limits.cores(), limits.memory(8 * GIB)) == (cores, memory)


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, 8 * GIB),
        (
            {
                "proc/self/cgroup": "0::/a/b",
                "sys/fs/cgroup/a/memory.max": str(4 * GIB),
                "sys/fs/cgroup/a/memory.current": str(3 * GIB),
                "sys/fs/cgroup/a/memory.stat": f"anon {2 * GIB}\ninactive_file {GIB}",
                "sys/fs/cgroup/a/b/memory.max": "max",
                "sys/fs/cgroup/a/b/memory.current": str(3 * GIB),
            },
            2 * GIB,
        ),
        (
            {
                "proc/self/cgroup": "5:memory:/",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": str(4 * GIB),
                "sys/fs/cgroup/memory/memory.usage_in_bytes": str(5 * GIB),
            },
            0,
        ),
    ],
)
def test_what_the_groups_have_left(root: Path, files: dict[str, str], free: int) -> None:
    write(root, **files)
    assert limits.free_memory(8 * GIB) == free


@pytest.mark.skipif(not shutil.which("taskset"), reason="needs taskset")
def test_one_processor_by_affinity() -> None:
    code = "from pipelines.remote import limits; print(limits.cores())"
    run = ["taskset", "-c", "0", sys.executable, "-c", code]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == "1\n"
