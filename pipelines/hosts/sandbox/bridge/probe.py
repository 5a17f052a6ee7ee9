"""Queries a CUDA driver for everything a bridge may get wrong, and prints the answers as JSON.

The same file runs with Windows' Python through the bridge and with Linux' Python on the driver
itself: :mod:`.selftest` compares the answers. Arguments: GPUs, by PCI bus address. Nothing is
assumed here: a failure is an answer too, ``failed``.
"""

from __future__ import annotations

import ctypes
import json
import sys
import threading
from typing import Any

MARK = "PROBE"
COUNT = 1000
_BLOCK = 128
_WINDOWS = sys.platform == "win32"
_NO_SUCH_DEVICE = 9999
_WORD = 7001  # passed to a callback, and back

#: ``out[i] = i * factor + (unsigned)(i * scale)``: arguments of 8 and 4 bytes, one of them a float.
_PTX = """
.version 6.4
.target sm_{arch}
.address_size 64
.visible .entry fill(.param .u64 out, .param .u32 factor, .param .f32 scale, .param .u32 count)
{{
  .reg .pred %p1;
  .reg .f32 %f<4>;
  .reg .b32 %r<8>;
  .reg .b64 %d<4>;
  ld.param.u64 %d1, [out];
  ld.param.u32 %r1, [factor];
  ld.param.f32 %f1, [scale];
  ld.param.u32 %r2, [count];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.u32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r6, %r2;
  @%p1 ret;
  cvt.rn.f32.u32 %f2, %r6;
  mul.rn.f32 %f3, %f2, %f1;
  cvt.rzi.u32.f32 %r7, %f3;
  mad.lo.u32 %r7, %r6, %r1, %r7;
  cvta.to.global.u64 %d2, %d1;
  mul.wide.u32 %d3, %r6, 4;
  add.u64 %d2, %d2, %d3;
  st.global.u32 [%d2], %r7;
  ret;
}}
"""


class FailedError(Exception):
    """A driver call returned an error."""


def _load_cuda_driver() -> Any:
    name = "nvcuda.dll" if _WINDOWS else "libcuda.so.1"
    return ctypes.WinDLL(name) if _WINDOWS else ctypes.CDLL(name)  # type: ignore[attr-defined]


def _callback(result: Any, *arguments: Any) -> Any:
    kind = ctypes.WINFUNCTYPE if _WINDOWS else ctypes.CFUNCTYPE  # type: ignore[attr-defined]
    return kind(result, *arguments)


class Probe:
    """The queries to ``driver``."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def _call(self, name: str, *arguments: Any) -> None:
        if code := getattr(self.driver, name)(*arguments):
            raise FailedError(f"{name} returned {code}")

    def answers(self, places: list[str]) -> dict[str, Any]:
        """All answers."""
        answers: dict[str, Any] = {"platform": sys.platform, "bridge": self._bridge()}
        self._call("cuInit", 0)
        version = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(version))
        answers |= {"driver": version.value, "error": self._error(), "gpus": []}
        for place in places:
            answers["gpus"].append(self._gpu(place))
        return answers

    def _bridge(self) -> str:
        try:
            name = self.driver.driver_bridge
        except AttributeError:
            return ""
        name.restype = ctypes.c_char_p
        return (name() or b"").decode(errors="replace")

    def _error(self) -> list[Any]:
        """The error for a nonexistent GPU: its number, name and text."""
        device = ctypes.c_int()
        code = self.driver.cuDeviceGet(ctypes.byref(device), _NO_SUCH_DEVICE)
        error = [code]
        for name in ("cuGetErrorName", "cuGetErrorString"):
            text = ctypes.c_char_p()
            self._call(name, code, ctypes.byref(text))
            error.append((text.value or b"").decode(errors="replace"))
        return error

    def _gpu(self, place: str) -> dict[str, Any]:
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGetByPCIBusId", ctypes.byref(device), ctypes.c_char_p(place.encode()))
        name, uuid = ctypes.create_string_buffer(256), ctypes.create_string_buffer(16)
        self._call("cuDeviceGetName", name, len(name), device)
        self._call("cuDeviceGetUuid", uuid, device)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        try:
            self._call("cuCtxSetCurrent", context)
            function = self._function(device)
            return {
                "name": name.value.decode(errors="replace"),
                "uuid": uuid.raw.hex(),
                "numbers": self._numbers(function),
                "callback": self._host_function(),
                "occupancy": self._occupancy(function),
            }
        finally:
            self._call("cuDevicePrimaryCtxRelease_v2", device)

    def _function(self, device: ctypes.c_int) -> ctypes.c_void_p:
        """The kernel, compiled by the driver: for sm_75, which newer compilers still support."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(major), 75, device)
        self._call("cuDeviceGetAttribute", ctypes.byref(minor), 76, device)
        text = _PTX.format(arch=min(major.value * 10 + minor.value, 75)).encode()
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(text))
        self._call("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(b"fill"))
        return function

    def _numbers(self, function: ctypes.c_void_p) -> list[int]:
        """The kernel's results."""
        memory, numbers = ctypes.c_uint64(), (ctypes.c_uint32 * COUNT)()
        size = ctypes.c_size_t(ctypes.sizeof(numbers))
        self._call("cuMemAlloc_v2", ctypes.byref(memory), size)
        try:
            values = (memory, ctypes.c_uint32(3), ctypes.c_float(0.5), ctypes.c_uint32(COUNT))
            pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(v) for v in values])
            blocks = (COUNT + _BLOCK - 1) // _BLOCK
            sizes = [ctypes.c_uint(n) for n in (blocks, 1, 1, _BLOCK, 1, 1, 0)]
            nothing = ctypes.c_void_p()
            self._call("cuLaunchKernel", function, *sizes, nothing, pointers, nothing)
            self._call("cuCtxSynchronize")
            self._call("cuMemcpyDtoH_v2", numbers, memory, size)
        finally:
            self._call("cuMemFree_v2", memory)
        return list(numbers)

    def _host_function(self) -> list[Any]:
        """The word passed to the callback, and whether it ran in a thread of the driver's."""
        calls: list[Any] = []
        caller = threading.get_ident()

        def called(word: int) -> None:
            calls.extend([word, threading.get_ident() != caller])

        stream = ctypes.c_void_p()
        function = _callback(None, ctypes.c_void_p)(called)
        self._call("cuStreamCreate", ctypes.byref(stream), 1)
        try:
            self._call("cuLaunchHostFunc", stream, function, ctypes.c_void_p(_WORD))
            self._call("cuStreamSynchronize", stream)
        finally:
            self._call("cuStreamDestroy_v2", stream)
        return calls

    def _occupancy(self, function: ctypes.c_void_p) -> list[Any]:
        """Best grid and block, and the sizes for which the driver called our function."""
        sizes: list[int] = []

        def memory_of(block: int) -> int:
            sizes.append(block)
            return 16 * block

        size = _callback(ctypes.c_size_t, ctypes.c_int)(memory_of)
        grid, block = ctypes.c_int(), ctypes.c_int()
        both = ctypes.byref(grid), ctypes.byref(block)
        none = ctypes.c_size_t(0)
        self._call("cuOccupancyMaxPotentialBlockSize", *both, function, size, none, 0)
        return [grid.value, block.value, sorted(set(sizes))]


def probe_cuda_driver(places: list[str]) -> dict[str, Any]:
    """The answers, or the reason for having none."""
    try:
        return Probe(_load_cuda_driver()).answers(places)
    except (OSError, AttributeError, FailedError) as error:
        return {"platform": sys.platform, "failed": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    print(MARK + json.dumps(probe_cuda_driver(sys.argv[1:])), flush=True)
