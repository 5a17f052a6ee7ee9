"""Kernels from PTX with numbers that Python knows: each launch, modules, JIT, linker, libraries."""

from __future__ import annotations

import ctypes as c
import time
from pathlib import Path

import pytest
from driver import (
    F32,
    FILE_NOT_FOUND,
    I32,
    INVALID_PTX,
    INVALID_VALUE,
    NOT_FOUND,
    U32,
    U64,
    Agree,
    DriverError,
    Gpu,
    P,
    Parameters,
    Taken,
    call,
    kernel,
    launch,
    made,
    module,
    put,
    status,
    wait,
    words,
)
from kernels import BASIC, CALLEE, CALLER, HOPPER
from structures import LaunchAttribute, LaunchConfig

_CLUSTER, _COOPERATIVE = 4, 2  # CUlaunchAttributeID
_PTX, _CUBIN = 1, 0  # CUjitInputType


class _Twelve(c.Structure):
    _fields_ = (("first", U32), ("second", U32), ("third", U32))


def test_a_grid_of_blocks(memory: Taken) -> None:
    p = memory(4 * 1000)
    launch(kernel("fill", BASIC), p, U32(1000), U32(7), grid=8, block=128)
    assert words(p, 1000) == [7 + i for i in range(1000)]


def test_floats(memory: Taken) -> None:
    x, y, n = memory(4 * 5000), memory(4 * 5000), 5000
    put(x, [i / 4 for i in range(n)], F32)
    put(y, [-i for i in range(n)], F32)
    launch(kernel("saxpy", BASIC), x, y, F32(2.5), U32(n), grid=20, block=256)
    assert words(y, n, F32) == [2.5 * (i / 4) - i for i in range(n)]  # exact in 24 bits


def test_three_dimensions_and_shared_memory(memory: Taken) -> None:
    p = memory(4 * 512)
    put(p, list(range(512)))
    launch(kernel("reverse", BASIC), p, block=512, shared=2048)
    assert words(p, 512) == list(range(511, -1, -1))
    total = memory(4)
    launch(kernel("add", BASIC), total, U32(3), grid=(2, 3, 5), block=(4, 2, 2))
    assert words(total, 1) == [3 * 2 * 3 * 5 * 16]


def test_parameters_of_every_size(memory: Taken) -> None:
    p = memory(64)
    launch(
        kernel("sizes", BASIC),
        *(c.c_uint8(0xA5), c.c_uint16(0xBEEF), U32(0xDEADBEEF), 0x0123456789ABCDEF),
        *(_Twelve(0x11111111, 2, 0x33333333), c.c_double(-2.5), p),
    )
    minus = 0xC004000000000000  # -2.5
    said = [0xA5, 0xBEEF, 0xDEADBEEF, 0x0123456789ABCDEF, 0x11111111, 0x33333333, minus]
    assert words(p, 7, U64) == said


def test_parameters_in_one_buffer(memory: Taken) -> None:
    p = memory(4)
    buffer = (c.c_ubyte * 12).from_buffer_copy(bytes(U64(p)) + bytes(U32(99)))
    size = c.c_size_t(12)
    extra = (P * 5)(1, c.addressof(buffer), 2, c.addressof(size), 0)
    call("cuLaunchKernel", kernel("add", BASIC), 1, 1, 1, 1, 1, 1, 0, 0, None, extra)
    assert words(p, 1) == [99]


def test_variables_of_a_module(memory: Taken) -> None:
    own = made("cuModuleLoadData", BASIC.encode())
    try:
        size = c.c_size_t()
        counter = made("cuModuleGetGlobal_v2", c.byref(size), own, b"counter", kind=U64)
        assert size.value == 8
        assert words(counter, 1, U64) == [5]
        put(counter, [41], U64)
        p = memory(40)
        function = made("cuModuleGetFunction", own, b"globals")
        launch(function, p)
        launch(function, p)
        assert words(p, 5, U64) == [42, 11, 22, 33, 44]
        assert words(counter, 1, U64) == [43]
        nothing = status("cuModuleGetGlobal_v2", c.byref(U64()), c.byref(size), own, b"nothing")
        assert nothing == NOT_FOUND
    finally:
        call("cuModuleUnload", own)


def test_wrong_launches_are_refused(gpu: Gpu, memory: Taken) -> None:
    p, add = memory(4), kernel("add", BASIC)
    most = gpu.attribute(1)  # threads a block
    for grid, block in ((1, most + 1), (0, 1), (1, 0)):
        with pytest.raises(DriverError) as caught:
            launch(add, p, U32(1), grid=grid, block=block)
        assert caught.value.code == INVALID_VALUE, (grid, block)
    assert status("cuModuleGetFunction", c.byref(P()), module(BASIC), b"missing") == NOT_FOUND
    assert words(p, 1) == [0]  # and nothing ran


def test_attributes_of_a_function(agree: Agree) -> None:
    # CUfunction_attribute: threads a block, shared, const, local, registers, PTX and binary version
    reverse = kernel("reverse", BASIC)
    told = [made("cuFuncGetAttribute", number, reverse, kind=I32) for number in range(8)]
    assert told[0] >= 32
    assert 0 < told[4] <= 255
    assert told[5] > 0
    agree("attributes", told)
    name = c.c_char_p()
    call("cuFuncGetName", c.byref(name), reverse)
    assert name.value == b"reverse"
    sizes = kernel("sizes", BASIC)
    offset, size = c.c_size_t(), c.c_size_t()
    found: list[tuple[int, int]] = []
    while not status("cuFuncGetParamInfo", sizes, len(found), c.byref(offset), c.byref(size)):
        found.append((offset.value, size.value))
    assert found == [(0, 1), (2, 2), (4, 4), (8, 8), (16, 12), (32, 8), (40, 8)]


def test_a_cooperative_launch(gpu: Gpu, memory: Taken) -> None:
    assert gpu.attribute(95) == 1  # cooperative launch
    blocks = gpu.attribute(16)  # as many as there are multiprocessors: all at once
    p, q, arrived = memory(4 * blocks), memory(4 * blocks), memory(4)
    function = kernel("neighbours", BASIC)
    launch(function, p, q, arrived, grid=blocks, cooperative=True)
    wait()
    squares = [(i * i + 1) for i in range(blocks)]
    assert words(p, blocks) == squares
    assert words(q, blocks) == squares[1:] + squares[:1]
    with pytest.raises(DriverError) as caught:  # more than can be there at once
        launch(function, p, q, arrived, grid=1_000_000, cooperative=True)
    assert caught.value.code == 720  # CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE


def _config(
    grid: int, *attributes: tuple[int, list[int]], stream: int = 0
) -> tuple[LaunchConfig, c.Array[LaunchAttribute]]:
    listed = (LaunchAttribute * max(1, len(attributes)))()
    for one, (number, values) in zip(listed, attributes, strict=False):
        one.id = number
        one.value[: len(values)] = values
    return LaunchConfig((grid, 1, 1), (1, 1, 1), 0, stream, listed, len(attributes)), listed


def test_a_launch_with_attributes(gpu: Gpu, memory: Taken, stream: int) -> None:
    p, q, arrived, blocks = memory(80), memory(80), memory(4), 20
    config, _kept = _config(blocks, (_COOPERATIVE, [1]), stream=stream)
    given = Parameters(p, q, arrived)
    call("cuLaunchKernelEx", c.byref(config), kernel("neighbours", BASIC), given.list, None)
    wait(stream)
    assert words(q, blocks) == [((i + 1) % blocks) ** 2 + 1 for i in range(blocks)]


def _hopper(gpu: Gpu) -> None:
    if gpu.capability < 90:
        pytest.skip(f"compute capability {gpu.capability}: clusters begin with 90")


def test_clusters(gpu: Gpu, memory: Taken, agree: Agree) -> None:
    _hopper(gpu)
    p, q, blocks, size = memory(48), memory(48), 12, 4
    config, _kept = _config(blocks, (_CLUSTER, [size, 1, 1]))
    function = kernel("cluster", HOPPER)
    given = Parameters(p, q)
    call("cuLaunchKernelEx", c.byref(config), function, given.list, None)
    wait()
    assert words(p, blocks) == [i % size | size << 8 | i // size << 16 for i in range(blocks)]
    after = [i // size * size + (i + 1) % size for i in range(blocks)]
    assert words(q, blocks) == [10 * i + 7 for i in after]
    many = made("cuOccupancyMaxActiveClusters", function, c.byref(config), kind=I32)
    widest = made("cuOccupancyMaxPotentialClusterSize", function, c.byref(config), kind=I32)
    assert many > 0
    assert widest >= 8
    agree("clusters", [many, widest])
    wrong, _kept = _config(blocks, (_CLUSTER, [5, 1, 1]))  # 12 blocks are no clusters of 5
    code = status("cuLaunchKernelEx", c.byref(wrong), function, given.list, None)
    assert code in (INVALID_VALUE, 912)  # CUDA_ERROR_INVALID_CLUSTER_SIZE
    agree("clusters that do not fit", code)


def test_the_compiler_inside_the_driver_says_what_it_did() -> None:
    # CUjit_option: 3 and 4 are the information's buffer and its size, 5 and 6 the errors'
    information, errors = c.create_string_buffer(4096), c.create_string_buffer(4096)
    options = (I32 * 5)(3, 4, 5, 6, 12)  # 12: verbose
    values = (P * 5)(c.addressof(information), 4096, c.addressof(errors), 4096, 1)
    own = P()
    unseen = f"{BASIC}// {time.time_ns()}\n".encode()  # else it is taken from the driver's cache
    call("cuModuleLoadDataEx", c.byref(own), unseen, 5, options, values)
    call("cuModuleUnload", own)
    assert b"saxpy" in information.value
    assert errors.value == b""
    values = (P * 5)(c.addressof(information), 4096, c.addressof(errors), 4096, 1)
    broken = BASIC.replace("red.global.add.u32", "red.global.nonsense.u32").encode()
    code = status("cuModuleLoadDataEx", c.byref(own), broken, 5, options, values)
    assert code == INVALID_PTX
    assert b"nonsense" in errors.value


def test_a_module_from_a_file(memory: Taken, tmp_path: Path) -> None:
    file = tmp_path / "a module.ptx"
    file.write_text(BASIC, "ascii")
    own, p = made("cuModuleLoad", str(file).encode()), memory(4)
    launch(made("cuModuleGetFunction", own, b"add"), p, U32(8))
    assert words(p, 1) == [8]
    call("cuModuleUnload", own)
    missing = str(tmp_path / "missing.ptx").encode()
    assert status("cuModuleLoad", c.byref(P()), missing) == FILE_NOT_FOUND
    library = P()
    load = (str(file).encode(), None, None, 0, None, None, 0)
    call("cuLibraryLoadFromFile", c.byref(library), *load)
    call("cuLibraryUnload", library)


def _linked(*files: Path) -> tuple[int, bytes]:
    state = P()
    call("cuLinkCreate_v2", 0, None, None, c.byref(state))
    if files:
        for file in files:
            call("cuLinkAddFile_v2", state, _PTX, str(file).encode(), 0, None, None)
    else:
        for name, text in ((b"callee", CALLEE), (b"caller", CALLER)):
            data = text.encode() + b"\0"
            call("cuLinkAddData_v2", state, _PTX, data, len(data), name, 0, None, None)
    cubin, size = P(), c.c_size_t()
    call("cuLinkComplete", state, c.byref(cubin), c.byref(size))
    assert cubin.value
    image = c.string_at(cubin.value, size.value)  # it belongs to the linker
    call("cuLinkDestroy", state)
    return size.value, image


@pytest.mark.parametrize("from_files", [False, True])
def test_the_linker(memory: Taken, tmp_path: Path, *, from_files: bool) -> None:
    files = [tmp_path / "callee.ptx", tmp_path / "caller.ptx"] if from_files else []
    for file, text in zip(files, (CALLEE, CALLER), strict=False):
        file.write_text(text, "ascii")
    size, image = _linked(*files)
    assert size > 0
    assert image[:4] == b"\x7fELF"
    own, p = made("cuModuleLoadData", image), memory(4)
    launch(made("cuModuleGetFunction", own, b"tripled"), p, U32(14))
    assert words(p, 1) == [42]
    call("cuModuleUnload", own)


def test_libraries_and_kernels(gpu: Gpu, memory: Taken) -> None:
    library = P()
    load = (BASIC.encode(), None, None, 0, None, None, 0)
    call("cuLibraryLoadData", c.byref(library), *load)
    try:
        assert made("cuLibraryGetKernelCount", library, kind=U32) == BASIC.count(".visible .entry")
        handle, p = made("cuLibraryGetKernel", library, b"add"), memory(4)
        launch(handle, p, U32(21))  # a CUkernel is taken for a CUfunction
        launch(made("cuKernelGetFunction", handle), p, U32(21))
        assert words(p, 1) == [42]
        name = c.c_char_p()
        call("cuKernelGetName", c.byref(name), handle)
        assert name.value == b"add"
        most = made("cuKernelGetAttribute", 0, handle, gpu.device, kind=I32)
        assert most == made("cuFuncGetAttribute", 0, kernel("add", BASIC), kind=I32)
        size = c.c_size_t()
        counter = made("cuLibraryGetGlobal", c.byref(size), library, b"counter", kind=U64)
        assert (words(counter, 1, U64), size.value) == ([5], 8)
        assert made("cuKernelGetLibrary", handle) == library.value
    finally:
        call("cuLibraryUnload", library)
