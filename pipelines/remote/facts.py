"""Facts of a host: fast and silent, no WMI and no child processes.

``platform.*`` is avoided on purpose: on Windows it queries WMI, which takes seconds or hangs under
Wine.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from typing import TypedDict, cast

from . import limits
from .rpc import idempotent

#: The variables that explain a failure; never all of them, since they may hold secrets.
ENVIRONMENT = (
    "COMPUTERNAME",
    "CUDA_PATH",
    "NUMBER_OF_PROCESSORS",
    "PATH",
    "PROCESSOR_ARCHITECTURE",
    "PROCESSOR_IDENTIFIER",
    "ProgramFiles",
    "SystemRoot",
    "TEMP",
    "USERNAME",
    "USERPROFILE",
    "VCToolsVersion",
    "VSINSTALLDIR",
)


class Memory(TypedDict, total=False):
    """In bytes; on Windows also memory plus page file (the commit limit). Empty if unknown."""

    total: int
    available: int
    commit_limit: int
    commit_available: int


class Windows(TypedDict):
    """The version reported by the kernel."""

    version: str
    build: int
    server: bool
    service_pack: str


class Disk(TypedDict):
    """A disk by a directory on it, with its sizes in bytes."""

    path: str
    free: int
    total: int


class Facts(TypedDict):
    """Facts that every build needs; ``None`` where the source failed, see ``problems``."""

    platform: str
    windows: Windows | None
    machine: str
    python: str
    python_bits: int
    executable: str
    pid: int
    cwd: str | None
    cpus: int
    memory: Memory | None
    disk: Disk | None
    time: float
    utc_offset: int
    environment: dict[str, str]
    problems: dict[str, str]


class _MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX, see GlobalMemoryStatusEx."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        ("total", ctypes.c_uint64),
        ("available", ctypes.c_uint64),
        ("total_page_file", ctypes.c_uint64),
        ("available_page_file", ctypes.c_uint64),
        ("total_virtual", ctypes.c_uint64),
        ("available_virtual", ctypes.c_uint64),
        ("available_extended_virtual", ctypes.c_uint64),
    )


def gather(sources: Mapping[str, Callable[[], object]]) -> dict[str, object]:
    """Each source's result, under its name; ``None`` from one that fails, with ``problems``.

    Diagnosis matters most on a broken machine: a failing source must not affect the others.
    """
    results: dict[str, object] = {}
    problems: dict[str, str] = {}
    for name, source in sources.items():
        try:
            results[name] = source()
        except Exception as error:  # noqa: BLE001, RUF100 - the others continue
            results[name] = None
            problems[name] = f"{type(error).__name__}: {error}"[:300]
    return {**results, "problems": problems}


def memory() -> Memory:
    """Total and free memory."""
    if sys.platform == "win32":
        status = _MemoryStatus()
        status.length = ctypes.sizeof(status)
        if not ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
            return {}
        return {
            "total": limits.memory(status.total),
            "available": limits.free_memory(status.available),
            "commit_limit": status.total_page_file,
            "commit_available": status.available_page_file,
        }
    page = os.sysconf("SC_PAGE_SIZE")
    available = page * os.sysconf("SC_AVPHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):
        for line in pathlib.Path("/proc/meminfo").read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                available = int(line.split()[1]) * 1024
    return {
        "total": limits.memory(page * os.sysconf("SC_PHYS_PAGES")),
        "available": limits.free_memory(available),
    }


def _windows_version() -> Windows | None:
    """The version of this Windows; ``None`` elsewhere."""
    if sys.platform != "win32":
        return None
    version = sys.getwindowsversion()
    major, minor, build = version.platform_version
    return {
        "version": f"{major}.{minor}.{build}",
        "build": build,
        "server": version.product_type != 1,
        "service_pack": version.service_pack,
    }


def _native_architecture() -> str:
    """The processor architecture of the machine, even for a 32-bit process."""
    if sys.platform == "win32":
        native = os.environ.get("PROCESSOR_ARCHITEW6432")
        return native or os.environ.get("PROCESSOR_ARCHITECTURE", "")
    return os.uname().machine


@idempotent
def disk(path: str) -> Disk:
    """The disk of ``path``, or of the nearest directory that exists."""
    place = os.path.abspath(path)  # noqa: PTH100
    while not os.path.exists(place):  # noqa: PTH110
        above = os.path.dirname(place)  # noqa: PTH120
        if above == place:
            break
        place = above
    usage = shutil.disk_usage(place)
    return {"path": place, "free": usage.free, "total": usage.total}


@idempotent
def facts(path: str = ".") -> Facts:
    """The host's facts; ``disk`` is that of ``path``."""
    gathered = gather(
        {
            "platform": lambda: sys.platform,
            "windows": _windows_version,
            "machine": _native_architecture,
            "python": lambda: ".".join(map(str, sys.version_info[:3])),
            "python_bits": lambda: 64 if sys.maxsize > 1 << 32 else 32,
            "executable": lambda: sys.executable,
            "pid": os.getpid,
            "cwd": os.getcwd,
            "cpus": limits.cores,
            "memory": memory,
            "disk": lambda: disk(path),
            "time": time.time,
            "utc_offset": lambda: -time.timezone,
            "environment": lambda: {n: os.environ[n] for n in ENVIRONMENT if n in os.environ},
        }
    )
    return cast("Facts", gathered)
