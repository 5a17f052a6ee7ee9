"""The NVIDIA driver of this machine: its files and what it reports.

The driver is queried in a separate process, which a broken driver may crash, with the same program
that smoke suites use. The files explain why it does not work.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, ValidationError

from pipelines.core.hosttext import safe_line
from pipelines.core.model import Model, first_problem
from pipelines.core.paths import PACKAGE

_SCRIPT = PACKAGE / "smoke/common/smoke_gpu.py"
_MARK = "ANSWER"
_SECONDS = 60.0
_SHOWN = 200  # characters of the driver's output


class _Model(Model):
    model_config = ConfigDict(extra="ignore")


class Gpu(_Model):
    """A GPU, as reported by the driver."""

    number: int
    """nvidia-smi's number; -1: unknown."""
    name: str
    compute_capability: str
    memory_mib: int
    bus: str
    uuid: str = ""
    compute_mode: int = 0

    def __str__(self) -> str:
        """``GPU 0: NVIDIA H200 (9.0, 140 GiB)``."""
        number = f"GPU {self.number}: " if self.number >= 0 else ""
        about = f"{safe_line(self.compute_capability, 8)}, {self.memory_mib >> 10} GiB"
        return f"{number}{safe_line(self.name, 80)} ({about})"


class _Answer(_Model):
    skip: str
    broken: str
    cuda: str
    driver_version: str
    devices: Annotated[tuple[Gpu, ...], Field(max_length=64)]
    code: int = 0
    nvml: str = ""
    libraries: dict[str, str] = Field(default={})
    compiler: str = ""


@dataclass(frozen=True, kw_only=True)
class Driver:
    """The results; empty if there is no driver."""

    library: Path | None = None
    """The file behind libcuda.so.1."""
    management: Path | None = None
    """The file behind libnvidia-ml.so.1."""
    directory: Path | None = None
    """Their directory, if only LD_LIBRARY_PATH points to it."""
    version: str = ""
    cuda: str = ""
    """The newest CUDA version it supports, such as 13.0."""
    gpus: tuple[Gpu, ...] = ()
    failure: str = ""
    """Why it does not work, or has no GPU."""
    code: int = 0
    """The CUresult of that failure."""
    compiler: str = ""
    """Why it cannot compile PTX."""
    unnumbered: str = ""
    """Why nvidia-smi's numbers are unknown."""
    module: bool = False
    """Whether the kernel module is loaded."""
    control: bool = False
    """Whether /dev/nvidiactl and a /dev/nvidia0 exist."""
    uvm: bool = False
    """Whether /dev/nvidia-uvm exists."""
    wsl: bool = False
    """Whether this is WSL 2, which uses the driver of Windows: /dev/dxg exists."""

    @property
    def libraries(self) -> tuple[Path, ...]:
        """The libraries that a bridge forwards calls to."""
        return tuple(path for path in (self.library, self.management) if path is not None)

    def __str__(self) -> str:
        """``driver 580.159.04, CUDA 13.0``."""
        return f"driver {self.version or 'of an unknown version'}, CUDA {self.cuda or 'unknown'}"

    def chosen(self, numbers: tuple[int, ...]) -> tuple[Gpu, ...]:
        """The GPUs with these numbers; without any, all of them."""
        return tuple(gpu for gpu in self.gpus if not numbers or gpu.number in numbers)


def every_gpu() -> dict[str, str]:
    """The variables of this process for a child that sees every GPU, in nvidia-smi's order.

    The caller's CUDA_VISIBLE_DEVICES is dropped, like all other variables for a sandbox.
    """
    environment = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
    return environment | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def run_driver_script(
    script: Path, arguments: Sequence[str] = (), *, seconds: float
) -> subprocess.CompletedProcess[bytes]:
    """Run a program of ours on the driver, in a process that a broken driver may crash.

    Raises ``TimeoutExpired`` and ``OSError``.
    """
    return subprocess.run(
        [sys.executable, "-I", str(script), *arguments],
        env=every_gpu(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=seconds,
        check=False,
    )


def _query_driver() -> Mapping[str, object]:
    """The driver's answer; ``broken`` describes how the querying process ended."""
    try:
        done = run_driver_script(_SCRIPT, seconds=_SECONDS)
    except subprocess.TimeoutExpired:
        return _silent(f"hung for {_SECONDS:.0f} s")
    rows = done.stdout.decode("utf-8", "replace").splitlines()
    answer = next((row for row in rows if row.startswith(_MARK)), None)
    if answer is None:
        return _silent(_describe_exit_code(done.returncode))
    data = json.loads(answer.removeprefix(_MARK))
    return data if isinstance(data, dict) else {}


def _describe_exit_code(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"exited with {code} and no output"


def _silent(how: str) -> Mapping[str, object]:
    broken = f"the process that queries the driver {how}"
    return {"skip": "", "broken": broken, "cuda": "", "driver_version": "", "devices": []}


@cache
def inspect_gpu_driver(
    root: Path = Path("/"), ask: Callable[[], Mapping[str, object]] = _query_driver
) -> Driver:
    """Query it once per process; never fails, and only initialises the driver."""
    try:
        answer = _Answer.model_validate(ask())
    except (ValidationError, ValueError, OSError) as error:
        why = first_problem(error)
        answer = _Answer.model_validate(_silent(f"invalid output: {safe_line(why, _SHOWN)}"))
    library = _driver_library_path(answer, "libcuda")
    device = root / "dev"
    return Driver(
        library=library,
        management=_driver_library_path(answer, "libnvidia-ml"),
        directory=_outside(library),
        version="" if answer.driver_version == "unknown" else safe_line(answer.driver_version, 40),
        cuda=safe_line(answer.cuda, 8),
        gpus=answer.devices,
        failure=safe_line(answer.broken or answer.skip, _SHOWN),
        code=answer.code,
        compiler=safe_line(answer.compiler, _SHOWN),
        unnumbered=safe_line(answer.nvml, _SHOWN),
        module=(root / "proc/driver/nvidia/version").exists(),
        control=(device / "nvidiactl").exists() and any(device.glob("nvidia[0-9]*")),
        uvm=(device / "nvidia-uvm").exists(),
        wsl=(device / "dxg").exists(),
    )


def _driver_library_path(answer: _Answer, name: str) -> Path | None:
    path = answer.libraries.get(name)
    return Path(path) if path else None


def _outside(library: Path | None) -> Path | None:
    """The directory of a library that the loader finds only by LD_LIBRARY_PATH."""
    if library is None:
        return None
    for folder in filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":")):
        if Path(folder, "libcuda.so.1").resolve() == library.resolve():
            return Path(folder).absolute()
    return None
