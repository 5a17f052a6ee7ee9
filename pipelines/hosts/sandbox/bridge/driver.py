"""The NVIDIA driver of this machine: what it is, and what it says of itself.

The driver itself is asked by another process, which a broken one may end: the very program by which
smoke suites ask theirs. The files beside it say why it does not answer.
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

from pipelines.core.hosttext import line
from pipelines.core.model import Model, first_problem
from pipelines.core.paths import PACKAGE

_SCRIPT = PACKAGE / "smoke/common/smoke_gpu.py"
_MARK = "ANSWER"
_SECONDS = 60.0
_SHOWN = 200  # characters of what the driver says


class _Told(Model):
    model_config = ConfigDict(extra="ignore")


class Gpu(_Told):
    """A GPU, as the driver tells."""

    number: int
    """As nvidia-smi counts it; -1: not told."""
    name: str
    compute_capability: str
    memory_mib: int
    bus: str
    uuid: str = ""
    compute_mode: int = 0

    def __str__(self) -> str:
        """``GPU 0: NVIDIA H200 (9.0, 140 GiB)``."""
        number = f"GPU {self.number}: " if self.number >= 0 else ""
        about = f"{line(self.compute_capability, 8)}, {self.memory_mib >> 10} GiB"
        return f"{number}{line(self.name, 80)} ({about})"


class _Answer(_Told):
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
    """What was found; empty where there is nothing."""

    library: Path | None = None
    """The file behind libcuda.so.1."""
    management: Path | None = None
    """That of libnvidia-ml.so.1."""
    directory: Path | None = None
    """Where they are, if only LD_LIBRARY_PATH says so."""
    version: str = ""
    cuda: str = ""
    """The newest CUDA that it knows, such as 13.0."""
    gpus: tuple[Gpu, ...] = ()
    failure: str = ""
    """Why it does not answer, or has no GPU."""
    code: int = 0
    """The CUresult of that."""
    compiler: str = ""
    """Why it compiles no PTX."""
    unnumbered: str = ""
    """Why nvidia-smi's numbers are not known."""
    module: bool = False
    """Whether the kernel has its module."""
    control: bool = False
    """Whether /dev/nvidiactl and a /dev/nvidia0 are there."""
    uvm: bool = False
    """Whether /dev/nvidia-uvm is there."""
    wsl: bool = False
    """Whether this is WSL 2, where the driver is that of Windows: /dev/dxg is there."""

    @property
    def libraries(self) -> tuple[Path, ...]:
        """Those that a bridge hands calls to."""
        return tuple(path for path in (self.library, self.management) if path is not None)

    def __str__(self) -> str:
        """``driver 580.159.04, CUDA 13.0``."""
        return f"driver {self.version or 'of an unknown version'}, CUDA {self.cuda or 'unknown'}"

    def chosen(self, numbers: tuple[int, ...]) -> tuple[Gpu, ...]:
        """The GPUs of these numbers; without any all of them."""
        return tuple(gpu for gpu in self.gpus if not numbers or gpu.number in numbers)


def every_gpu() -> dict[str, str]:
    """The variables of this process for one that is to see every GPU, in nvidia-smi's order.

    The caller's CUDA_VISIBLE_DEVICES does not count: no variable of his reaches a sandbox either.
    """
    kept = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
    return kept | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def alone(
    script: Path, arguments: Sequence[str] = (), *, seconds: float
) -> subprocess.CompletedProcess[bytes]:
    """Run a program of ours on the driver, in a process that a broken one may end.

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


def _ask() -> Mapping[str, object]:
    """The driver's own answer; ``broken`` says how the process ended that asked for it."""
    try:
        done = alone(_SCRIPT, seconds=_SECONDS)
    except subprocess.TimeoutExpired:
        return _silent(f"hung for {_SECONDS:.0f} s")
    rows = done.stdout.decode("utf-8", "replace").splitlines()
    answer = next((row for row in rows if row.startswith(_MARK)), None)
    if answer is None:
        return _silent(_ended(done.returncode))
    told = json.loads(answer.removeprefix(_MARK))
    return told if isinstance(told, dict) else {}


def _ended(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"left with {code} and said nothing"


def _silent(how: str) -> Mapping[str, object]:
    broken = f"the process that asks the driver {how}"
    return {"skip": "", "broken": broken, "cuda": "", "driver_version": "", "devices": []}


@cache
def look(root: Path = Path("/"), ask: Callable[[], Mapping[str, object]] = _ask) -> Driver:
    """Look once a process; never fails, and starts nothing but the driver's own initialisation."""
    try:
        told = _Answer.model_validate(ask())
    except (ValidationError, ValueError, OSError) as error:
        why = first_problem(error) if isinstance(error, ValidationError) else str(error)
        told = _Answer.model_validate(_silent(f"told nonsense: {line(why, _SHOWN)}"))
    library = _file(told, "libcuda")
    device = root / "dev"
    return Driver(
        library=library,
        management=_file(told, "libnvidia-ml"),
        directory=_outside(library),
        version="" if told.driver_version == "unknown" else line(told.driver_version, 40),
        cuda=line(told.cuda, 8),
        gpus=told.devices,
        failure=line(told.broken or told.skip, _SHOWN),
        code=told.code,
        compiler=line(told.compiler, _SHOWN),
        unnumbered=line(told.nvml, _SHOWN),
        module=(root / "proc/driver/nvidia/version").exists(),
        control=(device / "nvidiactl").exists() and any(device.glob("nvidia[0-9]*")),
        uvm=(device / "nvidia-uvm").exists(),
        wsl=(device / "dxg").exists(),
    )


def _file(told: _Answer, name: str) -> Path | None:
    found = told.libraries.get(name)
    return Path(found) if found else None


def _outside(library: Path | None) -> Path | None:
    """The directory of a library that the loader finds by LD_LIBRARY_PATH alone."""
    if library is None:
        return None
    for folder in filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":")):
        if Path(folder, "libcuda.so.1").resolve() == library.resolve():
            return Path(folder).absolute()
    return None
