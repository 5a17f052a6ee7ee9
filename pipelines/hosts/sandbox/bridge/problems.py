"""Problems of a bridge to this machine's GPU driver: each with a code, a message and a hint."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Literal

from pipelines.core.errors import named
from pipelines.core.finding import Finding
from pipelines.core.model import Model, read_data
from pipelines.hosts.sandbox.bridge.driver import Driver

_FILE = Path(__file__).with_name("problems.yaml")
_DRIVERS = "https://www.nvidia.com/drivers"
_PLAIN = "remove --gpu and 'gpu: bridge': the sandbox works without them"
_CONTAINER = "in a container: docker run --gpus all"
#: CUcomputemode -> its name; in the others at most one process may use the GPU.
_MODES = {1: "exclusive to a thread", 2: "prohibited", 3: "exclusive to a process"}


class Problem(Model):
    """The meaning of a CUresult from the driver."""

    code: int
    rule: str
    message: str
    hint: str
    raises: Literal["SetupError", "HostError"] = "SetupError"
    sure: bool = False
    """Whether the driver itself reports the reason; otherwise a missing device may be the cause."""


class ProblemCodes(Model):
    """``problems.yaml``."""

    codes: tuple[Problem, ...]


#: For every other code.
_OTHER = Problem(
    code=-1,
    rule="driver-broken",
    message="NVIDIA's driver does not work",
    hint="see nvidia-smi; reboot",
    raises="HostError",
)


#: Of this machine's driver, or of its GPUs.
_missing = partial(Finding, level="error", source="this machine", raises="SetupError")


#: https://docs.nvidia.com/cuda/wsl-user-guide: Windows' driver puts its libcuda.so.1 into WSL.
_WINDOWS = _missing(
    id="driver-windows",
    actual="CUDA does not start in this WSL, which uses NVIDIA's driver from Windows",
    hint=f"install or update the driver in Windows ({_DRIVERS}), and none in WSL; then type there: "
    "wsl --update; wsl --shutdown",
)


@cache
def _codes() -> dict[int, Problem]:
    return {problem.code: problem for problem in read_data(_FILE, ProblemCodes).codes}


def problems(driver: Driver, numbers: tuple[int, ...] = ()) -> tuple[Finding, ...]:
    """What is wrong for a bridge to these GPUs, root cause first; empty: nothing."""
    if first := _unreached(driver):
        return (first,)
    return tuple(_unfit(driver, numbers))


def _unreached(driver: Driver) -> Finding | None:
    """Why there is no usable GPU at all."""
    if driver.library is None:
        return _absent(driver)
    if not driver.failure and driver.gpus:
        return None
    problem = _codes().get(driver.code, _OTHER)
    if driver.wsl and not problem.sure:
        return _WINDOWS
    if not driver.control and not problem.sure:
        return _missing(
            id="driver-devices",
            actual="libcuda.so.1 exists, but not /dev/nvidiactl and /dev/nvidia0",
            hint=f"{_CONTAINER}; on the machine itself: sudo modprobe nvidia && "
            "sudo nvidia-modprobe",
        )
    if not driver.uvm and not problem.sure:
        return _missing(
            id="driver-uvm",
            actual="/dev/nvidia-uvm is missing, which CUDA needs to start",
            hint="in a container: add --device /dev/nvidia-uvm, or use nvidia-container-toolkit; "
            "on the machine itself: sudo nvidia-modprobe -u",
        )
    says = f"{problem.message} ({driver.failure})"
    return _missing(id=problem.rule, actual=says, hint=problem.hint, raises=problem.raises)


def _absent(driver: Driver) -> Finding:
    if driver.wsl:
        return _WINDOWS
    if driver.module or driver.control:
        return _missing(
            id="no-driver",
            actual="the kernel has NVIDIA's driver, but there is no libcuda.so.1",
            hint="in a container: docker run --gpus all, with the capability compute "
            "(NVIDIA_DRIVER_CAPABILITIES=compute,utility); on the machine itself: install the "
            "driver's CUDA library, on Debian libcuda1",
        )
    if "no NVIDIA driver" not in driver.failure:
        return _missing(
            id="driver-broken",
            actual=f"cannot determine whether there is an NVIDIA driver: {driver.failure}",
            hint=f"see nvidia-smi, or {_PLAIN}",
            raises="HostError",
        )
    return _missing(
        id="no-driver",
        actual="this machine has no NVIDIA driver: there is no libcuda.so.1",
        hint=f"install NVIDIA's driver ({_DRIVERS}); {_CONTAINER}; or {_PLAIN}",
    )


def _unfit(driver: Driver, numbers: tuple[int, ...]) -> Iterator[Finding]:
    """Problems of a driver that works."""
    if driver.compiler:
        yield _missing(
            id="driver-compiler",
            actual=f"the driver cannot compile PTX: {driver.compiler}",
            hint="install the driver's libnvidia-ptxjitcompiler.so.1, on Debian "
            "libnvidia-ptxjitcompiler1; in a container: NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        )
    known = {gpu.number for gpu in driver.gpus}
    if numbers and known == {-1}:
        yield _missing(
            id="gpu-numbers",
            actual=f"the numbers of the GPUs are unknown: {driver.unnumbered or 'no reason given'}",
            hint="in a container: NVIDIA_DRIVER_CAPABILITIES=compute,utility; or set gpu: bridge "
            "without numbers",
        )
        return
    if missing := sorted({*numbers} - known):
        there = ", ".join(str(number) for number in sorted(known))
        yield _missing(
            id="gpu-numbers",
            actual=f"no GPU {', '.join(map(str, missing))} here, available: {there}",
            hint="use the numbers that nvidia-smi lists, or set gpu: bridge for all of them",
            raises="ConfigError",
        )
    for gpu in driver.chosen(numbers):
        if mode := _MODES.get(gpu.compute_mode):
            yield _missing(
                id="gpu-compute-mode",
                actual=f"{gpu} is {mode}, but a smoke suite needs several processes on it",
                hint="type: sudo nvidia-smi -c 0",
                raises="HostError",
            )


def require(driver: Driver, numbers: tuple[int, ...] = ()) -> None:
    """Raise the first of :func:`problems`, as the error class it names."""
    for problem in problems(driver, numbers):
        hint = f"{problem.hint[:1].upper()}{problem.hint[1:]}."
        raise named(problem.raises)(problem.actual, hint=hint)
