"""Tensor maps (Hopper and later): twelve and fifteen arguments, each of which must arrive."""

from __future__ import annotations

import ctypes as c
from typing import Any

import pytest
from driver import (
    I32,
    INVALID_VALUE,
    U32,
    U64,
    Agree,
    Gpu,
    P,
    Taken,
    call,
    kernel,
    launch,
    put,
    status,
    words,
)
from kernels import HOPPER
from structures import TensorMap

_UINT32, _FLOAT16 = 2, 6  # CUtensorMapDataType
_FIXED = 0x7F0000000000  # an address that is only written down


@pytest.fixture(autouse=True)
def _hopper(gpu: Gpu) -> None:
    if gpu.capability < 90:
        pytest.skip(f"compute capability {gpu.capability}: tensor maps begin with 90")


def _map() -> TensorMap:
    """A map at a multiple of 64."""
    room = (c.c_ubyte * (c.sizeof(TensorMap) + 64))()
    at = c.addressof(room)
    found = TensorMap.from_address(at + -at % 64)
    found._kept = room
    return found


def _tiled(**changes: Any) -> dict[str, Any]:
    return {
        "type": _UINT32,
        "rank": 2,
        "address": P(_FIXED),
        "dimensions": (U64 * 2)(64, 32),
        "strides": (U64 * 1)(256),
        "box": (U32 * 2)(8, 4),
        "steps": (U32 * 2)(1, 1),
        "interleave": 0,
        "swizzle": 0,
        "promotion": 0,
        "outside": 0,
    } | changes


def _encode(name: str, arguments: dict[str, Any]) -> bytes:
    one = _map()
    call(name, c.byref(one), *arguments.values())
    return bytes(one)


def test_each_argument_of_a_tiled_map(agree: Agree) -> None:
    name = "cuTensorMapEncodeTiled"
    plain = _encode(name, _tiled())
    assert any(plain)
    others = {
        "type": 7,  # CU_TENSOR_MAP_DATA_TYPE_FLOAT32: 4 bytes as well
        "address": P(_FIXED + 4096),
        "dimensions": (U64 * 2)(60, 31),
        "strides": (U64 * 1)(512),
        "box": (U32 * 2)(16, 2),
        "steps": (U32 * 2)(1, 2),
        "swizzle": 1,
        "promotion": 2,
    }
    found = {each: _encode(name, _tiled(**{each: value})) for each, value in others.items()}
    floats = _encode(name, _tiled(type=7, outside=1))
    assert floats != found["type"]  # outside: zeros or NaN, for floats alone
    assert len({plain, floats, *found.values()}) == len(found) + 2
    agree("maps", {each: value.hex() for each, value in ({"": plain} | found).items()})
    for wrong in ({"rank": 6}, {"address": P(_FIXED + 1)}, {"box": (U32 * 2)(257, 4)}):
        code = status(name, c.byref(_map()), *_tiled(**wrong).values())
        assert code == INVALID_VALUE, wrong


def _columns(**changes: Any) -> dict[str, Any]:
    return {
        "type": _FLOAT16,
        "rank": 4,
        "address": P(_FIXED),
        "dimensions": (U64 * 4)(64, 16, 12, 2),  # channels, width, height, images
        "strides": (U64 * 3)(128, 2048, 24576),
        "lower": (I32 * 2)(-1, -1),
        "upper": (I32 * 2)(-1, -1),
        "channels": 32,
        "pixels": 64,
        "steps": (U32 * 4)(1, 1, 1, 1),
        "interleave": 0,
        "swizzle": 0,
        "promotion": 0,
        "outside": 0,
    } | changes


def test_each_argument_of_a_map_of_columns(agree: Agree) -> None:
    name = "cuTensorMapEncodeIm2col"
    plain = _encode(name, _columns())
    assert any(plain)
    others = {
        "type": 9,  # bfloat16
        "address": P(_FIXED + 4096),
        "dimensions": (U64 * 4)(64, 16, 12, 3),
        "strides": (U64 * 3)(256, 4096, 49152),
        "lower": (I32 * 2)(-2, -1),
        "upper": (I32 * 2)(-1, 0),
        "channels": 16,
        "pixels": 128,
        "steps": (U32 * 4)(1, 2, 1, 1),
        "swizzle": 2,
        "promotion": 3,
        "outside": 1,  # the fifteenth
    }
    found = {each: _encode(name, _columns(**{each: value})) for each, value in others.items()}
    assert len({plain, *found.values()}) == len(found) + 1
    agree("maps", {each: value.hex() for each, value in ({"": plain} | found).items()})
    assert status(name, c.byref(_map()), *_columns(outside=7).values()) == INVALID_VALUE


def test_a_tile_is_fetched(memory: Taken) -> None:
    """By the copy engine, to where and from where the map says; outside of the tensor are zeros."""
    width, height = 64, 32
    tensor, p = memory(4 * width * height), memory(128)
    put(tensor, list(range(1000, 1000 + width * height)))
    one = _map()
    call("cuTensorMapEncodeTiled", c.byref(one), *_tiled(address=P(tensor)).values())
    for x, y in ((0, 0), (12, 5), (60, 30)):  # the engine wants x at 16 bytes
        launch(kernel("tile", HOPPER), one, p, U32(x), U32(y))
        wanted = [
            1000 + width * row + column if row < height and column < width else 0
            for row in range(y, y + 4)
            for column in range(x, x + 8)
        ]
        assert words(p, 32) == wanted, (x, y)
