"""Problems of a bridge to this machine's GPU driver: each with a code, a message and a hint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipelines.core.errors import error_class
from pipelines.core.finding import Finding
from pipelines.core.model import Model, read_data
from pipelines.core.refusals import Refusal
from pipelines.hosts.base import HERE
from pipelines.hosts.sandbox.bridge.driver import Driver

_FILE = Path(__file__).with_name("problems.yaml")
#: CUcomputemode -> its name; in the others at most one process may use the GPU.
_MODES = {1: "exclusive to a thread", 2: "prohibited", 3: "exclusive to a process"}


class Problem(Refusal):
    """What it means that the driver gives a CUresult, or that something is not there."""

    rule: str = ""
    sure: bool = False
    """Whether the driver itself reports the reason; otherwise a missing device may be the cause."""


class Problems(Model):
    """``problems.yaml``."""

    problems: dict[str, Problem]


def _problem(key: str, *, after: str = "", **said: object) -> Finding:
    row = read_data(_FILE, Problems).problems[key]
    return Finding(
        id=row.rule or key,
        level="error",
        source=HERE,
        actual=row.message.format(**said) + after,
        hint=row.hint,
        raises=row.raises,
    )


def find_driver_problems(driver: Driver, numbers: tuple[int, ...] = ()) -> tuple[Finding, ...]:
    """What is wrong for a bridge to these GPUs, root cause first; empty: nothing."""
    if first := _diagnose_no_usable_gpu(driver):
        return (first,)
    return tuple(_check_gpu_selection(driver, numbers))


def _diagnose_no_usable_gpu(driver: Driver) -> Finding | None:
    """Why there is no usable GPU at all."""
    if driver.library is None:
        return _diagnose_missing_driver(driver)
    if not driver.failure and driver.gpus:
        return None
    known = read_data(_FILE, Problems).problems
    key = str(driver.code) if str(driver.code) in known else "other"
    if not known[key].sure:
        if driver.wsl:
            return _problem("driver-windows")
        if not driver.control:
            return _problem("driver-devices")
        if not driver.uvm:
            return _problem("driver-uvm")
    return _problem(key, after=f" ({driver.failure})")


def _diagnose_missing_driver(driver: Driver) -> Finding:
    if driver.wsl:
        return _problem("driver-windows")
    if driver.module or driver.control:
        return _problem("no-library")
    if "no NVIDIA driver" not in driver.failure:
        return _problem("unknown", why=driver.failure)
    return _problem("no-driver")


def _check_gpu_selection(driver: Driver, numbers: tuple[int, ...]) -> Iterator[Finding]:
    """Problems of a driver that works."""
    if driver.compiler:
        yield _problem("driver-compiler", why=driver.compiler)
    known = {gpu.number for gpu in driver.gpus}
    if numbers and known == {-1}:
        yield _problem("no-numbers", why=driver.unnumbered or "no reason given")
        return
    if missing := sorted({*numbers} - known):
        there = ", ".join(map(str, sorted(known)))
        yield _problem("gpu-numbers", missing=", ".join(map(str, missing)), there=there)
    for gpu in driver.chosen(numbers):
        if mode := _MODES.get(gpu.compute_mode):
            yield _problem("gpu-compute-mode", gpu=gpu, mode=mode)


def require_usable_driver(driver: Driver, numbers: tuple[int, ...] = ()) -> None:
    """Raise the first of :func:`find_driver_problems`, as the error class it names."""
    for problem in find_driver_problems(driver, numbers):
        hint = f"{problem.hint[:1].upper()}{problem.hint[1:]}."
        raise error_class(problem.raises)(problem.actual, hint=hint)
