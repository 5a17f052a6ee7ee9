"""Imports torch and the package under test, and says what they are. Run as a program.

In a process of its own: a wheel for another torch may end the interpreter at its import. Each
line is an answer; ``doing`` before each step says where it ended if it did.

Arguments: ``gpu`` or ``no-gpu``.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import TypedDict

import smoke_suite

MARK = "ANSWER"


class Torch(TypedDict, total=False):
    """What torch is; empty where there is none."""

    version: str
    cuda: str
    hip: str
    cxx11abi: bool
    archs: list[str]
    devices: int
    cuda_error: str
    wine_runtime: str
    """Path of its C++ run-time if that is Wine's own, with which autograd lost gradients."""


def say(**facts: object) -> None:
    """Print one answer; flushed, because the next step may be the last."""
    print(MARK + json.dumps(facts, default=str), flush=True)


def about_torch(*, gpu: bool) -> Torch:
    """What torch is, and whether it reaches the GPU."""
    import torch

    facts: Torch = {
        "version": str(torch.__version__),
        "cuda": torch.version.cuda or "",
        "hip": getattr(torch.version, "hip", None) or "",
        "cxx11abi": bool(torch.compiled_with_cxx11_abi()),
        "archs": [],
        "devices": 0,
        "cuda_error": "",
        "wine_runtime": wine_runtime(),
    }
    if facts["cuda"] and gpu:
        try:
            torch.cuda.init()
            facts["archs"] = list(torch.cuda.get_arch_list())
            facts["devices"] = torch.cuda.device_count()
        except (RuntimeError, AssertionError) as error:
            facts["cuda_error"] = str(error)
    return facts


def wine_runtime() -> str:
    """Where the C++ run-time of this process lies if Wine made it; else nothing."""
    if sys.platform != "win32":
        return ""
    kernel = ctypes.WinDLL("kernel32")
    kernel.GetModuleHandleW.restype = ctypes.c_void_p
    kernel.GetModuleFileNameW.argtypes = [ctypes.c_void_p, ctypes.c_wchar_p, ctypes.c_uint32]
    path = ctypes.create_unicode_buffer(1 << 15)
    library = kernel.GetModuleHandleW("msvcp140.dll")
    if not library or not kernel.GetModuleFileNameW(library, path, len(path)):
        return ""
    head = Path(path.value).read_bytes()[:128]  # what Wine makes is signed after the DOS header
    return path.value if b"Wine builtin DLL" in head or b"Wine placeholder DLL" in head else ""


def global_lock() -> str:
    """``on`` or ``off``; empty for a Python that always has it.

    What it is built for and what it does are two questions:
    https://docs.python.org/3/howto/free-threading-python.html
    """
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        return ""
    enabled = getattr(sys, "_is_gil_enabled", None)
    return "off" if enabled is not None and not enabled() else "on"


def main() -> None:
    """Go through the steps until one fails."""
    gpu = sys.argv[1] == "gpu"
    lock = global_lock()
    say(lock=lock)
    steps = ["torch"] if smoke_suite.TORCH else []
    steps += [*smoke_suite.MODULES, "facts"]
    for step in steps:
        say(doing=step)
        try:
            if step == "torch":
                say(torch=about_torch(gpu=gpu))
            elif step == "facts":
                say(properties=smoke_suite.facts(gpu=gpu))
            else:
                importlib.import_module(step)
            if lock == "off" and global_lock() == "on":
                lock = step
                say(lock=lock)
        except BaseException as error:  # whatever an import raises is the answer
            traceback.print_exc()
            say(failed=f"{type(error).__name__}: {error}")
            return
    say(done=True)


if __name__ == "__main__":
    main()
