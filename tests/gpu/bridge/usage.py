"""What this process holds: memory, handles, memory of the GPU. Growth of it is a leak."""

from __future__ import annotations

import ctypes as c
import gc
import sys
from dataclasses import dataclass
from pathlib import Path

from driver import call


class _Counters(c.Structure):
    """PROCESS_MEMORY_COUNTERS."""

    _fields_ = (
        ("size", c.c_uint32),
        ("faults", c.c_uint32),
        ("peak", c.c_size_t),
        ("working_set", c.c_size_t),
        ("quotas", c.c_size_t * 4),
        ("page_file", c.c_size_t),
        ("peak_page_file", c.c_size_t),
    )


def _memory_and_handles() -> tuple[int, int]:
    if sys.platform == "win32":
        kernel = c.WinDLL("kernel32")
        kernel.GetCurrentProcess.restype = c.c_void_p
        this, told, handles = c.c_void_p(kernel.GetCurrentProcess()), _Counters(), c.c_uint32()
        told.size = c.sizeof(told)
        if not kernel.K32GetProcessMemoryInfo(this, c.byref(told), told.size):
            raise OSError("GetProcessMemoryInfo failed")
        if not kernel.GetProcessHandleCount(this, c.byref(handles)):
            raise OSError("GetProcessHandleCount failed")
        return told.working_set, handles.value
    rows = Path("/proc/self/status").read_text("ascii").splitlines()
    resident = next(int(row.split()[1]) for row in rows if row.startswith("VmRSS"))
    return resident << 10, sum(1 for _ in Path("/proc/self/fd").iterdir())


@dataclass(frozen=True)
class Usage:
    """Bytes, number, bytes."""

    memory: int
    handles: int
    gpu: int

    @classmethod
    def now(cls) -> Usage:
        """Of this moment; the context is this thread's."""
        gc.collect()
        free, total = c.c_size_t(), c.c_size_t()
        call("cuMemGetInfo_v2", c.byref(free), c.byref(total))
        memory, handles = _memory_and_handles()
        if not memory or not total.value:
            raise OSError("this system does not tell what a process holds")
        return cls(memory, handles, total.value - free.value)

    def since(self, before: Usage) -> Usage:
        """How much more it is."""
        return Usage(
            self.memory - before.memory, self.handles - before.handles, self.gpu - before.gpu
        )
