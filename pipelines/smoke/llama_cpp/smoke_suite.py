"""What the shared part must know of this suite."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

import smoke_gpu

TORCH = False
MODULES = ("llama_cpp",)

if sys.platform == "win32":
    # CUDA's own DLLs, which the wheel does not have: those of NVIDIA's wheels. The package
    # loads its libraries in the way that looks at PATH.
    _FOUND = Path(sysconfig.get_paths()["purelib"]).glob("nvidia/*/bin/x86_64")
    os.environ["PATH"] = os.pathsep.join([*map(str, _FOUND), os.environ.get("PATH", "")])


def facts(*, gpu: bool) -> dict[str, str]:  # noqa: ARG001  other suites ask the GPU
    """Asked in a process of its own, after the import; more properties of the report."""
    import llama_cpp

    info = llama_cpp.llama_print_system_info().decode("utf-8", "replace")
    return {"llama_cpp": llama_cpp.__version__, "system_info": " ".join(info.split())}


def lost() -> bool:
    """Whether the GPU's context is lost, with which each later case would fail as well."""
    return smoke_gpu.lost()
