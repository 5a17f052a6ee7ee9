"""Memory of each kind: copies, pools, in order of a stream, managed, mapped by hand, registered."""

from __future__ import annotations

import ctypes as c
import sys

import pytest
from driver import (
    I32,
    INVALID_VALUE,
    NOT_SUPPORTED,
    U32,
    U64,
    Agree,
    DriverError,
    Gpu,
    P,
    Taken,
    address_of,
    call,
    kernel,
    launch,
    made,
    prototype,
    put,
    status,
    wait,
    words,
)
from kernels import BASIC
from structures import Access, AllocationProperties, Copy2D, Copy3D, Location, PoolProperties

_MIB = 1 << 20
_HOST, _DEVICE = 1, 2  # CUmemorytype
_GPU = 1  # CUmemLocationType


def test_setting(memory: Taken) -> None:
    p = memory(64)
    call("cuMemsetD8_v2", p, 0xAB, 8)
    call("cuMemsetD16_v2", p + 8, 0x1234, 4)
    call("cuMemsetD32_v2", p + 16, 0xCAFEF00D, 2)
    call("cuMemsetD2D32_v2", p + 32, 16, 7, 2, 2)  # 2 rows of 2 words, 16 bytes apart
    assert words(p, 6) == [0xABABABAB] * 2 + [0x12341234] * 2 + [0xCAFEF00D] * 2
    assert words(p + 24, 8) == [0, 0, 7, 7, 0, 0, 7, 7]


def test_copies_on_the_gpu(memory: Taken, stream: int) -> None:
    a, b = memory(4 * 1000), memory(4 * 1000)
    put(a, list(range(1000)))
    call("cuMemcpyDtoDAsync_v2", b, a + 400, 4 * 500, stream)
    call("cuMemcpyAsync", b + 2000, a, 4 * 100, stream)
    wait(stream)
    assert words(b, 600) == list(range(100, 600)) + list(range(100))
    assert words(b + 2400, 400) == [0] * 400


def test_a_rectangle(memory: Taken) -> None:
    pitch = c.c_size_t()
    p = made("cuMemAllocPitch_v2", c.byref(pitch), 40, 8, 4, kind=U64)
    try:
        assert pitch.value >= 40
        source = (U32 * 100)(*range(100))  # 10 x 10, of which 4 x 3 from (2, 5)
        copy = Copy2D(
            source_x=8, source_y=5, source_type=_HOST, source_host=c.addressof(source),
            source_pitch=40, target_x=4, target_y=1, target_type=_DEVICE, target_address=p,
            target_pitch=pitch.value, width=16, height=3,
        )  # fmt: skip
        call("cuMemcpy2D_v2", c.byref(copy))
        rows = [words(p + pitch.value * (1 + row) + 4, 4) for row in range(3)]
        assert rows == [[10 * y + x for x in range(2, 6)] for y in range(5, 8)]
    finally:
        call("cuMemFree_v2", p)


def test_a_box(memory: Taken) -> None:
    p = memory(4 * 60)  # 5 x 4 x 3
    source = (U32 * 60)(*range(60))
    copy = Copy3D(
        source_type=_HOST, source_host=c.addressof(source), source_pitch=20, source_rows=4,
        source_x=4, source_y=1, source_z=1, target_type=_DEVICE, target_address=p,
        target_pitch=20, target_rows=4, target_z=0, width=12, height=2, depth=2,
    )  # fmt: skip
    call("cuMemcpy3D_v2", c.byref(copy))
    found = words(p, 60)
    for z in range(2):
        for y in range(2):
            for x in range(3):
                assert found[20 * z + 5 * y + x] == 20 * (z + 1) + 5 * (y + 1) + x + 1
    assert sum(found) == sum(20 * z + 5 * y + x for z in (1, 2) for y in (1, 2) for x in (1, 2, 3))


def test_pinned_and_mapped(stream: int) -> None:
    host = made("cuMemHostAlloc", 4096, 2)  # 2: mapped for the GPU
    try:
        seen = made("cuMemHostGetDevicePointer_v2", host, 0, kind=U64)
        launch(kernel("fill", BASIC), seen, U32(1024), U32(5), grid=8, block=128, stream=stream)
        wait(stream)
        assert list((U32 * 1024).from_address(host)) == list(range(5, 1029))
        assert made("cuMemHostGetFlags", host, kind=U32) & 2
    finally:
        call("cuMemFreeHost", host)


def test_registered(stream: int, memory: Taken) -> None:
    raw = c.create_string_buffer(3 * 4096)
    page = c.addressof(raw) + (-c.addressof(raw)) % 4096  # a page of our own
    place = (U32 * 1024).from_address(page)
    place[:] = list(range(1024))
    call("cuMemHostRegister_v2", page, 4096, 2)
    try:
        p = memory(4096)
        call("cuMemcpyHtoDAsync_v2", p, page, 4096, stream)
        wait(stream)
        assert words(p, 1024) == list(range(1024))
        twice = status("cuMemHostRegister_v2", page, 4096, 2)
        assert twice == 712  # CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
    finally:
        call("cuMemHostUnregister", page)


def test_what_an_address_is(gpu: Gpu, memory: Taken) -> None:
    p = memory(4096)
    assert made("cuPointerGetAttribute", 2, p + 100, kind=I32) == _DEVICE
    assert made("cuPointerGetAttribute", 1, p) == gpu.context
    size, base = c.c_size_t(), U64()
    call("cuMemGetAddressRange_v2", c.byref(base), c.byref(size), p + 100)
    assert (base.value, size.value) == (p, 4096)
    kinds, place, ordinal = (I32 * 2)(2, 9), I32(), I32()  # memory type and device
    data = (P * 2)(c.addressof(place), c.addressof(ordinal))
    call("cuPointerGetAttributes", 2, kinds, data, p)
    assert (place.value, ordinal.value) == (_DEVICE, gpu.device)
    assert status("cuPointerGetAttribute", c.byref(I32()), 2, 4096) == INVALID_VALUE


def test_how_much_there_is(gpu: Gpu, agree: Agree) -> None:
    free, total = c.c_size_t(), c.c_size_t()
    call("cuMemGetInfo_v2", c.byref(free), c.byref(total))
    assert 0 < free.value <= total.value
    assert total.value == made("cuDeviceTotalMem_v2", gpu.device, kind=c.c_size_t)
    agree("total", total.value)
    with pytest.raises(DriverError) as caught:
        made("cuMemAlloc_v2", 1 << 50, kind=U64)
    assert caught.value.code == 2  # CUDA_ERROR_OUT_OF_MEMORY


def test_allocation_in_a_stream(gpu: Gpu, stream: int) -> None:
    assert gpu.attribute(115) == 1  # memory pools
    for first in range(3):
        p = made("cuMemAllocAsync", 4096, stream, kind=U64)
        launch(kernel("fill", BASIC), p, U32(1024), U32(first), grid=8, block=128, stream=stream)
        found = (U32 * 1024)()
        call("cuMemcpyDtoHAsync_v2", found, p, 4096, stream)
        call("cuMemFreeAsync", p, stream)
        wait(stream)
        assert list(found) == list(range(first, first + 1024))


def test_a_pool(gpu: Gpu, stream: int) -> None:
    wanted = PoolProperties(type=1, location=Location(_GPU, gpu.device), maximum=64 * _MIB)
    pool = made("cuMemPoolCreate", c.byref(wanted))
    try:
        threshold = 4  # CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        call("cuMemPoolSetAttribute", pool, threshold, c.byref(U64(32 * _MIB)))
        kept = U64()
        call("cuMemPoolGetAttribute", pool, threshold, c.byref(kept))
        assert kept.value == 32 * _MIB
        p = made("cuMemAllocFromPoolAsync", 4 * _MIB, pool, stream, kind=U64)
        call("cuMemsetD32Async", p, 6, _MIB, stream)
        wait(stream)
        assert words(p + 4 * _MIB - 16, 4) == [6] * 4
        reserved, used = U64(), U64()
        call("cuMemPoolGetAttribute", pool, 5, c.byref(reserved))  # RESERVED_MEM_CURRENT
        call("cuMemPoolGetAttribute", pool, 7, c.byref(used))  # USED_MEM_CURRENT
        assert 4 * _MIB <= used.value <= reserved.value
        assert made("cuPointerGetAttribute", 17, p) == pool  # MEMPOOL_HANDLE
        access = I32()
        call("cuMemPoolGetAccess", c.byref(access), pool, c.byref(Location(_GPU, gpu.device)))
        assert access.value == 3  # reading and writing
        call("cuMemFreeAsync", p, stream)
        wait(stream)
        call("cuMemPoolGetAttribute", pool, 7, c.byref(used))
        assert used.value == 0
        call("cuMemPoolTrimTo", pool, 0)
        call("cuMemPoolGetAttribute", pool, 5, c.byref(reserved))
        assert reserved.value == 0
    finally:
        call("cuMemPoolDestroy", pool)


def test_the_default_pool(gpu: Gpu, agree: Agree) -> None:
    pool = made("cuDeviceGetDefaultMemPool", gpu.device)
    assert made("cuDeviceGetMemPool", gpu.device) == pool
    code = status("cuMemPoolDestroy", pool)
    assert code != 0
    agree("the default pool stays", code)


def test_a_pool_for_other_processes(gpu: Gpu, stream: int, agree: Agree) -> None:
    """Exported as a file descriptor, and taken in again here; WIN32 handles are Windows' alone."""
    descriptor, win32 = 1, 2  # CUmemAllocationHandleType
    place = Location(_GPU, gpu.device)
    wanted = PoolProperties(type=1, handles=descriptor, location=place, maximum=64 * _MIB)
    pool = made("cuMemPoolCreate", c.byref(wanted))
    handle, other, seen = I32(-1), P(), U64()
    call("cuMemPoolExportToShareableHandle", c.byref(handle), pool, descriptor, 0)
    assert handle.value > 2
    p = made("cuMemAllocFromPoolAsync", 4096, pool, stream, kind=U64)
    call("cuMemsetD32Async", p, 0x5EED, 1024, stream)
    wait(stream)
    data = (U64 * 8)()  # CUmemPoolPtrExportData
    call("cuMemPoolExportPointer", data, p)
    imported = status(
        "cuMemPoolImportFromShareableHandle", c.byref(other), handle.value, descriptor, 0
    )
    agree("import into the same process", imported)
    if imported == 0:
        again = status("cuMemPoolImportPointer", c.byref(seen), other, data)
        agree("a pointer in the same process", again)
        if again == 0:
            assert words(seen.value, 2) == [0x5EED] * 2
            call("cuMemFreeAsync", seen, stream)
            wait(stream)
        call("cuMemPoolDestroy", other)
    call("cuMemFreeAsync", p, stream)
    wait(stream)
    call("cuMemPoolDestroy", pool)
    refused = PoolProperties(type=1, handles=win32, location=place, security=None)
    code = status("cuMemPoolCreate", c.byref(P()), c.byref(refused))
    assert code in (INVALID_VALUE, NOT_SUPPORTED)  # which of them, is the bridge's own


def test_managed(gpu: Gpu, stream: int) -> None:
    """1 MiB, no more: see the driver's notes on oversubscription."""
    assert gpu.attribute(83) == 1  # managed memory
    p = made("cuMemAllocManaged", _MIB, 1, kind=U64)
    try:
        here = (U32 * (_MIB // 4)).from_address(p)
        here[0:4] = [1, 2, 3, 4]
        place = Location(_GPU, gpu.device)
        advise = prototype(address_of("cuMemAdvise_v2"), U64, c.c_size_t, I32, Location)
        assert advise(p, _MIB, 3, place) == 0  # SET_PREFERRED_LOCATION
        fetch = prototype(address_of("cuMemPrefetchAsync_v2"), U64, c.c_size_t, Location, U32, P)
        assert fetch(p, _MIB, place, 0, stream) == 0
        launch(kernel("add", BASIC), p, U32(10), stream=stream)
        launch(kernel("add", BASIC), p + _MIB - 4, U32(77), stream=stream)
        wait(stream)
        assert list(here[0:4]) == [11, 2, 3, 4]
        assert here[_MIB // 4 - 1] == 77
        kind = I32()
        call("cuMemRangeGetAttribute", c.byref(kind), 4, 5, p, _MIB)  # PREFERRED_LOCATION_TYPE
        assert kind.value == _GPU
        last = I32(-9)
        call("cuMemRangeGetAttribute", c.byref(last), 4, 4, p, _MIB)  # LAST_PREFETCH_LOCATION
        assert last.value == gpu.device
        assert made("cuPointerGetAttribute", 8, p, kind=I32) == 1  # IS_MANAGED
    finally:
        wait()
        call("cuMemFree_v2", p)


def test_mapped_by_hand(gpu: Gpu) -> None:
    assert gpu.attribute(102) == 1  # virtual memory management
    wanted = AllocationProperties(type=1, location=Location(_GPU, gpu.device))
    step = made("cuMemGetAllocationGranularity", c.byref(wanted), 0, kind=c.c_size_t)
    assert step >= 4096
    where = made("cuMemAddressReserve", 2 * step, 0, 0, 0, kind=U64)
    first = made("cuMemCreate", step, c.byref(wanted), 0, kind=U64)
    second = made("cuMemCreate", step, c.byref(wanted), 0, kind=U64)
    access = Access(Location(_GPU, gpu.device), 3)
    call("cuMemMap", where, step, 0, first, 0)
    call("cuMemMap", where + step, step, 0, second, 0)
    call("cuMemSetAccess", where, 2 * step, c.byref(access), 1)
    flags = made("cuMemGetAccess", c.byref(access.location), where, kind=c.c_ulonglong)
    assert flags == 3
    call("cuMemsetD32_v2", where, 1, step // 4)
    call("cuMemsetD32_v2", where + step, 2, step // 4)
    assert words(where + step - 8, 2) + words(where + step, 2) == [1, 1, 2, 2]
    call("cuMemRelease", made("cuMemRetainAllocationHandle", where, kind=U64))
    call("cuMemUnmap", where, 2 * step)
    call("cuMemMap", where, step, 0, second, 0)  # the other way round
    call("cuMemMap", where + step, step, 0, first, 0)
    call("cuMemSetAccess", where, 2 * step, c.byref(access), 1)
    assert words(where + step - 8, 2) + words(where + step, 2) == [2, 2, 1, 1]
    call("cuMemUnmap", where, 2 * step)
    for handle in (first, second):
        call("cuMemRelease", handle)
    call("cuMemAddressFree", where, 2 * step)


def test_the_platform_is_the_one_that_is_tested(gpu: Gpu, agree: Agree) -> None:
    """Word size and attributes: all that the driver knows of this GPU."""
    assert c.sizeof(P) == 8
    assert sys.maxsize == 2**63 - 1
    known = {}
    for number in range(1, 150):
        value = I32()
        if not status("cuDeviceGetAttribute", c.byref(value), number, gpu.device):
            known[number] = value.value
    assert len(known) > 100
    agree("attributes", known)
