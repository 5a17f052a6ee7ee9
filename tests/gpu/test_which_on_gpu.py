"""``which`` on a real driver and GPU: from Linux' Python, and from Windows' through the bridge.

``WCW_GPU_PYTHON`` names a Python with a torch that has CUDA, whose own words it is held against.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from bridged import bridged_line, kept, require_gpu_and_wine

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from catalogues import machine_of

from pipelines.hosts.sandbox.wine import Prefix
from pipelines.publish.which.joining import WHICH, build_which_script
from pipelines.publish.which.machine import Machine
from pipelines.remote import process

_SECONDS = 120.0


@pytest.fixture(scope="module")
def driver() -> tuple[str, tuple[str, ...]]:
    """The release of CUDA and every GPU's compute capability, as nvidia-smi tells them."""
    require_gpu_and_wine()
    told = subprocess.run(["nvidia-smi"], capture_output=True, text=True, check=True).stdout
    release = re.search(r"CUDA(?: \w+)? Version: (\d+\.\d+)", told)
    assert release is not None
    command = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return release[1], tuple(told.split())


def test_linux_python_sees_driver_and_gpus(
    tmp_path: Path, driver: tuple[str, tuple[str, ...]]
) -> None:
    python = os.environ.get("WCW_GPU_PYTHON", sys.executable)
    file = tmp_path / WHICH
    file.write_bytes(build_which_script())
    done = subprocess.run(
        [python, str(file), "--share"], capture_output=True, text=True, timeout=_SECONDS, check=True
    )
    machine = _shared(done.stdout, "native", tmp_path)
    assert (machine.driver, machine.gpus) == driver
    if "WCW_GPU_PYTHON" in os.environ:
        asked = (
            "import torch, importlib.metadata as m; print(m.version('torch'), torch.version.cuda)"
        )
        command = [python, "-c", asked]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert told.split() == [machine.torch, machine.cuda]


def test_windows_python_sees_them_through_the_bridge(
    tmp_path: Path, driver: tuple[str, tuple[str, ...]]
) -> None:
    with bridged_line(tmp_path) as line:
        work = Prefix(line.plan.host.prefix).drive / "which"  # type: ignore[attr-defined]
        work.mkdir()
        (work / WHICH).write_bytes(build_which_script())
        command = [line.plan.layout.python, rf"C:\which\{WHICH}", "--share"]
        code, text = line.session.call(process.capture, command=command, timeout=_SECONDS)
    assert code == 0, text
    machine = _shared(text, "bridged", tmp_path)
    assert (machine.driver, machine.gpus) == driver
    assert (machine.platform, machine.torch) == ("win_amd64", "")


def _shared(text: str, side: str, scratch: Path) -> Machine:
    """The line that was printed; it is kept."""
    line = next(row for row in text.splitlines() if row.startswith("wcw1:"))
    (kept("which", scratch) / f"{side}.txt").write_text(f"{line}\n", "utf-8")
    return machine_of(line)
