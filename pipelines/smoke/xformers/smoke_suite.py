"""What the shared part must know of this suite."""

from __future__ import annotations

import subprocess
import sys

import smoke_gpu
import xformers_info

TORCH = True
MODULES = ("xformers", "xformers.ops")
ROW = "info."


def facts(*, gpu: bool) -> dict[str, str]:  # noqa: ARG001  other suites ask the GPU
    """Asked in a process of its own, after the import: the rows of ``python -m xformers.info``."""
    done = subprocess.run(
        [sys.executable, "-m", "xformers.info"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
        timeout=200,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"python -m xformers.info exited with code {done.returncode}")
    rows = xformers_info.parse(done.stdout)
    try:
        from xformers import _cpp_lib

        # A wheel for another torch imports with a warning; its kernels are not there then.
        error = _cpp_lib._cpp_library_load_exception
        rows["cpp_library"] = f"unavailable ({error})" if error else "available"
    except (ImportError, AttributeError):
        pass
    return {f"{ROW}{name}": " ".join(status.split())[:300] for name, status in rows.items()}


def lost() -> bool:
    """Whether the GPU's context is lost, with which each later case would fail as well."""
    return smoke_gpu.lost()
