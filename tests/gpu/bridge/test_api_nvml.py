"""NVML: the same GPU under the same name as CUDA's, and what it says of memory and driver."""

from __future__ import annotations

import ctypes as c
import uuid
from collections.abc import Iterator

import pytest
from driver import NVML, U32, Agree, Gpu, P, call, load


class _Memory(c.Structure):
    _fields_ = (("total", c.c_uint64), ("free", c.c_uint64), ("used", c.c_uint64))


@pytest.fixture
def nvml() -> Iterator[c.CDLL]:
    library = load(NVML)
    assert library.nvmlInit_v2() == 0
    yield library
    assert library.nvmlShutdown() == 0


def _handle(nvml: c.CDLL, gpu: Gpu) -> P:
    raw, found = (c.c_ubyte * 16)(), P()
    call("cuDeviceGetUuid_v2", raw, gpu.device)
    name = f"GPU-{uuid.UUID(bytes=bytes(raw))}".encode()
    assert nvml.nvmlDeviceGetHandleByUUID(name, c.byref(found)) == 0
    assert found.value
    told = c.create_string_buffer(100)
    assert nvml.nvmlDeviceGetUUID(found, told, 100) == 0
    assert told.value == name
    return found


def test_the_same_gpu_as_cuda(nvml: c.CDLL, gpu: Gpu, agree: Agree) -> None:
    handle = _handle(nvml, gpu)
    name, cudas, memory = c.create_string_buffer(100), c.create_string_buffer(100), _Memory()
    assert nvml.nvmlDeviceGetName(handle, name, 100) == 0
    call("cuDeviceGetName", cudas, 100, gpu.device)
    assert name.value == cudas.value
    assert nvml.nvmlDeviceGetMemoryInfo(handle, c.byref(memory)) == 0
    total = c.c_size_t()
    call("cuDeviceTotalMem_v2", c.byref(total), gpu.device)
    assert total.value <= memory.total < 1.2 * total.value
    assert 0 < memory.used < memory.total
    major, minor = c.c_int(), c.c_int()
    assert nvml.nvmlDeviceGetCudaComputeCapability(handle, c.byref(major), c.byref(minor)) == 0
    assert 10 * major.value + minor.value == gpu.capability
    agree("gpu", [name.value.decode(), memory.total])


def test_the_driver(nvml: c.CDLL, agree: Agree) -> None:
    driver, cuda, count = c.create_string_buffer(80), c.c_int(), U32()
    assert nvml.nvmlSystemGetDriverVersion(driver, 80) == 0
    assert driver.value.split(b".")[0].isdigit()
    assert nvml.nvmlSystemGetCudaDriverVersion_v2(c.byref(cuda)) == 0
    assert cuda.value >= 12000
    assert nvml.nvmlDeviceGetCount_v2(c.byref(count)) == 0
    assert count.value >= 1
    agree("driver", [driver.value.decode(), cuda.value, count.value])


def test_errors(nvml: c.CDLL) -> None:
    nvml.nvmlErrorString.restype = c.c_char_p
    assert nvml.nvmlErrorString(0) == b"Success"
    assert (
        nvml.nvmlDeviceGetHandleByIndex_v2(9999, c.byref(P())) == 2
    )  # NVML_ERROR_INVALID_ARGUMENT
    wrong = b"GPU-00000000-0000-0000-0000-000000000000"
    assert nvml.nvmlDeviceGetHandleByUUID(wrong, c.byref(P())) in (2, 6)  # or NOT_FOUND


def test_what_moves(nvml: c.CDLL, gpu: Gpu) -> None:
    handle, watts, degrees = _handle(nvml, gpu), U32(), U32()
    assert nvml.nvmlDeviceGetPowerUsage(handle, c.byref(watts)) in (0, 3)  # or not supported
    assert nvml.nvmlDeviceGetTemperature(handle, 0, c.byref(degrees)) in (0, 3)
    assert degrees.value < 120
    clock = U32()
    assert nvml.nvmlDeviceGetClockInfo(handle, 1, c.byref(clock)) == 0  # SM
    assert 0 < clock.value < 10_000
