"""Whether a bridge works correctly: runs :mod:`.probe` through it and on Linux' driver itself.

The answers are compared value by value, and a kernel's results with the expected ones. Runs once
per start of the sandbox, before anything else uses the bridge.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Protocol

from pydantic import Field, StringConstraints

from pipelines.core.errors import HostError
from pipelines.core.files import write_atomic
from pipelines.core.hosttext import safe_line
from pipelines.core.model import Model, first_problem
from pipelines.hosts.sandbox.bridge import driver, probe
from pipelines.hosts.sandbox.bridge.driver import Gpu

_PLACE = "windows/temp/driver-probe.py"
_SECONDS = 60.0
_SHOWN = 160  # characters of a value
_WITHOUT = "The sandbox works without a GPU: remove --gpu and 'gpu: bridge'."
#: The results expected from the probe's kernel: three times the number, plus half of it rounded
#: down.
NUMBERS = tuple(3 * i + i // 2 for i in range(probe.COUNT))
_CALLED = (7001, True)
_ERROR = (101, "CUDA_ERROR_INVALID_DEVICE")

_Text = Annotated[str, StringConstraints(max_length=400)]
_Numbers = Annotated[tuple[int, ...], Field(max_length=4096)]


class Side(StrEnum):
    """The side that was queried, as named in messages."""

    DRIVER = "NVIDIA's driver itself"
    BRIDGE = "the GPU bridge"


@dataclass(frozen=True)
class Difference:
    """A deviation."""

    side: Side
    """The side at fault."""
    what: str
    """A description of it."""


class Runs(Protocol):
    """A Windows: :class:`pipelines.hosts.sandbox.wine.Prefix`."""

    @property
    def drive(self) -> Path:
        """Drive C:."""

    def run(self, arguments: Sequence[str], *, timeout: float) -> str:
        """Run a program there; :class:`HostError` if it fails."""


class GpuAnswers(Model):
    """The answers for one GPU."""

    name: _Text
    uuid: _Text
    numbers: _Numbers
    callback: tuple[int, bool]
    occupancy: tuple[int, int, _Numbers]


class Answers(Model):
    """The output of :mod:`.probe`, unless it failed."""

    platform: _Text
    bridge: _Text
    driver: int
    error: tuple[int, _Text, _Text]
    gpus: Annotated[tuple[GpuAnswers, ...], Field(max_length=64)]


@dataclass(frozen=True)
class PassedTest:
    """A self-test without differences."""

    bridge: str
    """The name the bridge reports."""
    gpus: int
    seconds: float

    def __str__(self) -> str:
        """In one line."""
        many = f"{self.gpus} GPUs" if self.gpus > 1 else "the GPU"
        return (
            f"kernel, callback, occupancy and error on {many} as without the bridge, "
            f"{self.seconds:.1f} s"
        )


def run_bridge_selftest(
    prefix: Runs, python: str, gpus: Sequence[Gpu], native: Callable[[list[str]], str] | None = None
) -> PassedTest:
    """Query both sides; :class:`HostError` if bridge or driver fails, or they differ.

    ``python`` is a Windows path in ``prefix``; ``native`` runs the probe on this machine.
    """
    began = time.monotonic()
    places = [gpu.bus for gpu in gpus]
    script = prefix.drive / _PLACE
    write_atomic(script, Path(probe.__file__).read_bytes())
    command = [python, "-I", "C:\\" + _PLACE.replace("/", "\\"), *places]
    with ThreadPoolExecutor(2) as pool:
        here = pool.submit(native or _run_probe_on_linux, places)
        there = pool.submit(prefix.run, command, timeout=_SECONDS)
        plain = _parse_probe_answers(here.result(), Side.DRIVER)
        try:
            output = there.result()
        except HostError as error:
            what = f"the GPU bridge fails its self-test: {error.message}"
            raise _self_test_error(Difference(Side.BRIDGE, what)) from None
    bridged = _parse_probe_answers(output, Side.BRIDGE)
    if difference := next(find_answer_differences(plain, bridged, gpus), None):
        raise _self_test_error(difference)
    return PassedTest(safe_line(bridged.bridge, 80), len(gpus), time.monotonic() - began)


def _self_test_error(difference: Difference) -> HostError:
    """The error, with a hint for the side at fault: the driver was queried on its own first."""
    hint = "See nvidia-smi."
    if difference.side is Side.BRIDGE:
        hint = (
            "Without the bridge the driver gives the right result: please report this line, the "
            "GPU, its driver and Wine's version."
        )
    return HostError(difference.what, hint=f"{hint} {_WITHOUT}")


def _run_probe_on_linux(places: list[str]) -> str:
    try:
        done = driver.run_driver_script(Path(probe.__file__), places, seconds=_SECONDS)
    except subprocess.TimeoutExpired:
        what = f"{Side.DRIVER} hung for {_SECONDS:.0f} s in a kernel"
        raise _self_test_error(Difference(Side.DRIVER, what)) from None
    text = done.stdout.decode("utf-8", "replace")
    if done.returncode:
        output = safe_line(done.stderr.decode("utf-8", "replace")[-1000:], 300)
        what = f"a process on {Side.DRIVER} exited with {done.returncode}: {output}"
        raise _self_test_error(Difference(Side.DRIVER, what))
    return text


def _parse_probe_answers(text: str, side: Side) -> Answers:
    rows = (row for row in text.splitlines() if row.startswith(probe.MARK))
    try:
        data = json.loads(next(rows).removeprefix(probe.MARK))
        if not isinstance(data, dict) or "failed" not in data:
            return Answers.model_validate(data)
        what = f"fails: {safe_line(data['failed'], 300)}"
    except StopIteration:
        what = "printed nothing in its self-test"
    except ValueError as error:  # from JSON or pydantic
        why = first_problem(error)
        what = f"printed invalid output in its self-test: {safe_line(why, 300)}"
    raise _self_test_error(Difference(side, f"{side} {what}"))


def find_answer_differences(
    plain: Answers, bridged: Answers, gpus: Sequence[Gpu]
) -> Iterator[Difference]:
    """Each deviation; those without a bridge first."""
    for what in _validate_answers(Side.DRIVER, plain, gpus):
        yield Difference(Side.DRIVER, what)
    if plain.error[:2] != _ERROR or not plain.error[2]:
        text = f"{Side.DRIVER} reports for a nonexistent GPU {safe_line(plain.error, _SHOWN)}"
        yield Difference(Side.DRIVER, f"{text}, not {_ERROR}")
    if plain.bridge:
        what = f"this machine's libcuda.so.1 is itself a bridge ({safe_line(plain.bridge, 80)})"
        yield Difference(Side.DRIVER, what)
    for what in (*_validate_answers(Side.BRIDGE, bridged, gpus), *_compare_answers(plain, bridged)):
        yield Difference(Side.BRIDGE, what)


def _compare_answers(plain: Answers, bridged: Answers) -> Iterator[str]:
    """Where the bridge differs from the driver."""
    if bridged.platform != "win32":
        yield f"{Side.BRIDGE} was not called by Windows' Python but on {bridged.platform[:20]}"
    if not bridged.bridge:
        yield f"the driver in the sandbox is not {Side.BRIDGE}: it does not identify itself as one"
    yield from _compare_value("driver version", plain.driver, bridged.driver)
    yield from _compare_value("error", plain.error, bridged.error)
    for own, other in zip(plain.gpus, bridged.gpus, strict=False):
        for name in GpuAnswers.model_fields:
            yield from _compare_value(
                f"{name} of {own.name[:80]}", getattr(own, name), getattr(other, name)
            )


def _validate_answers(who: Side, answers: Answers, gpus: Sequence[Gpu]) -> Iterator[str]:
    """What is wrong regardless of the other side."""
    if not gpus:
        yield f"{who} was not asked about any GPU"
    if len(answers.gpus) != len(gpus):
        yield f"{who} reports {len(answers.gpus)} GPUs, but {len(gpus)} were requested"
    for gpu, expected in zip(answers.gpus, gpus, strict=False):
        if expected.uuid and gpu.uuid != expected.uuid:
            there = f"{safe_line(expected.bus, 20)}, not {safe_line(expected.uuid, 40)}"
            yield f"{who} has the GPU {safe_line(gpu.uuid, 40)} on {there}"
        if gpu.numbers != NUMBERS:
            bad = [i for i, value in enumerate(gpu.numbers[: len(NUMBERS)]) if value != NUMBERS[i]]
            where = f"{len(bad)} of them, the first is {bad[0]}" if bad else "some are missing"
            yield f"{who}: a kernel computes wrong numbers on {safe_line(gpu.name, 80)}: {where}"
        if gpu.callback != _CALLED:
            yield f"{who}: a callback arrived as {gpu.callback}, not as {_CALLED}"
        if not gpu.occupancy[2]:
            yield f"{who}: the occupancy was computed without calling our function"


def _compare_value(what: str, plain: object, bridged: object) -> Iterator[str]:
    if plain != bridged:
        yield (
            f"the GPU bridge has a different {safe_line(what, 100)} from {Side.DRIVER}: "
            f"{safe_line(bridged, _SHOWN)}, not {safe_line(plain, _SHOWN)}"
        )
