"""Facts only the kernel knows: the commit limit, our job's limits, privileges, the power scheme.

On Linux, used by the sandbox's tests and developers, they come from /proc.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import sys
import uuid
from typing import Any, TypedDict


class Commit(TypedDict):
    """Committed bytes of all processes, and their limit: memory plus page files."""

    limit: int
    used: int


class Limits(TypedDict):
    """Of a job object; ``None``: no such limit."""

    memory: int | None
    """Bytes, of a process or of all, whichever is less."""
    processes: int | None


class _Performance(ctypes.Structure):
    """PERFORMANCE_INFORMATION; all but the first and last three count pages."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("commit_total", ctypes.c_size_t),
        ("commit_limit", ctypes.c_size_t),
        ("commit_peak", ctypes.c_size_t),
        ("physical_total", ctypes.c_size_t),
        ("physical_available", ctypes.c_size_t),
        ("system_cache", ctypes.c_size_t),
        ("kernel_total", ctypes.c_size_t),
        ("kernel_paged", ctypes.c_size_t),
        ("kernel_nonpaged", ctypes.c_size_t),
        ("page_size", ctypes.c_size_t),
        ("handles", ctypes.c_uint32),
        ("processes", ctypes.c_uint32),
        ("threads", ctypes.c_uint32),
    )


class _JobLimits(ctypes.Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION."""

    _fields_ = (
        ("times", ctypes.c_int64 * 2),
        ("flags", ctypes.c_uint32),
        ("working_set", ctypes.c_size_t * 2),
        ("active_processes", ctypes.c_uint32),
        ("affinity", ctypes.c_size_t),
        ("classes", ctypes.c_uint32 * 2),
        ("transfers", ctypes.c_uint64 * 6),
        ("process_memory", ctypes.c_size_t),
        ("job_memory", ctypes.c_size_t),
        ("peaks", ctypes.c_size_t * 2),
    )


#: https://learn.microsoft.com/windows/win32/power/power-setting-guids, each below its subgroup.
_POWER = {
    "sleep": "238c9fa8-0aad-41ed-83f4-97be242c8f20 29f6c1db-86da-48c5-9fdb-f2b67b1f44da",
    "hibernate": "238c9fa8-0aad-41ed-83f4-97be242c8f20 9d7815a6-7ee4-497e-8888-515a05f02364",
    "lid": "4f971e89-eebd-4455-a8de-5a59040e7347 5ca83367-6e45-459f-a27b-476b1d01c936",
}
_ACTIVE_PROCESSES, _PROCESS_MEMORY, _JOB_MEMORY = 0x8, 0x100, 0x200


def wine() -> str | None:
    """Wine's version under Wine, ``None`` on real Windows."""
    if sys.platform != "win32":
        return None
    tell = getattr(ctypes.WinDLL("ntdll"), "wine_get_version", None)
    if tell is None:
        return None
    tell.restype = ctypes.c_char_p
    return str(tell().decode("ascii", "replace"))


def commit() -> Commit:
    """The remaining commit charge."""
    if sys.platform == "win32":
        performance = _Performance()
        performance.size = ctypes.sizeof(performance)
        if not ctypes.WinDLL("kernel32").K32GetPerformanceInfo(
            ctypes.byref(performance), performance.size
        ):
            raise OSError("GetPerformanceInfo failed")
        page = performance.page_size
        return {"limit": performance.commit_limit * page, "used": performance.commit_total * page}
    rows = pathlib.Path("/proc/meminfo").read_text("ascii").splitlines()
    sizes = {row.partition(":")[0]: int(row.split()[1]) << 10 for row in rows}
    return {"limit": sizes["CommitLimit"], "used": sizes["Committed_AS"]}


def job() -> Limits | None:
    """The limits of the job object that WinRM put this Python into; ``None`` outside of one.

    These actually apply to a shell's process, whatever the configuration says.
    """
    if sys.platform != "win32":
        return None
    kernel: Any = ctypes.WinDLL("kernel32")
    kernel.GetCurrentProcess.restype = ctypes.c_void_p
    kernel.IsProcessInJob.argtypes = [ctypes.c_void_p] * 3
    inside = ctypes.c_int(0)
    if not kernel.IsProcessInJob(kernel.GetCurrentProcess(), None, ctypes.byref(inside)):
        raise OSError("IsProcessInJob failed")
    if not inside.value:
        return None
    limits = _JobLimits()
    kernel.QueryInformationJobObject.argtypes = [
        ctypes.c_void_p,
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_void_p,
    ]
    extended = 9
    size = ctypes.sizeof(limits)
    if not kernel.QueryInformationJobObject(None, extended, ctypes.byref(limits), size, None):
        raise OSError("QueryInformationJobObject failed")
    memory = [
        size
        for flag, size in (
            (_JOB_MEMORY, limits.job_memory),
            (_PROCESS_MEMORY, limits.process_memory),
        )
        if limits.flags & flag
    ]
    processes = limits.active_processes if limits.flags & _ACTIVE_PROCESSES else None
    return {"memory": min(memory) if memory else None, "processes": processes}


def enforces_signatures() -> bool:
    """Whether Windows refuses to load unsigned code: Smart App Control, or WDAC.

    https://learn.microsoft.com/windows/win32/api/winternl/nf-winternl-ntquerysysteminformation
    """
    ntdll: Any = ctypes.WinDLL("ntdll")  # type: ignore[attr-defined, unused-ignore]
    options = (ctypes.c_uint32 * 2)(8)  # SYSTEM_CODEINTEGRITY_INFORMATION: its size, options
    if status := ntdll.NtQuerySystemInformation(103, options, 8, None):
        raise OSError(f"NtQuerySystemInformation failed: 0x{status & 0xFFFFFFFF:08x}")
    return options[1] & 0xC == 0x4  # noqa: PLR2004 - UMCI is enabled, and not in its audit mode


def password_expires() -> float | None:
    """Seconds until the password of this process' local account expires; ``None``: never.

    Raises ``OSError``, also for a domain account, whose policy is the domain's.
    """
    if sys.platform != "win32":
        return None
    name, domain, computer = map(os.environ.get, ("USERNAME", "USERDOMAIN", "COMPUTERNAME"))
    if not name or str(domain).lower() != str(computer).lower():
        raise OSError(f"{name} is not a local account")
    api: Any = ctypes.WinDLL("netapi32")
    user, rules = (ctypes.POINTER(ctypes.c_uint32)() for _ in range(2))
    code = api.NetUserGetInfo(None, ctypes.c_wchar_p(name), 1, ctypes.byref(user))
    if code := code or api.NetUserModalsGet(None, 0, ctypes.byref(rules)):
        raise OSError(f"cannot read the password's age: error {code}")
    # USER_INFO_1, with the flag UF_DONT_EXPIRE_PASSWD, and USER_MODALS_INFO_0.
    age, flags, longest = user[4], user[10], rules[1]
    api.NetApiBufferFree(user)
    api.NetApiBufferFree(rules)
    never = flags & 0x10000 or longest == 0xFFFFFFFF  # noqa: PLR2004 - TIMEQ_FOREVER
    return None if never else float(longest) - age


def power() -> dict[str, int] | None:
    """What makes a machine on mains power unavailable; ``None`` on other systems than Windows.

    ``sleep`` and ``hibernate`` are seconds without input, ``lid`` is 1 (sleep), 2 (hibernate) or 3
    (shut down); each is 0 for never, or where the machine cannot.
    """
    if sys.platform != "win32":
        return None
    api: Any = ctypes.WinDLL("powrprof")
    can, scheme, value = (ctypes.c_ubyte * 256)(), ctypes.c_void_p(), ctypes.c_uint32()
    if not api.GetPwrCapabilities(can) or api.PowerGetActiveScheme(None, ctypes.byref(scheme)):
        raise OSError("powrprof does not report the power scheme")
    # SYSTEM_POWER_CAPABILITIES: S1 to S3 are at 3, S4 at 6, its file at 8, modern standby at 20.
    able = {"sleep": any(can[3:6]) or can[20], "hibernate": can[6] and can[8], "lid": can[2]}
    values = dict.fromkeys(_POWER, 0)
    for name in filter(able.get, _POWER):
        places = [uuid.UUID(text).bytes_le for text in _POWER[name].split()]
        if code := api.PowerReadACValueIndex(None, scheme, *places, ctypes.byref(value)):
            raise OSError(f"PowerReadACValueIndex of {name}: {code}")
        values[name] = value.value
    return values


def administrator() -> bool:
    """Whether this process may administer the machine."""
    if sys.platform == "win32":
        return bool(ctypes.WinDLL("shell32").IsUserAnAdmin())
    return os.geteuid() == 0
