"""Asks the driver which GPUs there are. Run as a program, it prints the answer as JSON.

In a process of its own, because a broken driver can end the process that asks it. Only the
driver is asked (``nvcuda.dll``, ``libcuda.so.1``, and NVML for its version and model): what is
said here is true whatever torch or the wheel under test think.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import TypedDict

MARK = "ANSWER"
_WINDOWS = sys.platform == "win32"
_DRIVER = "nvcuda.dll" if _WINDOWS else "libcuda.so.1"
_NVML = "nvml.dll" if _WINDOWS else "libnvidia-ml.so.1"
_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
_COMPILER = "libnvidia-ptxjitcompiler.so.1"  # Linux' driver loads it to compile PTX
#: CU_DEVICE_ATTRIBUTE_*.
_ATTRIBUTES = {"multiprocessors": 16, "compute_mode": 20, "tcc": 35, "major": 75, "minor": 76}
_LOADING = {1: "eager", 2: "lazy"}  # CU_MODULE_EAGER_LOADING, CU_MODULE_LAZY_LOADING
_MODELS = {0: "WDDM", 1: "TCC", 2: "MCDM"}  # nvmlDriverModel_t


class _Device(TypedDict, total=False):
    uuid: str
    """32 hexadecimal digits."""
    compute_mode: int
    """CUcomputemode: 0 any process, 2 none, 3 one process at a time."""


class Device(_Device):
    """A GPU."""

    index: int
    name: str
    arch: str
    """Such as ``90``."""
    compute_capability: str
    """Such as ``9.0``."""
    multiprocessors: int
    memory_mib: int
    bus: str
    number: int
    """As nvidia-smi counts it; -1: NVML does not say."""
    driver_model: str


class _Extra(TypedDict, total=False):
    module_loading: str
    nvml: str
    """Why NVML was not asked."""
    code: int
    """The CUresult with which the driver failed."""
    bridge: str
    """What a bridge to another system's driver calls itself; empty: the driver is none."""
    libraries: dict[str, str]
    """On Linux the driver's libraries that were loaded, and their paths."""
    compiler: str
    """On Linux why PTX cannot be compiled; empty where it can."""


class Gpu(_Extra):
    """What the driver says."""

    skip: str
    """Why there is no GPU."""
    broken: str
    """Why the driver fails."""
    cuda: str
    """The newest CUDA that the driver knows (``13.0``)."""
    driver_version: str
    devices: list[Device]


class DriverError(Exception):
    """A call of the driver's failed; ``code`` is its CUresult."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call} returned {code}")
        self.code = code


def _load(name: str) -> ctypes.CDLL:
    return ctypes.WinDLL(name) if _WINDOWS else ctypes.CDLL(name)  # type: ignore[attr-defined]


def _call(library: ctypes.CDLL, name: str, *arguments: object) -> None:
    if code := getattr(library, name)(*arguments):
        raise DriverError(name, code)


def _number(library: ctypes.CDLL, name: str, *arguments: object) -> int:
    value = ctypes.c_int()
    _call(library, name, ctypes.byref(value), *arguments)
    return value.value


def module_loading() -> str:
    """``lazy``, ``eager``, or why the driver does not say; asked of this very process."""
    try:
        driver = _load(_DRIVER)
        _call(driver, "cuInit", 0)
        mode = _number(driver, "cuModuleGetLoadingMode")
    except (OSError, AttributeError, DriverError) as error:
        return f"not reported: {error}"
    return _LOADING.get(mode, f"not reported: mode {mode}")


def _bridge(driver: ctypes.CDLL) -> str:
    """A bridge exports a function that no driver has."""
    try:
        name = driver.driver_bridge
    except AttributeError:
        return ""
    name.restype = ctypes.c_char_p
    return bytes(name() or b"bridge").decode(errors="replace")


def _uuid(driver: ctypes.CDLL, handle: int) -> str:
    buffer = ctypes.create_string_buffer(16)
    _call(driver, "cuDeviceGetUuid", buffer, handle)
    return buffer.raw.hex()


def _loaded() -> dict[str, str]:
    """The driver's libraries in this very process, by name without version."""
    found = {}
    for row in Path("/proc/self/maps").read_text("utf-8", "replace").splitlines():
        path = row.partition("/")[2]
        name = path.rpartition("/")[2].partition(".so")[0]
        if name in ("libcuda", "libnvidia-ml"):
            found[name] = f"/{path}"
    return found


def _on_linux(facts: Gpu) -> None:
    """Add the driver's files, and whether the compiler of PTX loads."""
    try:
        _load(_COMPILER)
    except OSError as error:
        facts["compiler"] = str(error)
    facts["libraries"] = _loaded()


def lost() -> bool:
    """Whether a context of this process has ended in an error that every later call would repeat.

    That of this thread, and each GPU's primary one: threads of a package's own may use that alone.
    """
    context = ctypes.c_void_p()
    try:
        driver = _load(_DRIVER)
        if driver.cuCtxGetCurrent(ctypes.byref(context)):
            return False  # nothing has begun in this process
        if context:
            _call(driver, "cuCtxSynchronize")
        for index in range(_number(driver, "cuDeviceGetCount")):
            _finish_primary(driver, _number(driver, "cuDeviceGet", index))
    except DriverError:
        return True
    except (OSError, AttributeError):
        return False
    return False


def _finish_primary(driver: ctypes.CDLL, handle: int) -> None:
    """Wait for a GPU's primary context, if there is one; :class:`DriverError` if it is lost."""
    flags, active, context = ctypes.c_uint(), ctypes.c_int(), ctypes.c_void_p()
    state = ctypes.byref(flags), ctypes.byref(active)
    _call(driver, "cuDevicePrimaryCtxGetState", handle, *state)
    if not active:
        return
    _call(driver, "cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
    try:
        _call(driver, "cuCtxPushCurrent_v2", context)
        try:
            _call(driver, "cuCtxSynchronize")
        finally:
            driver.cuCtxPopCurrent_v2(ctypes.byref(context))
    finally:
        driver.cuDevicePrimaryCtxRelease_v2(handle)


def _device(driver: ctypes.CDLL, index: int) -> Device:
    handle = _number(driver, "cuDeviceGet", index)
    name = ctypes.create_string_buffer(256)
    _call(driver, "cuDeviceGetName", name, len(name), handle)
    memory = ctypes.c_size_t()
    _call(driver, "cuDeviceTotalMem_v2", ctypes.byref(memory), handle)
    bus = ctypes.create_string_buffer(64)
    _call(driver, "cuDeviceGetPCIBusId", bus, len(bus), handle)
    attributes = {
        key: _number(driver, "cuDeviceGetAttribute", number, handle)
        for key, number in _ATTRIBUTES.items()
    }
    try:
        uuid = _uuid(driver, handle)
    except AttributeError:  # of a driver before CUDA 9.2
        uuid = ""
    return {
        "index": index,
        "name": name.value.decode(errors="replace"),
        "arch": f"{attributes['major']}{attributes['minor']}",
        "compute_capability": f"{attributes['major']}.{attributes['minor']}",
        "multiprocessors": attributes["multiprocessors"],
        "memory_mib": memory.value >> 20,
        "bus": bus.value.decode(errors="replace"),
        "number": -1,
        "uuid": uuid,
        "compute_mode": attributes["compute_mode"],
        "driver_model": ("TCC" if attributes["tcc"] else "unknown") if _WINDOWS else "Linux",
    }


def _ask_nvml(facts: Gpu) -> None:
    """Add the driver's version, each GPU's number and on Windows its driver model, as NVML tells.

    NVML sees every GPU, whatever CUDA_VISIBLE_DEVICES leaves of them.
    """
    nvml = _load(_NVML)
    _call(nvml, "nvmlInit_v2")
    version = ctypes.create_string_buffer(96)
    _call(nvml, "nvmlSystemGetDriverVersion", version, len(version))
    facts["driver_version"] = version.value.decode(errors="replace")
    for device in facts["devices"]:
        handle, current, pending = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
        place, number = ctypes.c_char_p(device["bus"].encode()), ctypes.c_uint()
        _call(nvml, "nvmlDeviceGetHandleByPciBusId_v2", place, ctypes.byref(handle))
        _call(nvml, "nvmlDeviceGetIndex", handle, ctypes.byref(number))
        device["number"] = number.value
        if not _WINDOWS or facts.get("bridge"):  # Linux' driver has no such model
            continue
        both = ctypes.byref(current), ctypes.byref(pending)
        # The second version knows MCDM; older drivers have the first alone.
        name = "nvmlDeviceGetDriverModel"
        _call(nvml, f"{name}_v2" if hasattr(nvml, f"{name}_v2") else name, handle, *both)
        device["driver_model"] = _MODELS.get(current.value, f"model {current.value}")


def ask() -> Gpu:
    """What there is, or why there is nothing."""
    facts: Gpu = {
        "skip": "",
        "broken": "",
        "cuda": "",
        "driver_version": "unknown",
        "module_loading": "",
        "devices": [],
    }
    try:
        driver = _load(_DRIVER)
    except OSError:
        return facts | {"skip": f"no NVIDIA driver ({_DRIVER}) on this host"}
    facts["bridge"] = _bridge(driver)
    if not _WINDOWS:
        _on_linux(facts)
    try:
        _call(driver, "cuInit", 0)
        number = _number(driver, "cuDriverGetVersion")
        facts["cuda"] = f"{number // 1000}.{number % 1000 // 10}"
        count = _number(driver, "cuDeviceGetCount")
        facts["devices"] = [_device(driver, index) for index in range(count)]
    except DriverError as error:
        if error.code == _NO_DEVICE:
            return facts | {"skip": f"no CUDA device on this host ({error})"}
        broken = f"the NVIDIA driver does not answer: {error}"
        return facts | {"broken": broken, "code": error.code}
    except AttributeError as error:
        return facts | {"broken": f"the NVIDIA driver is too old or not whole: {error}"}
    if not facts["devices"]:
        return facts | {"skip": "no CUDA device on this host (the driver counts 0)"}
    for device in facts["devices"] if facts["bridge"] else ():
        device["driver_model"] = "Linux"
    facts["module_loading"] = module_loading()
    try:
        _ask_nvml(facts)
    except (OSError, AttributeError, DriverError) as error:
        facts["nvml"] = f"not asked: {error}"
    if not _WINDOWS:
        facts["libraries"] = _loaded()  # with NVML's
    return facts


if __name__ == "__main__":
    print(MARK + json.dumps(ask()))
