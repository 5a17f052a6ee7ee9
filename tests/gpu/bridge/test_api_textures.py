"""Arrays, textures, surfaces, references: with the two functions that take floats."""

from __future__ import annotations

import ctypes as c
from collections.abc import Callable, Iterator

import pytest
from driver import F32, I32, U32, U64, P, Taken, call, kernel, launch, made, module, words
from kernels import TEXTURES
from structures import ArrayShape, Copy3D, Resource, Texture

_FLOAT, _UNSIGNED = 0x20, 0x03  # CUarray_format
_HOST, _ARRAY = 1, 3  # CUmemorytype
_CLAMP, _LINEAR = 1, 1  # CUaddress_mode, CUfilter_mode
Shaped = Callable[..., int]


@pytest.fixture
def array() -> Iterator[Shaped]:
    """``array(width, height, format, flags)``."""
    taken: list[int] = []

    def take(width: int, height: int, kind: int, flags: int = 0) -> int:
        shape = ArrayShape(width=width, height=height, format=kind, channels=1, flags=flags)
        taken.append(made("cuArray3DCreate_v2", c.byref(shape)))
        return taken[-1]

    yield take
    for each in taken:
        call("cuArrayDestroy", each)


def _fill(target: int, values: list[float]) -> None:
    source = (F32 * len(values))(*values)
    call("cuMemcpyHtoA_v2", target, 0, source, c.sizeof(source))


def test_an_array_is_written_and_read(array: Shaped) -> None:
    one, found = array(6, 2, _UNSIGNED), (U32 * 6)()
    source = (U32 * 12)(*range(50, 62))
    there = Copy3D(
        source_type=_HOST, source_host=c.addressof(source), source_pitch=24, source_rows=2,
        target_type=_ARRAY, target_array=one, width=24, height=2, depth=1,
    )  # fmt: skip
    call("cuMemcpy3D_v2", c.byref(there))
    back = Copy3D(
        source_type=_ARRAY, source_array=one, source_x=8, target_type=_HOST,
        target_host=c.addressof(found), target_pitch=12, target_rows=2, width=12, height=2, depth=1,
    )  # fmt: skip
    call("cuMemcpy3D_v2", c.byref(back))
    assert list(found) == [52, 53, 54, 58, 59, 60]
    shape = ArrayShape()
    call("cuArray3DGetDescriptor_v2", c.byref(shape), one)
    said = (shape.width, shape.height, shape.depth, shape.format, shape.channels)
    assert said == (6, 2, 0, _UNSIGNED, 1)


def test_a_texture_between_its_texels(array: Shaped, memory: Taken) -> None:
    one, p, n = array(8, 0, _FLOAT), memory(64), 16
    _fill(one, [10.0 * i for i in range(8)])
    what = Resource(type=0, array=one)
    how = Texture(address=(_CLAMP,) * 3, filter=_LINEAR)
    texture = made("cuTexObjectCreate", c.byref(what), c.byref(how), None, kind=U64)
    launch(kernel("sample", TEXTURES), U64(texture), p, F32(0.5), block=n)
    # at 0.25, 0.75, 1.25 ...: texel i is at i + 0.5, and beyond the ends it stays as it is
    wanted = [10 * min(max((i + 0.5) * 0.5 - 0.5, 0), 7) for i in range(n)]
    assert words(p, n, F32) == pytest.approx(wanted, abs=10 / 256)  # 8 bits of fraction
    assert words(p, n, F32)[2] == pytest.approx(7.5, abs=10 / 256)
    again = Texture()
    call("cuTexObjectGetTextureDesc", c.byref(again), U64(texture))
    assert (list(again.address), again.filter) == ([_CLAMP] * 3, _LINEAR)
    call("cuTexObjectDestroy", U64(texture))


def test_a_texture_with_a_border(array: Shaped, memory: Taken) -> None:
    one, p = array(2, 0, _FLOAT), memory(32)
    _fill(one, [1.0, 2.0])
    what = Resource(type=0, array=one)
    how = Texture(address=(3, 3, 3), border=(99.0, 0, 0, 0))
    texture = made("cuTexObjectCreate", c.byref(what), c.byref(how), None, kind=U64)
    launch(kernel("sample", TEXTURES), U64(texture), p, F32(1), block=5)
    assert words(p, 5, F32) == [1.0, 2.0, 99.0, 99.0, 99.0]
    call("cuTexObjectDestroy", U64(texture))


def test_a_surface_is_painted(array: Shaped) -> None:
    one, found = array(5, 4, _UNSIGNED, 2), (U32 * 20)()  # 2: for surfaces
    surface = made("cuSurfObjectCreate", c.byref(Resource(type=0, array=one)), kind=U64)
    launch(kernel("paint", TEXTURES), U64(surface), block=(5, 4))
    back = Copy3D(
        source_type=_ARRAY, source_array=one, target_type=_HOST, target_host=c.addressof(found),
        target_pitch=20, target_rows=4, width=20, height=4, depth=1,
    )  # fmt: skip
    call("cuMemcpy3D_v2", c.byref(back))
    assert list(found) == [100 * y + x for y in range(4) for x in range(5)]
    call("cuSurfObjectDestroy", U64(surface))


def test_floats_are_arguments() -> None:
    """The only functions of the driver that take floats by value."""
    reference = made("cuTexRefCreate")
    call("cuTexRefSetMipmapLevelBias", reference, F32(-1.75))
    call("cuTexRefSetMipmapLevelClamp", reference, F32(0.625), F32(6.5))
    low, high = F32(), F32()
    call("cuTexRefGetMipmapLevelClamp", c.byref(low), c.byref(high), reference)
    assert made("cuTexRefGetMipmapLevelBias", reference, kind=F32) == -1.75
    assert (low.value, high.value) == (0.625, 6.5)
    border = (F32 * 4)(1.5, 2.5, 3.5, 4.5)
    call("cuTexRefSetBorderColor", reference, border)
    found = (F32 * 4)()
    call("cuTexRefGetBorderColor", found, reference)
    assert list(found) == [1.5, 2.5, 3.5, 4.5]
    call("cuTexRefDestroy", reference)


def test_a_reference_of_a_module(array: Shaped) -> None:
    """Its settings are kept. No kernel fetches through one: CUDA 12 took them away."""
    one = array(4, 0, _FLOAT)
    reference = made("cuModuleGetTexRef", module(TEXTURES), b"reference")
    call("cuTexRefSetArray", reference, one, 1)  # with the array's format
    call("cuTexRefSetAddressMode", reference, 0, _CLAMP)
    call("cuTexRefSetFilterMode", reference, 0)
    assert made("cuTexRefGetArray", reference) == one
    assert made("cuTexRefGetFilterMode", reference, kind=I32) == 0


def test_levels_of_an_array() -> None:
    shape = ArrayShape(width=16, height=16, format=_FLOAT, channels=1)
    levels = made("cuMipmappedArrayCreate", c.byref(shape), 5)
    for level in range(5):
        one, told = made("cuMipmappedArrayGetLevel", levels, level), ArrayShape()
        call("cuArray3DGetDescriptor_v2", c.byref(told), one)
        assert (told.width, told.height) == (16 >> level, 16 >> level)
    assert P(levels).value == levels
    call("cuMipmappedArrayDestroy", levels)
