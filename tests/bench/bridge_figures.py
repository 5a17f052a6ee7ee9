"""One round of figures of the CUDA driver, as JSON: the same file for Windows' Python and Linux'.

``bridge_figures.py LIBRARY``: the loops of bridge_loops.c, compiled for this system. Beside it are
``driver.py`` and ``kernels.py`` of tests/gpu/bridge. Each figure is the median of several, and what
is timed is compared with what it should have done.
"""

from __future__ import annotations

import ctypes as c
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from driver import (
    F32,
    U32,
    U64,
    Gpu,
    P,
    Parameters,
    call,
    driver,
    kernel,
    made,
    status,
    wait,
    words,
)
from kernels import BASIC

_CALLS, _LAUNCHES, _WAITS, _CALLBACKS = 1_000_000, 50_000, 10_000, 2_000
_SIZE = 256 << 20
_STEPS, _BLOCKS, _THREADS = 100_000, 2048, 256


def _seconds(work: Callable[[], object], times: int = 5) -> float:
    """The median of so many, after one that warms up."""
    work()
    found = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def _good(name: str, code: int) -> None:
    if code:
        raise RuntimeError(f"{name} = {code}")


def loops(library: str, stream: int) -> dict[str, float]:
    """Calls, launches and callbacks, by C code."""
    code: Any = c.CDLL(library)
    driven, empty = driver(), c.c_void_p(kernel("empty", BASIC))
    where, heard = c.c_void_p(stream), c.c_int()
    launch, synchronise = driven.cuLaunchKernel, driven.cuStreamSynchronize

    def launches(count: int, every: int) -> None:
        _good("launches", code.launches(launch, synchronise, empty, where, count, every))

    def callbacks() -> None:
        host, before = driven.cuLaunchHostFunc, heard.value
        _good("callbacks", code.callbacks(host, synchronise, where, _CALLBACKS, c.byref(heard)))
        if heard.value - before != _CALLBACKS:
            raise RuntimeError(f"{heard.value - before} of {_CALLBACKS} callbacks")

    def calls() -> None:
        _good("calls", code.calls(driven.cuDriverGetVersion, _CALLS))

    return {
        "call_ns": _seconds(calls) / _CALLS * 1e9,
        "launch_us": _seconds(lambda: launches(_LAUNCHES, 500)) / _LAUNCHES * 1e6,
        "launch_and_wait_us": _seconds(lambda: launches(_WAITS, 1)) / _WAITS * 1e6,
        "callback_and_wait_us": _seconds(callbacks) / _CALLBACKS * 1e6,
    }


def copies() -> dict[str, float]:
    """GB/s of 256 MiB each way, from pinned and from ordinary memory; compared at the end."""
    found: dict[str, float] = {}
    big = made("cuMemAlloc_v2", _SIZE, kind=U64)
    pinned, ordinary = made("cuMemHostAlloc", _SIZE, 0), c.create_string_buffer(_SIZE)
    for mark, (name, place) in enumerate((("pinned", pinned), ("pageable", ordinary)), 0x11):
        address = place if isinstance(place, int) else c.addressof(place)
        c.memset(address, mark, _SIZE)
        up = _seconds(partial(call, "cuMemcpyHtoD_v2", big, address, _SIZE))
        c.memset(address, 0, _SIZE)
        down = _seconds(partial(call, "cuMemcpyDtoH_v2", address, big, _SIZE))
        if c.string_at(address, _SIZE) != bytes([mark]) * _SIZE:
            raise RuntimeError(f"what was copied by {name} memory is not what came back")
        found |= {f"{name}_up_gb_s": _SIZE / up / 1e9, f"{name}_down_gb_s": _SIZE / down / 1e9}
    call("cuMemFreeHost", pinned)
    call("cuMemFree_v2", big)
    return found


def kernel_time(stream: int) -> dict[str, float]:
    """Milliseconds of one kernel, by the GPU's own events."""
    p, compute = made("cuMemAlloc_v2", 4, kind=U64), kernel("compute", BASIC)
    given = Parameters(p, U32(_STEPS))
    first, last = made("cuEventCreate", 0), made("cuEventCreate", 0)
    found = []
    for _ in range(8):
        call("cuEventRecord", first, stream)
        shape = (_BLOCKS, 1, 1, _THREADS, 1, 1, 0)
        call("cuLaunchKernel", compute, *shape, stream, given.list, None)
        call("cuEventRecord", last, stream)
        wait(stream)
        found.append(made("cuEventElapsedTime", first, last, kind=F32))
    wanted = sum(k * k for k in range(_STEPS)) % 2**32
    if words(p, 1) != [wanted]:
        raise RuntimeError(f"the kernel found {words(p, 1)}, not {wanted}")
    for each in (first, last):
        call("cuEventDestroy_v2", each)
    call("cuMemFree_v2", p)
    return {"kernel_ms": statistics.median(found[3:])}


def main() -> None:
    """Measure and print."""
    began = time.perf_counter()
    gpu = Gpu()
    start = (time.perf_counter() - began) * 1e3
    name, stream = c.create_string_buffer(100), made("cuStreamCreate", 1)
    call("cuDeviceGetName", name, 100, gpu.device)
    tell: Any = getattr(driver(), "driver_bridge", None)
    figures = {"start_ms": start} | loops(sys.argv[1], stream) | copies() | kernel_time(stream)
    told = {"gpu": name.value.decode(), "bridged": tell is not None, "figures": figures}
    if status("cuCtxSynchronize") or P(stream).value != stream:
        raise RuntimeError("the context is lost")
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
