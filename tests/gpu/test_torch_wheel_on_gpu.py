"""smoke-attention-torch on a GPU: one wheel, and each torch that is there.

On a Linux machine with an NVIDIA GPU, nvcc of CUDA 13, and for each torch a Python that has it,
pytest and pytest-xdist (2.10 or later; with CUDA 13, or nvidia-cuda-runtime beside it)::

    export CUDA_HOME=/usr/local/cuda TORCH_CUDA_ARCH_LIST=9.0 SMOKE_ATTENTION_LOCAL_VERSION=cu130
    A/bin/python -m pip wheel --no-deps --no-build-isolation -w dist \\
        pipelines/examples/smoke_attention_torch
    export SMOKE_TORCH_WHEEL=$(ls dist/smoke_attention_torch-*.whl)
    export SMOKE_TORCH_PYTHONS=A/bin/python:B/bin/python WCW_GPU_OUT=out
    python -m pytest -m gpu tests/gpu/test_torch_wheel_on_gpu.py

``A`` has the least torch, 2.10: it builds the wheel, and all of them test the same file. A wheel
that was built elsewhere does as well. ``WCW_GPU_OUT`` keeps a report and a log for each torch.
"""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

import pytest
from bridged import kept
from run_suite import run

from pipelines.core.versions import minor_release
from pipelines.reports.junit import read_pytest
from pipelines.reports.model import Suite

PYTHONS = [p for p in os.environ.get("SMOKE_TORCH_PYTHONS", "").split(os.pathsep) if p]
#: The only reasons for which a case may be skipped where torch has CUDA.
REASONS = (
    "which architectures were ordered is not known",
    "no GPU was asked for on this host",
    "this Python always has the global lock",
)


@cache
def torch_of(python: str) -> str:
    command = [python, "-c", "import torch; print(torch.__version__)"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def wheel() -> Path:
    path = os.environ.get("SMOKE_TORCH_WHEEL")
    if not path or not PYTHONS:
        pytest.skip("SMOKE_TORCH_WHEEL and SMOKE_TORCH_PYTHONS name no wheel and no Pythons")
    return Path(path).resolve()


def report_of(wheel: Path, python: str, asked: str, base: Path) -> tuple[int, Suite]:
    out = kept(f"torch-{asked}", base)
    expect = {"torch": asked, "platform": wheel.stem.rpartition("-")[2], "cuda": "13.0"}
    done = run("smoke_attention_torch", wheel, out, python=python, expect=expect)
    return done["exit"], read_pytest((out / "smoke.xml").read_bytes())


@pytest.mark.parametrize("python", PYTHONS or [""])
def test_the_wheel_passes_with_this_torch(wheel: Path, python: str, tmp_path: Path) -> None:
    """Operators on the CPU and the GPU, and the kernels by pointer: nothing is left out."""
    loaded = torch_of(python)
    code, suite = report_of(wheel, python, minor_release(loaded), tmp_path)
    bad = [c for c in suite.cases if c.outcome in ("failed", "error")]
    left = [c for c in suite.cases if c.outcome == "skipped" and not c.message.startswith(REASONS)]
    assert (code, bad, left) == (0, [], [])
    assert suite.properties["torch"] == loaded
    for half in ("test_cpu", "test_gpu", "test_pointers"):
        assert [c for c in suite.cases if half in c.classname and c.outcome == "passed"], half
    assert int(suite.properties["gpu_cases"]) > 0


def test_another_torch_than_asked_is_found(wheel: Path, tmp_path: Path) -> None:
    code, suite = report_of(wheel, PYTHONS[0], "2.99", tmp_path)
    failed = {c.name: c.message for c in suite.cases if c.outcome == "failed"}
    assert code != 0
    assert "torch 2.99 was asked for" in failed["test_torch_is_there_and_has_cuda"]


def test_there_were_two_of_them(wheel: Path) -> None:
    """One torch shows nothing of a wheel for several."""
    assert wheel.name.split("-")[2] == "py3"
    found = {minor_release(torch_of(python)) for python in PYTHONS}
    if len(found) < 2:
        pytest.skip(f"only torch {', '.join(found)} is here: nothing is shown of another")
