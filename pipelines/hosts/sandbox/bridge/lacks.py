"""What a bridge to this machine's GPU driver lacks: each with its name, its words and its hint."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal

from pipelines.core.errors import named
from pipelines.core.model import Model, read_data
from pipelines.hosts.base import Lack
from pipelines.hosts.sandbox.bridge.driver import Driver

_FILE = Path(__file__).with_name("lacks.yaml")
_DRIVERS = "https://www.nvidia.com/drivers"
_PLAIN = "leave --gpu and 'gpu: bridge' out: the sandbox works without"
_CONTAINER = "in a container: docker run --gpus all"
#: CUcomputemode -> its name; in the others one process alone, or none, may use the GPU.
_MODES = {1: "exclusive to a thread", 2: "prohibited", 3: "exclusive to a process"}


class Code(Model):
    """What a CUresult of the driver's says."""

    code: int
    rule: str
    says: str
    hint: str
    raises: Literal["SetupError", "HostError"] = "SetupError"
    sure: bool = False
    """Whether the driver itself knows why; otherwise a missing device may be the reason."""


class Codes(Model):
    """``lacks.yaml``."""

    codes: tuple[Code, ...]


#: Of every other code.
_OTHER = Code(
    code=-1,
    rule="driver-broken",
    says="NVIDIA's driver does not work",
    hint="see nvidia-smi; reboot",
    raises="HostError",
)


#: https://docs.nvidia.com/cuda/wsl-user-guide: Windows' driver puts its libcuda.so.1 into WSL.
_WINDOWS = Lack(
    rule="driver-windows",
    says="CUDA does not start in this WSL, which takes NVIDIA's driver from Windows",
    hint=f"install or update the driver in Windows ({_DRIVERS}), and none in WSL; then type there: "
    "wsl --update; wsl --shutdown",
)


@cache
def _codes() -> dict[int, Code]:
    return {one.code: one for one in read_data(_FILE, Codes).codes}


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
    told = _codes().get(driver.code, _OTHER)
    if driver.wsl and not told.sure:
        return _WINDOWS
    if not driver.control and not told.sure:
        return Lack(
            rule="driver-devices",
            says="libcuda.so.1 is here, but not /dev/nvidiactl and /dev/nvidia0",
            hint=f"{_CONTAINER}; on the machine itself: sudo modprobe nvidia && "
            "sudo nvidia-modprobe",
        )
    if not driver.uvm and not told.sure:
        return Lack(
            rule="driver-uvm",
            says="/dev/nvidia-uvm is missing, without which CUDA does not start",
            hint="in a container: add --device /dev/nvidia-uvm, or use nvidia-container-toolkit; "
            "on the machine itself: sudo nvidia-modprobe -u",
        )
    says = f"{told.says} ({driver.failure})"
    return Lack(rule=told.rule, says=says, hint=told.hint, raises=told.raises)


def _absent(driver: Driver) -> Lack:
    if driver.wsl:
        return _WINDOWS
    if driver.module or driver.control:
        return Lack(
            rule="no-driver",
            says="the kernel has NVIDIA's driver, but there is no libcuda.so.1",
            hint="in a container: docker run --gpus all, with the capability compute "
            "(NVIDIA_DRIVER_CAPABILITIES=compute,utility); on the machine itself: install the "
            "driver's CUDA library, on Debian libcuda1",
        )
    if "no NVIDIA driver" not in driver.failure:
        return Lack(
            rule="driver-broken",
            says=f"whether there is an NVIDIA driver cannot be told: {driver.failure}",
            hint=f"see nvidia-smi, or {_PLAIN}",
            raises="HostError",
        )
    return Lack(
        rule="no-driver",
        says="this machine has no NVIDIA driver: there is no libcuda.so.1",
        hint=f"install NVIDIA's driver ({_DRIVERS}); {_CONTAINER}; or {_PLAIN}",
    )


def _unfit(driver: Driver, numbers: tuple[int, ...]) -> Iterator[Lack]:
    """What is wrong though the driver answers."""
    if driver.compiler:
        yield Lack(
            rule="driver-compiler",
            says=f"the driver cannot compile PTX: {driver.compiler}",
            hint="install the driver's libnvidia-ptxjitcompiler.so.1, on Debian "
            "libnvidia-ptxjitcompiler1; in a container: NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        )
    known = {gpu.number for gpu in driver.gpus}
    if numbers and known == {-1}:
        yield Lack(
            rule="gpu-numbers",
            says=f"which number a GPU has is not told: {driver.unnumbered or 'without a reason'}",
            hint="in a container: NVIDIA_DRIVER_CAPABILITIES=compute,utility; or say gpu: bridge "
            "without numbers",
        )
        return
    if missing := sorted({*numbers} - known):
        there = ", ".join(str(number) for number in sorted(known))
        yield Lack(
            rule="gpu-numbers",
            says=f"there is no GPU {', '.join(map(str, missing))} here, there is {there}",
            hint="name those that nvidia-smi lists, or say gpu: bridge for all of them",
            raises="ConfigError",
        )
    for gpu in driver.chosen(numbers):
        if mode := _MODES.get(gpu.compute_mode):
            yield Lack(
                rule="gpu-compute-mode",
                says=f"{gpu} is {mode}, and a smoke suite needs several processes on it",
                hint="type: sudo nvidia-smi -c 0",
                raises="HostError",
            )


def require(driver: Driver, numbers: tuple[int, ...] = ()) -> None:
    """Raise what :func:`lacks` finds first, as the class of errors that it names."""
    for lack in lacks(driver, numbers):
        raise named(lack.raises)(lack.says, hint=f"{lack.hint[:1].upper()}{lack.hint[1:]}.")
