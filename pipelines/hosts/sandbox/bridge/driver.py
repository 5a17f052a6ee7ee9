"""The NVIDIA driver of this machine: what it is, and what a bridge to it lacks.

The driver itself is asked by another process, which a broken one may end: the very program by which
smoke suites ask theirs. The files beside it say why it does not answer.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, ValidationError

from pipelines.errors import named
from pipelines.hosts.base import Lack
from pipelines.hosttext import line
from pipelines.model import Model, first_problem
from pipelines.paths import PACKAGE

_SCRIPT = PACKAGE / "smoke/common/smoke_gpu.py"
_MARK = "ANSWER"
_SECONDS = 60.0
_SHOWN = 200  # characters of what the driver says
_DRIVERS = "https://www.nvidia.com/drivers"
_PLAIN = "leave --gpu and 'gpu: bridge' out: the sandbox works without"
_CONTAINER = "in a container: docker run --gpus all"
#: CUcomputemode -> its name; in the others one process alone, or none, may use the GPU.
_MODES = {1: "exclusive to a thread", 2: "prohibited", 3: "exclusive to a process"}
#: CUresult of cuInit -> rule, what it means, cure, class of the error.
_CODES = {
    34: (
        "driver-stub",
        "the libcuda.so.1 that is found is the toolkit's stub, not a driver",
        "take its directory (lib64/stubs) out of LD_LIBRARY_PATH",
        "SetupError",
    ),
    46: (
        "gpu-taken",
        "the GPU is not to be had: another process has it alone, or it is lost",
        "end that process or type: sudo nvidia-smi -c 0. If nvidia-smi says ERR!: reboot",
        "HostError",
    ),
    100: (
        "no-gpu",
        "the driver finds no GPU",
        "see that nvidia-smi lists one; " + _CONTAINER,
        "HostError",
    ),
    304: (
        "driver-refused",
        "the system does not let the driver open its devices",
        "see who may read and write /dev/nvidia*; " + _CONTAINER,
        "SetupError",
    ),
    802: (
        "driver-not-ready",
        "the GPUs are not ready yet: those with NVSwitch need the fabric manager",
        "type: sudo systemctl start nvidia-fabricmanager",
        "HostError",
    ),
    803: (
        "driver-mismatch",
        "libcuda.so.1 and the kernel's module are of different versions",
        "reboot after an update of the driver; in a container, take away a libcuda of its own",
        "SetupError",
    ),
    804: (
        "driver-mismatch",
        "libcuda.so.1 is of a compatibility package (cuda-compat) that does not run on this GPU",
        "remove the package cuda-compat, or take it out of LD_LIBRARY_PATH",
        "SetupError",
    ),
    999: (
        "gpu-lost",
        "the driver fails without saying why, as when a GPU has fallen off the bus",
        "see 'nvidia-smi' and 'sudo dmesg | grep -i xid'; then sudo nvidia-smi --gpu-reset, or "
        "reboot",
        "HostError",
    ),
}


#: Those of which the driver itself knows why; of the others a missing device may be the reason.
_SURE = frozenset({34, 46, 802, 803, 804})


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


def _ask() -> Mapping[str, object]:
    """The driver's own answer; ``broken`` says how the process ended that asked for it."""
    command = [sys.executable, "-I", str(_SCRIPT)]
    try:
        done = subprocess.run(
            command,
            env=every_gpu(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
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


def lacks(driver: Driver, numbers: tuple[int, ...] = ()) -> tuple[Lack, ...]:
    """What a bridge to these GPUs lacks, what is at the bottom of it first; empty: nothing."""
    if first := _unreached(driver):
        return (first,)
    return tuple(_unfit(driver, numbers))


def _unreached(driver: Driver) -> Lack | None:
    """Why no GPU can be had at all."""
    if driver.library is None:
        return _absent(driver)
    if not driver.failure and driver.gpus:
        return None
    sure = driver.code in _SURE
    if not driver.control and not sure:
        return Lack(
            rule="driver-devices",
            says="libcuda.so.1 is here, but not /dev/nvidiactl and /dev/nvidia0",
            cure=f"{_CONTAINER}; on the machine itself: sudo modprobe nvidia && "
            "sudo nvidia-modprobe",
        )
    if not driver.uvm and not sure:
        return Lack(
            rule="driver-uvm",
            says="/dev/nvidia-uvm is missing, without which CUDA does not start",
            cure="in a container: add --device /dev/nvidia-uvm, or use nvidia-container-toolkit; "
            "on the machine itself: sudo nvidia-modprobe -u",
        )
    rule, means, cure, raises = _CODES.get(
        driver.code,
        ("driver-broken", "NVIDIA's driver does not work", "see nvidia-smi; reboot", "HostError"),
    )
    return Lack(rule=rule, says=f"{means} ({driver.failure})", cure=cure, raises=raises)


def _absent(driver: Driver) -> Lack:
    if driver.module or driver.control:
        return Lack(
            rule="no-driver",
            says="the kernel has NVIDIA's driver, but there is no libcuda.so.1",
            cure="in a container: docker run --gpus all, with the capability compute "
            "(NVIDIA_DRIVER_CAPABILITIES=compute,utility); on the machine itself: install the "
            "driver's CUDA library, on Debian libcuda1",
        )
    if "no NVIDIA driver" not in driver.failure:
        return Lack(
            rule="driver-broken",
            says=f"whether there is an NVIDIA driver cannot be told: {driver.failure}",
            cure=f"see nvidia-smi, or {_PLAIN}",
            raises="HostError",
        )
    return Lack(
        rule="no-driver",
        says="this machine has no NVIDIA driver: there is no libcuda.so.1",
        cure=f"install NVIDIA's driver ({_DRIVERS}); {_CONTAINER}; or {_PLAIN}",
    )


def _unfit(driver: Driver, numbers: tuple[int, ...]) -> Iterator[Lack]:
    """What is wrong though the driver answers."""
    if driver.compiler:
        yield Lack(
            rule="driver-compiler",
            says=f"the driver cannot compile PTX: {driver.compiler}",
            cure="install the driver's libnvidia-ptxjitcompiler.so.1, on Debian "
            "libnvidia-ptxjitcompiler1; in a container: NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        )
    known = {gpu.number for gpu in driver.gpus}
    if numbers and known == {-1}:
        yield Lack(
            rule="gpu-numbers",
            says=f"which number a GPU has is not told: {driver.unnumbered or 'without a reason'}",
            cure="in a container: NVIDIA_DRIVER_CAPABILITIES=compute,utility; or say gpu: bridge "
            "without numbers",
        )
        return
    if missing := sorted({*numbers} - known):
        there = ", ".join(str(number) for number in sorted(known))
        yield Lack(
            rule="gpu-numbers",
            says=f"there is no GPU {', '.join(map(str, missing))} here, there is {there}",
            cure="name those that nvidia-smi lists, or say gpu: bridge for all of them",
            raises="ConfigError",
        )
    for gpu in driver.chosen(numbers):
        if mode := _MODES.get(gpu.compute_mode):
            yield Lack(
                rule="gpu-compute-mode",
                says=f"{gpu} is {mode}, and a smoke suite needs several processes on it",
                cure="type: sudo nvidia-smi -c 0",
                raises="HostError",
            )


def require(driver: Driver, numbers: tuple[int, ...] = ()) -> None:
    """Raise what :func:`lacks` finds first, as the class of errors that it names."""
    for lack in lacks(driver, numbers):
        raise named(lack.raises)(lack.says, advice=f"{lack.cure[:1].upper()}{lack.cure[1:]}.")
