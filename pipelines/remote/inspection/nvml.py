"""GPUs as reported by NVIDIA's management library, where there is no nvidia-smi."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

#: The driver model where the library reports none: it belongs to another system's driver. The
#: doctor recognises it by this text.
BRIDGED = "Linux, through a bridge"
_NOT_SUPPORTED = 3  # NVML_ERROR_NOT_SUPPORTED
_MODELS = {0: "WDDM", 1: "TCC", 2: "MCDM"}  # nvmlDriverModel_t
_MOST = 64


def gpus() -> list[dict[str, str]] | None:
    """As :func:`.tools.gpus`, in nvidia-smi's order; ``None`` without the library.

    Raises ``OSError`` if it fails.
    """
    if sys.platform != "win32":
        return None
    try:
        library = ctypes.WinDLL("nvml.dll")
    except OSError:
        return None
    return report(library)


def report(library: Any) -> list[dict[str, str]]:
    """The GPUs that ``library`` reports."""
    _call_nvml(library, "nvmlInit_v2")
    try:
        driver = ctypes.create_string_buffer(96)
        _call_nvml(library, "nvmlSystemGetDriverVersion", driver, len(driver))
        version = driver.value.decode("utf-8", "replace")
        count = ctypes.c_uint()
        _call_nvml(library, "nvmlDeviceGetCount_v2", ctypes.byref(count))
        numbers = range(min(count.value, _MOST))
        return [_query_gpu(library, number) | {"driver": version} for number in numbers]
    finally:
        library.nvmlShutdown()


def _query_gpu(library: Any, number: int) -> dict[str, str]:
    handle, name = ctypes.c_void_p(), ctypes.create_string_buffer(256)
    _call_nvml(library, "nvmlDeviceGetHandleByIndex_v2", number, ctypes.byref(handle))
    _call_nvml(library, "nvmlDeviceGetName", handle, name, len(name))
    both = major, minor = ctypes.c_int(), ctypes.c_int()
    _call_nvml(library, "nvmlDeviceGetCudaComputeCapability", handle, *map(ctypes.byref, both))
    memory = (ctypes.c_ulonglong * 3)()  # nvmlMemory_t: total, free, used
    _call_nvml(library, "nvmlDeviceGetMemoryInfo", handle, memory)
    return {
        "name": name.value.decode("utf-8", "replace"),
        "capability": f"{major.value}.{minor.value}",
        "model": _query_driver_model(library, handle),
        "memory": str(memory[0] >> 20),
    }


def _query_driver_model(library: Any, handle: ctypes.c_void_p) -> str:
    current, pending = ctypes.c_int(), ctypes.c_int()
    both = ctypes.byref(current), ctypes.byref(pending)
    # The second version knows MCDM; older drivers only have the first.
    # https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
    newer = getattr(library, "nvmlDeviceGetDriverModel_v2", None)
    code = (newer or library.nvmlDeviceGetDriverModel)(handle, *both)
    if code == _NOT_SUPPORTED:
        return BRIDGED
    return "" if code else _MODELS.get(current.value, f"model {current.value}")


def _call_nvml(library: Any, name: str, *arguments: object) -> None:
    if code := getattr(library, name)(*arguments):
        raise OSError(f"{name} returned {code}")
