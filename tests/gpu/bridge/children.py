"""What cases have done by processes of their own: ``python children.py WHAT ARGUMENTS``.

Each prints one line of JSON at its end; one that crashes prints none.
"""

from __future__ import annotations

import ctypes as c
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from driver import (
    I32,
    U32,
    U64,
    Gpu,
    P,
    address_of,
    call,
    driver,
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
from structures import IpcHandle

_SECONDS = 120.0


def begin(what: str, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    """Start one of the functions below in a process of its own."""
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve()), what, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | variables,
    )


def end(child: subprocess.Popen[str]) -> tuple[int, Any, str]:
    """Its exit code, what it said, and its other output; a child that hangs is ended."""
    try:
        said, noise = child.communicate(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        said, noise = child.communicate()
        raise AssertionError(f"hung for {_SECONDS:.0f} s: {said}{noise}"[-2000:]) from None
    lines = [line for line in said.splitlines() if line.startswith("{")]
    return child.returncode, json.loads(lines[-1]) if lines else None, noise[-1000:]


def _handle(text: str) -> IpcHandle:
    return IpcHandle.from_buffer_copy(bytes.fromhex(text))


def open_memory(text: str) -> dict[str, Any]:
    """Another process' memory: what is there, doubled in its place."""
    Gpu()
    memory = U64()
    take = prototype(address_of("cuIpcOpenMemHandle_v2"), P, IpcHandle, U32)
    code = take(c.addressof(memory), _handle(text), 1)
    if code:
        return {"code": code}
    found = words(memory.value, 8)
    put(memory.value, [2 * each for each in found])
    call("cuIpcCloseMemHandle", memory)
    return {"code": 0, "found": found}


def open_event(text: str) -> dict[str, Any]:
    """Another process' event, which it records at the end of its work."""
    Gpu()
    event = P()
    take = prototype(address_of("cuIpcOpenEventHandle"), P, IpcHandle)
    if code := take(c.addressof(event), _handle(text)):
        return {"code": code}
    began = time.monotonic()
    return {"code": status("cuEventSynchronize", event), "seconds": time.monotonic() - began}


def work(first: str, seconds: str) -> dict[str, Any]:
    """Kernels with numbers for so long; when it began and ended, and how many were right."""
    Gpu()
    p, fill, start, good = (
        made("cuMemAlloc_v2", 4096, kind=U64),
        kernel("fill", BASIC),
        int(first),
        0,
    )
    began = time.time()
    rounds = 0
    while time.time() - began < float(seconds):
        launch(fill, p, U32(1024), U32(start + rounds), grid=8, block=128)
        good += words(p, 1024) == list(range(start + rounds, start + rounds + 1024))
        rounds += 1
    return {"began": began, "ended": time.time(), "rounds": rounds, "good": good}


def lost_context() -> dict[str, Any]:
    """A kernel writes where nothing is: what calls say from then on."""
    Gpu()
    p, fault = made("cuMemAlloc_v2", 4096, kind=U64), kernel("fault", BASIC)
    launch(fault)
    codes = [status("cuCtxSynchronize")]
    codes += [status("cuMemsetD32_v2", p, 0, 1), status("cuMemAlloc_v2", c.byref(U64()), 4096)]
    codes += [status("cuStreamSynchronize", 0), status("cuCtxSynchronize")]
    version = I32()
    return {
        "codes": codes,
        "version": [status("cuDriverGetVersion", c.byref(version)), version.value],
    }


def crash() -> dict[str, Any]:
    """The driver is to read where nothing is: that is this process' end, or an exception."""
    Gpu()
    p = made("cuMemAlloc_v2", 4096, kind=U64)
    for size in (64, 4096):
        call("cuMemcpyHtoD_v2", p, P(8), size)
    return {"crashed": False}


def hidden() -> dict[str, Any]:
    """``CUDA_VISIBLE_DEVICES``, set by the program itself, hides every GPU."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    return {"code": driver().cuInit(0)}


def pending(seconds: str) -> dict[str, Any]:
    """Ends while the GPU is still busy for it."""
    Gpu()
    launch(kernel("spin", BASIC), int(float(seconds) * 1e9))
    return {"launched": True}


def reset() -> dict[str, Any]:
    """The primary context is reset, and made again."""
    gpu = Gpu()
    p = made("cuMemAlloc_v2", 4096, kind=U64)
    call("cuDevicePrimaryCtxReset_v2", gpu.device)
    gone = status("cuMemsetD32_v2", p, 0, 1)
    again = Gpu()
    q = made("cuMemAlloc_v2", 4096, kind=U64)
    own = made("cuModuleLoadData", BASIC.encode())
    launch(made("cuModuleGetFunction", own, b"fill"), q, U32(4), U32(1), block=4)
    wait()
    return {"gone": gone != 0, "found": words(q, 4), "device": again.device}


_WORK = {
    each.__name__: each
    for each in (open_memory, open_event, work, lost_context, crash, hidden, pending, reset)
}

if __name__ == "__main__":
    print(json.dumps(_WORK[sys.argv[1]](*sys.argv[2:])), flush=True)
