"""The CUDA driver's functions through ctypes: the same for Windows' Python and for Linux'.

Nothing but the driver is needed. An ``int`` is passed as a word of 64 bits, which is right for
handles, addresses and smaller numbers alike; structures go by address unless they are given as
they are. ``made`` is for the many functions that put their result where the first argument points.
"""

from __future__ import annotations

import ctypes as c
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

if sys.platform == "win32":
    LIBRARY, NVML = "nvcuda.dll", "nvml.dll"
    load, CALLBACK = c.WinDLL, c.WINFUNCTYPE
else:
    LIBRARY, NVML = "libcuda.so.1", "libnvidia-ml.so.1"
    load, CALLBACK = c.CDLL, c.CFUNCTYPE

#: The fixtures of conftest.py: so many bytes on the GPU; what both sides must have found the same.
Taken = Callable[[int], int]
Agree = Callable[[str, object], None]

P = c.c_void_p
I32 = c.c_int
U32 = c.c_uint32
U64 = c.c_uint64
F32 = c.c_float

INVALID_VALUE, DEINITIALIZED, NO_BINARY, INVALID_PTX = 1, 4, 209, 218
FILE_NOT_FOUND, INVALID_HANDLE, NOT_FOUND, NOT_READY = 301, 400, 500, 600
ILLEGAL_ADDRESS, NOT_SUPPORTED, CAPTURE_INVALIDATED = 700, 801, 901


class DriverError(RuntimeError):
    """What a function returned that should have returned 0."""

    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"{name} = {code}: {error_text(code)}")
        self.code = code


@cache
def driver() -> c.CDLL:
    """The driver's library; ``OSError`` where there is none."""
    # Else a kernel is loaded at its first launch, which may wait for what runs: cases tell by time.
    os.environ["CUDA_MODULE_LOADING"] = "EAGER"
    return load(LIBRARY)


def _passed(value: Any) -> Any:
    return U64(value & 0xFFFFFFFFFFFFFFFF) if isinstance(value, int) else value


def status(name: str, *arguments: Any) -> int:
    """What the driver's function ``name`` returns."""
    return int(getattr(driver(), name)(*map(_passed, arguments)))


def call(name: str, *arguments: Any) -> None:
    """Call it; :class:`DriverError` unless it returns 0."""
    if code := status(name, *arguments):
        raise DriverError(name, code)


def made(name: str, *arguments: Any, kind: Any = P) -> Any:
    """What it puts where its first argument points: a number, or a structure."""
    result = kind()
    call(name, c.byref(result), *arguments)
    return getattr(result, "value", result)


def error_text(code: int) -> str:
    """The driver's own words, or that it has none."""
    text = c.c_char_p()
    if driver().cuGetErrorString(code, c.byref(text)) or not text.value:
        return "no text"
    return text.value.decode()


def prototype(address: int | None, *types: Any, result: Any = I32) -> Callable[..., Any]:
    """The function at ``address``, with the types that its arguments have."""
    assert address, "there is no function"
    return CALLBACK(result, *types)(address)


def address_of(name: str) -> int:
    """Where the library exports it."""
    return c.cast(getattr(driver(), name), P).value or 0


class Parameters:
    """A kernel's parameters, as a launch wants them; a number is an address."""

    def __init__(self, *values: Any) -> None:
        self.kept = [_passed(value) for value in values]
        self.list = (P * max(1, len(values)))(*map(c.addressof, self.kept))


def launch(
    kernel: int,
    *values: Any,
    grid: int | Sequence[int] = 1,
    block: int | Sequence[int] = 1,
    shared: int = 0,
    stream: int = 0,
    cooperative: bool = False,
) -> None:
    """Start ``kernel`` with ``values``, without waiting for it."""
    shape = [*_three(grid), *_three(block), shared]
    given = Parameters(*values)  # alive until the call has copied them
    if cooperative:
        call("cuLaunchCooperativeKernel", kernel, *shape, stream, given.list)
    else:
        call("cuLaunchKernel", kernel, *shape, stream, given.list, None)


def _three(size: int | Sequence[int]) -> list[int]:
    given = [size] if isinstance(size, int) else list(size)
    return [*given, 1, 1, 1][:3]


@cache
def module(ptx: str) -> int:
    """The driver's module of this text, compiled once in a process."""
    return int(made("cuModuleLoadData", ptx.encode()))


def kernel(name: str, ptx: str) -> int:
    """A kernel of :func:`module`."""
    return int(made("cuModuleGetFunction", module(ptx), name.encode()))


def wait(stream: int | None = None) -> None:
    """For all that the context does, or for what the stream does."""
    if stream is None:
        call("cuCtxSynchronize")
    else:
        call("cuStreamSynchronize", stream)


def words(address: int, count: int, kind: Any = U32) -> list[Any]:
    """``count`` numbers of the GPU's memory."""
    found = (kind * count)()
    call("cuMemcpyDtoH_v2", found, address, c.sizeof(found))
    return list(found)


def put(address: int, values: Sequence[Any], kind: Any = U32) -> None:
    """Numbers into the GPU's memory."""
    given = (kind * len(values))(*values)
    call("cuMemcpyHtoD_v2", address, given, c.sizeof(given))


class Gpu:
    """The first GPU, in its primary context."""

    def __init__(self) -> None:
        """Raises ``OSError`` without a driver and :class:`DriverError` without a GPU."""
        call("cuInit", 0)
        self.device = made("cuDeviceGet", 0, kind=I32)
        self.context = made("cuDevicePrimaryCtxRetain", self.device)
        self.use()

    def use(self) -> None:
        """Make it the one of this thread."""
        call("cuCtxSetCurrent", self.context)

    def attribute(self, number: int) -> int:
        """A CUdevice_attribute."""
        return int(made("cuDeviceGetAttribute", number, self.device, kind=I32))

    @property
    def capability(self) -> int:
        """Such as 90."""
        return 10 * self.attribute(75) + self.attribute(76)
