"""What this process may use of the machine, within containers and job schedulers.

Windows has none of these files, so there it is the whole machine; Wine's processes are Linux'.
"""

from __future__ import annotations

import os
import posixpath
import sys
from collections.abc import Iterator

#: Where Wine mounts Linux' files.
UNIX = r"\\?\unix"
_ROOT = UNIX if sys.platform == "win32" else ""


def cores() -> int:
    """Processors: by affinity, and by the quotas of its control groups, rounded up."""
    allowed = [os.cpu_count() or 1]
    for line in _read_kernel_file("/proc/self/status").splitlines():
        if line.startswith("Cpus_allowed:"):
            allowed.append(int(line.partition(":")[2].replace(",", ""), 16).bit_count())
    for folder in _groups("cpu"):
        quota, _, period = _read_kernel_file(f"{folder}/cpu.max").partition(" ")
        quota = quota or _read_kernel_file(f"{folder}/cpu.cfs_quota_us")
        period = period or _read_kernel_file(f"{folder}/cpu.cfs_period_us")
        if quota.isdecimal() and period.isdecimal():
            allowed.append(-(-int(quota) // int(period)))
    return max(1, min(allowed))


def memory(total: int) -> int:
    """Bytes: the minimum of ``total`` and the limits of its control groups."""
    names = ("memory.max", "memory.limit_in_bytes")
    texts = (
        _read_kernel_file(f"{folder}/{name}") for folder in _groups("memory") for name in names
    )
    return min([total, *(int(text) for text in texts if text.isdecimal())])


def free_memory(available: int) -> int:
    """Bytes: the minimum of ``available`` and what its control groups have left.

    The kernel's file cache counts as free, as in ``MemAvailable``.
    """
    left = [available]
    for folder in _groups("memory"):
        most = _read_kernel_file(f"{folder}/memory.max") or _read_kernel_file(
            f"{folder}/memory.limit_in_bytes"
        )
        used = _read_kernel_file(f"{folder}/memory.current") or _read_kernel_file(
            f"{folder}/memory.usage_in_bytes"
        )
        rows = dict(
            line.split() for line in _read_kernel_file(f"{folder}/memory.stat").splitlines()
        )
        files = rows.get("total_inactive_file") or rows.get("inactive_file") or "0"
        if most.isdecimal() and used.isdecimal():
            left.append(max(int(most) - int(used) + int(files), 0))
    return min(left)


def _groups(controller: str) -> Iterator[str]:
    """Directories of the process' control groups and their parents, in both versions.

    https://docs.kernel.org/admin-guide/cgroup-v2.html
    """
    for line in _read_kernel_file("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = f"/sys/fs/cgroup/{controller}" if controllers else "/sys/fs/cgroup"
        while path.strip("/"):  # in a container the path may only exist outside
            yield root + path
            path = posixpath.dirname(path)
        yield root


def _read_kernel_file(path: str) -> str:
    try:
        with open(_ROOT + path.replace("/", os.sep)) as file:  # noqa: PTH123
            return file.read().strip()
    except OSError:
        return ""
