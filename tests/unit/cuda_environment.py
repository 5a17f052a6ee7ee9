"""An environment as somebody might have it on Linux, NVIDIA's compiler from PyPI included."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from pipelines.plan.config.model import Config

CUDA = "13.0.*"
PACKAGES = [
    *(f"nvidia-{name}=={CUDA}" for name in ("cuda-nvcc", "nvvm", "cuda-crt", "cuda-runtime")),
    *(f"nvidia-cuda-cccl=={CUDA}", "pip", "setuptools", "pytest", "pytest-xdist"),
]


def make(place: Path) -> Path:
    """A virtual environment of this Python at ``place``."""
    uv = str(Path(sys.executable).with_name("uv"))
    python = str(place / "bin/python")
    for words in (
        ["venv", "--quiet", "--python", sys.executable, str(place)],
        ["pip", "install", "--quiet", "--system-certs", "--python", python, *PACKAGES],
    ):
        subprocess.run([uv, *words], check=True)
    return place


def settings(environment: Path, base: Path, root: str = "root", **more: Any) -> Config:
    """With a host ``here`` that uses it as it is; its root and the runs are below ``base``."""
    (cuda,) = environment.glob("lib/python3*/site-packages/nvidia/cu13")
    python = str(environment / "bin/python")
    host = {"kind": "local", "python": python, "cuda": str(cuda), "root": str(base / root)}
    told = {
        "default": {"python": f"3.{sys.version_info.minor}", "archs": "90", "jobs": 2},
        "hosts": {"here": host},
        "out": str(base / "out"),
        "compile_cache": {"kind": "off"},
    }
    return Config.model_validate(told | more)
