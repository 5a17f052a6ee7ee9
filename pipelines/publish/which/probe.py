"""Asks NVIDIA's driver what it is; run in a process of its own, for a broken driver may never end.

Prints one line: a marker and an object. ``error`` is there where the driver cannot be used.
"""

from __future__ import annotations

import ctypes
import json
import sys

_SYSTEM32_ALONE = 0x800  # LOAD_LIBRARY_SEARCH_SYSTEM32: not one that lies in the current folder
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
_NO_DEVICE = 100
_MOST = 64
_ARM64 = 0xAA64
_AVX = 1 << 2  # XSTATE_MASK_AVX


def native_machine() -> str:
    """``ARM64`` where Windows is of that machine, whatever this Python is of; else nothing."""
    if sys.platform != "win32":
        return ""
    try:
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.GetCurrentProcess.restype = ctypes.c_void_p
        kernel.IsWow64Process2.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        process, own = ctypes.c_ushort(), ctypes.c_ushort()
        kernel.IsWow64Process2(kernel.GetCurrentProcess(), ctypes.byref(process), ctypes.byref(own))
    except (OSError, AttributeError):
        return ""
    return "ARM64" if own.value == _ARM64 else ""


def has_avx() -> bool | None:
    """Whether programs can use AVX here; ``None``: nothing says it."""
    try:
        if sys.platform == "win32":
            ask_for = ctypes.WinDLL("kernel32").GetEnabledXStateFeatures
            ask_for.restype = ctypes.c_ulonglong
            return bool(ask_for() & _AVX)
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as stream:
            flags = [line.split() for line in stream if line.startswith("flags")]
    except (OSError, AttributeError):
        return None
    return "avx" in flags[0] if flags else None


def query_nvidia_driver() -> dict[str, object]:
    """The release of CUDA in the driver, and the GPUs."""
    try:
        if sys.platform == "win32":
            cuda = ctypes.WinDLL("nvcuda.dll", winmode=_SYSTEM32_ALONE)
        else:
            cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return {"driver": "", "gpus": [], "names": []}
    number = ctypes.c_int()
    data: dict[str, object] = {"driver": "", "gpus": [], "names": []}
    if not cuda.cuDriverGetVersion(ctypes.byref(number)) and number.value > 0:
        data["driver"] = f"{number.value // 1000}.{number.value % 1000 // 10}"
    code = cuda.cuInit(0)
    if code not in (0, _NO_DEVICE):
        return {**data, "error": f"cuInit returned {code}"}
    if code or cuda.cuDeviceGetCount(ctypes.byref(number)):
        return data
    gpus, names = [], []
    for at in range(min(number.value, _MOST + 1)):  # of more than the most there is no answer
        device, part = ctypes.c_int(), ctypes.c_int()
        name = ctypes.create_string_buffer(100)
        failed = cuda.cuDeviceGet(ctypes.byref(device), at)
        cuda.cuDeviceGetName(name, 99, device)
        both = []
        for which in (_MAJOR, _MINOR):
            failed = failed or cuda.cuDeviceGetAttribute(ctypes.byref(part), which, device)
            both.append(str(part.value))
        gpus.append(f"error {failed}" if failed else ".".join(both))
        names.append(name.value.decode("ascii", "replace"))
    return {**data, "gpus": gpus, "names": names}


if __name__ == "__main__":
    print(
        "wcw1 "
        + json.dumps({**query_nvidia_driver(), "native": native_machine(), "avx": has_avx()}),
        flush=True,
    )
