"""What the driver says of itself: functions by name, tables, occupancy, logs, errors, contexts."""

from __future__ import annotations

import ctypes as c
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from driver import (
    CALLBACK,
    I32,
    INVALID_VALUE,
    NOT_FOUND,
    U32,
    U64,
    Agree,
    Gpu,
    P,
    Taken,
    call,
    driver,
    error_text,
    kernel,
    launch,
    made,
    module,
    prototype,
    put,
    status,
    words,
)
from kernels import BASIC

_VERSION_TOO_LOW = 2  # CUdriverProcAddressQueryResult
#: Tables that every run-time asks for: its own, its handshake's, its context's storage.
_TABLES = (
    "6bd5fb6c5bf4e74a8987d93912fd9df9",
    "d4082055bde6704b8d34ba123c66e1f2",
    "c693336e1121df11a8c368f355d89593",
)
#: Some functions and the version of CUDA in which the first of that name came.
_NAMES = {
    b"cuLaunchHostFunc": 10000, b"cuGraphCreate": 10000, b"cuGraphAddHostNode": 10000,
    b"cuMemAllocAsync": 11020, b"cuMemPoolCreate": 11020, b"cuUserObjectCreate": 11030,
    b"cuGetProcAddress": 11030, b"cuLaunchKernelEx": 11060,
    b"cuOccupancyMaxActiveClusters": 11070, b"cuLibraryLoadData": 12000,
    b"cuTensorMapEncodeTiled": 12000, b"cuKernelGetName": 12030,
}  # fmt: skip
_HERE = Path(__file__).resolve()
#: Sent along by who sends these files; in the checkout it is the bridge's own.
_LISTED = _HERE.with_name("cuda-names.txt")
if not _LISTED.exists():
    _LISTED = _HERE.parents[3] / "pipelines/hosts/sandbox/bridge/source/cuda-names.txt"


def _by_name(name: bytes, version: int = 13000, flags: int = 0) -> tuple[int, int | None, int]:
    found, told = P(), I32(9)
    code = status("cuGetProcAddress_v2", name, c.byref(found), version, U64(flags), c.byref(told))
    return code, found.value, told.value


def test_whose_driver_it_is(record_property: Callable[[str, object], None]) -> None:
    """A bridge says so; NVIDIA's own has no such function."""
    tell = getattr(driver(), "driver_bridge", None)
    if tell is not None:
        tell.restype = c.c_char_p
        assert b"libcuda.so.1" in tell()
    record_property("bridge", tell().decode() if tell else "none")


def test_versions_and_names(gpu: Gpu, agree: Agree) -> None:
    version, name, uuid = I32(), c.create_string_buffer(100), (c.c_ubyte * 16)()
    call("cuDriverGetVersion", c.byref(version))
    call("cuDeviceGetName", name, 100, gpu.device)
    call("cuDeviceGetUuid_v2", uuid, gpu.device)
    assert version.value >= 12000
    assert name.value
    assert any(uuid)
    place, again = c.create_string_buffer(20), I32(-1)
    call("cuDeviceGetPCIBusId", place, 20, gpu.device)
    assert re.fullmatch(rb"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.0", place.value)
    call("cuDeviceGetByPCIBusId", c.byref(again), place)
    assert again.value == gpu.device
    assert made("cuDeviceGetCount", kind=I32) >= 1
    agree("device", [version.value, name.value.decode(), bytes(uuid).hex(), place.value.decode()])


def test_errors_have_names_and_texts(agree: Agree) -> None:
    told = {}
    for code in range(1000):
        name = c.c_char_p()
        if not status("cuGetErrorName", code, c.byref(name)):
            told[code] = [(name.value or b"").decode(), error_text(code)]
    assert told[0] == ["CUDA_SUCCESS", "no error"]
    assert told[700] == ["CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"]
    assert len(told) > 80
    agree("errors", told)
    assert status("cuGetErrorName", 12345, c.byref(c.c_char_p())) == INVALID_VALUE


def test_functions_by_name(agree: Agree) -> None:
    for name, version in _NAMES.items():
        code, found, state = _by_name(name)
        assert (code, state) == (0, 0), name
        assert found, name
        assert _by_name(name)[1] == found, name  # callers compare
        assert _by_name(name, version - 10)[1:] == (None, _VERSION_TOO_LOW), name
    assert _by_name(b"cuNothing")[1:] == (None, 1)
    agree("absent", [_by_name(b"cuNothing")[0], _by_name(b"cuLaunchKernelEx", 11050)[0]])
    told = I32()
    assert prototype(_by_name(b"cuDriverGetVersion")[1], P)(c.addressof(told)) == 0
    assert told.value == made("cuDriverGetVersion", kind=I32)
    listed = {name: _by_name(name.encode())[::2] for name in _pinned()}
    assert sum(code == 0 for code, _ in listed.values()) > 300
    agree("listed", listed)


def _pinned() -> list[str]:
    """The bridge's list, without what marks versions and streams."""
    lines = _LISTED.read_text("ascii").split()
    return sorted({re.sub(r"(_v\d+|_ptds|_ptsz)+$", "", line) for line in lines})


def test_every_exported_function_is_there() -> None:
    """A name unknown to this driver is not found on Linux, and answers 500 through a bridge."""
    names = _LISTED.read_text("ascii").split()
    there = [name for name in names if getattr(driver(), name, None) is not None]
    assert len(there) > 500
    bridged = getattr(driver(), "driver_bridge", None) is not None
    if bridged:
        assert there == names


def test_the_same_by_name_and_by_export(memory: Taken) -> None:
    """Behaviour, not only an address: with numbers, floats, callbacks and an error."""
    p = memory(8)
    fill = prototype(_by_name(b"cuMemsetD32")[1], U64, U32, c.c_size_t)
    assert fill(p, 77, 2) == 0
    assert words(p, 2) == [77, 77]
    reference, bias = made("cuTexRefCreate"), c.c_float()
    set_bias = prototype(_by_name(b"cuTexRefSetMipmapLevelBias")[1], P, c.c_float)
    assert set_bias(reference, 0.375) == 0
    call("cuTexRefGetMipmapLevelBias", c.byref(bias), reference)
    assert bias.value == 0.375
    call("cuTexRefDestroy", reference)
    heard: list[int] = []
    host = CALLBACK(None, P)(heard.append)
    enqueue = prototype(_by_name(b"cuLaunchHostFunc")[1], P, type(host), P)
    assert enqueue(None, host, 41) == 0
    call("cuCtxSynchronize")
    assert heard == [41]
    found = P()
    get = prototype(_by_name(b"cuModuleGetFunction")[1], P, P, c.c_char_p)
    assert get(c.addressof(found), module(BASIC), b"nothing") == NOT_FOUND
    assert get(c.addressof(found), module(BASIC), b"add") == 0
    assert found.value == kernel("add", BASIC)
    ask = prototype(_by_name(b"cuGetProcAddress")[1], c.c_char_p, P, I32, U64, P)
    assert ask(b"cuMemsetD32", c.addressof(found), 13000, 0, None) == 0
    assert found.value == _by_name(b"cuMemsetD32")[1]


def test_tables_are_there(agree: Agree) -> None:
    for text in _TABLES:
        found, again = P(), P()
        given = (c.c_ubyte * 16).from_buffer_copy(bytes.fromhex(text))
        call("cuGetExportTable", c.byref(found), given)
        call("cuGetExportTable", c.byref(again), given)
        assert found.value == again.value, text
        assert found.value
        assert any((U64 * 3).from_address(found.value)), text
    unknown = (c.c_ubyte * 16)(*range(16))
    agree("unknown", status("cuGetExportTable", c.byref(P()), unknown))


def test_occupancy_with_a_callback(agree: Agree) -> None:
    asked: list[int] = []
    grid, block = I32(), I32()

    def shared(size: int) -> int:
        asked.append(size)
        return 16 * size

    wanted = CALLBACK(c.c_size_t, I32)(shared)
    function, name = kernel("reverse", BASIC), "cuOccupancyMaxPotentialBlockSize"
    call(name, c.byref(grid), c.byref(block), function, wanted, 0, 512)
    assert asked
    assert set(asked) <= set(range(1, 513))
    assert 32 <= block.value <= 512
    flags = f"{name}WithFlags"
    other = I32(), I32()
    call(flags, c.byref(other[0]), c.byref(other[1]), function, wanted, 0, 512, 0)
    assert (other[0].value, other[1].value) == (grid.value, block.value)
    many = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
    blocks = made(many, function, block.value, 16 * block.value, kind=I32)
    assert blocks >= 1
    room = made(
        "cuOccupancyAvailableDynamicSMemPerBlock", function, blocks, block.value, kind=c.c_size_t
    )
    assert room >= 16 * block.value
    agree("occupancy", [grid.value, block.value, blocks, room, asked])


def test_the_log_of_errors(tmp_path: Path) -> None:
    """The driver's own words for an error, by callback, in memory and in a file."""
    if getattr(driver(), "cuLogsRegisterCallback", None) is None:
        pytest.skip("this driver has no log of errors: it came with CUDA 12.9")
    heard: list[tuple[int, int, bytes]] = []

    def log(data: int, level: int, text: int, size: int) -> None:
        heard.append((data, level, c.string_at(text, size)))

    listener, handle = CALLBACK(None, P, I32, P, c.c_size_t)(log), P()
    call("cuLogsRegisterCallback", listener, 33, c.byref(handle))
    try:
        assert status("cuMemAlloc_v2", c.byref(U64()), 1 << 60) == 2
        wrong = status(
            "cuLaunchKernel", kernel("add", BASIC), 1, 1, 1, 9999, 1, 1, 0, 0, None, None
        )
        assert wrong == INVALID_VALUE
    finally:
        call("cuLogsUnregisterCallback", handle)
    if not heard:
        pytest.skip("this driver logs nothing of these two errors")
    assert {(data, level) for data, level, _ in heard} <= {(33, 0), (33, 1)}
    said = heard[-1][2].strip(b"\0\r\n ").rpartition(b"] ")[2]  # without time and thread
    assert len(said) > 10
    text, size = c.create_string_buffer(25600), c.c_size_t(25600)
    call("cuLogsDumpToMemory", None, text, c.byref(size), 0)
    assert said in text.raw[: size.value]
    file = tmp_path / "a log.txt"
    call("cuLogsDumpToFile", None, str(file).encode(), 0)
    assert said in file.read_bytes()


def test_notices_of_the_device(gpu: Gpu, agree: Agree) -> None:
    """Registered and taken back: when the system gives one is not ours to say."""
    heard: list[int] = []
    listener = CALLBACK(None, P, P, P)(lambda *a: heard.append(1))
    handle, name = P(), "cuDeviceRegisterAsyncNotification"
    code = status(name, gpu.device, listener, 5, c.byref(handle))
    agree("code", code)
    assert code in (0, 801)
    if not code:
        assert handle.value
        call("cuDeviceUnregisterAsyncNotification", gpu.device, handle)
    assert heard == []


def test_a_profiler_may_be_told() -> None:
    call("cuProfilerStart")
    call("cuProfilerStop")


def test_contexts(gpu: Gpu, memory: Taken) -> None:
    assert made("cuCtxGetCurrent") == gpu.context
    assert made("cuCtxGetDevice", kind=I32) == gpu.device
    call("cuCtxPushCurrent_v2", gpu.context)
    assert made("cuCtxPopCurrent_v2") == gpu.context
    flags, active = U32(), I32()
    call("cuDevicePrimaryCtxGetState", gpu.device, c.byref(flags), c.byref(active))
    assert active.value == 1
    limit = c.c_size_t()
    call("cuCtxSetLimit", 0, 4096)  # CU_LIMIT_STACK_SIZE
    call("cuCtxGetLimit", c.byref(limit), 0)
    assert 4096 <= limit.value < 8192
    seen: list[int | None] = []
    thread = threading.Thread(target=lambda: seen.append(made("cuCtxGetCurrent")))
    thread.start()
    thread.join()
    assert seen == [None]  # it is this thread's
    p, add = memory(4), kernel("add", BASIC)
    put(p, [1])
    launch(add, p, U32(1))
    assert words(p, 1) == [2]


def test_a_context_of_its_own(gpu: Gpu) -> None:
    create = "cuCtxCreate_v2"
    own = made(create, 0, gpu.device)
    try:
        assert made("cuCtxGetCurrent") == own != gpu.context
        p = made("cuMemAlloc_v2", 4096, kind=U64)
        call("cuMemsetD32_v2", p, 3, 1024)
        assert words(p, 1024) == [3] * 1024
        assert made("cuPointerGetAttribute", 1, p) == own
    finally:
        call("cuCtxDestroy_v2", own)
    gpu.use()


def test_peers(gpu: Gpu, memory: Taken) -> None:
    count = made("cuDeviceGetCount", kind=I32)
    if count < 2:
        pytest.skip("one GPU: peers are two")
    other = made("cuDeviceGet", 1, kind=I32)
    if not made("cuDeviceCanAccessPeer", gpu.device, other, kind=I32):
        pytest.skip("the GPUs cannot reach each other")
    far = made("cuDevicePrimaryCtxRetain", other)
    p = memory(4096)
    put(p, list(range(1024)))
    call("cuCtxSetCurrent", far)
    q = made("cuMemAlloc_v2", 4096, kind=U64)
    call("cuMemcpyPeer", q, far, p, gpu.context, 4096)
    call("cuCtxSynchronize")
    assert words(q, 1024) == list(range(1024))
    call("cuMemFree_v2", q)
    gpu.use()
    call("cuDevicePrimaryCtxRelease_v2", other)
