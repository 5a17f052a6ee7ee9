"""Runs a program as ``python PROGRAM`` would, and leaves a file where it had a GPU at its end.

Arguments: the file to leave, the program, the program's own. Only a driver that the program has
loaded itself is asked; that it has a context is what no CPU can pretend.
"""

from __future__ import annotations

import atexit
import ctypes
import sys
from pathlib import Path
from typing import Any

_WINDOWS = sys.platform == "win32"


def _driver() -> Any:
    """The driver, if this process has it; ``None`` otherwise."""
    if not _WINDOWS:
        maps = Path("/proc/self/maps")
        there = maps.is_file() and "/libcuda.so" in maps.read_text("utf-8", "replace")
        return ctypes.CDLL("libcuda.so.1") if there else None
    name = ctypes.WinDLL("kernel32").GetModuleHandleW  # type: ignore[attr-defined]
    name.restype = ctypes.c_void_p
    return ctypes.WinDLL("nvcuda.dll") if name("nvcuda.dll") else None  # type: ignore[attr-defined]


def has_context(driver: Any) -> bool:
    """Whether this thread, or any GPU for the whole process, has a context."""
    context, count = ctypes.c_void_p(), ctypes.c_int()
    if not driver.cuCtxGetCurrent(ctypes.byref(context)) and context.value:
        return True
    if driver.cuDeviceGetCount(ctypes.byref(count)):
        return False
    for index in range(count.value):
        device, flags, active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
        if driver.cuDeviceGet(ctypes.byref(device), index):
            continue
        both = ctypes.byref(flags), ctypes.byref(active)
        if not driver.cuDevicePrimaryCtxGetState(device, *both) and active.value:
            return True
    return False


def _tell(file: str) -> None:
    driver = _driver()
    if driver is not None and has_context(driver):
        Path(file).write_text("yes", "utf-8")


def run() -> None:
    """Run it as ``__main__``, with nothing of ours in it."""
    file, program = sys.argv[1], sys.argv[2]
    atexit.register(_tell, file)  # the first is called last
    sys.argv[:] = sys.argv[2:]
    sys.path[0] = str(Path(program).parent)
    own = sys.modules["__main__"].__dict__
    kept = {"__builtins__": own["__builtins__"], "__name__": "__main__", "__file__": program}
    own.clear()
    own.update(kept, __doc__=None, __package__=None, __spec__=None, __loader__=None)
    exec(compile(Path(program).read_bytes(), program, "exec"), own)  # noqa: S102 - that is the task


if __name__ == "__main__":
    import smoke_used  # what is imported stays when this module is emptied

    smoke_used.run()
