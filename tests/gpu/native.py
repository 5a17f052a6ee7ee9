"""The machine as it is: its Python with torch, its nvcc, and how a pipeline.yaml names it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

PYTHON, CUDA = os.environ.get("WCW_TORCH_PYTHON", ""), os.environ.get("CUDA_HOME", "")
ARCHS = os.environ.get("WCW_ARCHS", "90")


def require_torch_and_nvcc() -> None:
    """Skip, and say why, where the environment names none."""
    if not PYTHON or not CUDA:
        pytest.skip("WCW_TORCH_PYTHON and CUDA_HOME name no Python with torch and no nvcc")


def told(code: str) -> str:
    """What the Python prints."""
    done = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def installed() -> dict[str, str]:
    """The axes of a build here, by what is installed; skips where nothing is named."""
    require_torch_and_nvcc()
    nvcc = subprocess.run(
        [f"{CUDA}/bin/nvcc", "--version"], capture_output=True, text=True, check=True
    ).stdout
    return {
        "python": told("import sys; print('%d.%d' % sys.version_info[:2])"),
        "torch": told("import torch; print('.'.join(torch.__version__.split('.')[:2]))"),
        "cuda": nvcc.partition("release ")[2].partition(",")[0],
        "archs": ARCHS,
    }


def flags(axes: dict[str, str], *, torch: bool) -> list[str]:
    """The axes as they are typed, with that of torch or without."""
    known = {name: value for name, value in axes.items() if torch or name != "torch"}
    return [word for name, value in known.items() for word in (f"--{name}", value)]


def settings(room: Path) -> dict[str, Any]:
    """Of a pipeline.yaml: this machine as a host called ``here``, with builds below ``room``."""
    host = {"kind": "local", "python": PYTHON, "cuda": CUDA, "root": str(room / "root")}
    return {"hosts": {"here": host}, "compile_cache": {"kind": "off"}}


def jobs() -> str:
    """Units at a time: as ``WCW_JOBS`` says, or as many as there are cores."""
    return os.environ.get("WCW_JOBS") or str(os.cpu_count())
