"""Whether a bridge tells the truth: :mod:`.probe` through it, and the same on Linux' driver itself.

What both say is compared value by value, and what a kernel computes with what it should. Runs once
a start of the sandbox, before anything else may rest on the bridge.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Protocol

from pydantic import Field, StringConstraints, ValidationError

from pipelines.errors import HostError
from pipelines.files import write_atomic
from pipelines.hosts.sandbox.bridge import driver, probe
from pipelines.hosts.sandbox.bridge.driver import Gpu
from pipelines.hosttext import line
from pipelines.model import Model, first_problem

_PLACE = "windows/temp/driver-probe.py"
_SECONDS = 60.0
_SHOWN = 160  # characters of a value
_WITHOUT = "The sandbox works without a GPU: leave --gpu and 'gpu: bridge' out."
_BRIDGE = "the GPU bridge"
#: What the kernel of the probe computes: three times the number, and its half without the rest.
NUMBERS = tuple(3 * i + i // 2 for i in range(probe.COUNT))
_CALLED = (7001, True)
_ERROR = (101, "CUDA_ERROR_INVALID_DEVICE")

_Text = Annotated[str, StringConstraints(max_length=400)]
_Numbers = Annotated[tuple[int, ...], Field(max_length=4096)]


class Runs(Protocol):
    """A Windows: :class:`pipelines.hosts.sandbox.wine.Prefix`."""

    @property
    def drive(self) -> Path:
        """Drive C:."""

    def run(self, arguments: Sequence[str], *, timeout: float) -> str:
        """Run a program there; :class:`HostError` if it fails."""


class OfGpu(Model):
    """What was said of one GPU."""

    name: _Text
    uuid: _Text
    numbers: _Numbers
    callback: tuple[int, bool]
    occupancy: tuple[int, int, _Numbers]


class Answers(Model):
    """What :mod:`.probe` prints, if it did not fail."""

    platform: _Text
    bridge: _Text
    driver: int
    error: tuple[int, _Text, _Text]
    gpus: Annotated[tuple[OfGpu, ...], Field(max_length=64)]


@dataclass(frozen=True)
class Passed:
    """A self-test without a difference."""

    bridge: str
    """What the bridge calls itself."""
    gpus: int
    seconds: float

    def __str__(self) -> str:
        """In a line."""
        many = f"{self.gpus} GPUs" if self.gpus > 1 else "the GPU"
        return (
            f"kernel, callback, occupancy and error on {many} as without the bridge, "
            f"{self.seconds:.1f} s"
        )


def run(
    prefix: Runs, python: str, gpus: Sequence[Gpu], native: Callable[[list[str]], str] | None = None
) -> Passed:
    """Ask both; :class:`HostError` where the bridge or the driver itself fails, or they differ.

    ``python`` is a Windows path in ``prefix``; ``native`` runs the probe on this machine.
    """
    began = time.monotonic()
    places = [gpu.bus for gpu in gpus]
    script = prefix.drive / _PLACE
    script.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(script, Path(probe.__file__).read_bytes())
    command = [python, "-I", "C:\\" + _PLACE.replace("/", "\\"), *places]
    with ThreadPoolExecutor(2) as pool:
        here = pool.submit(native or _on_linux, places)
        there = pool.submit(prefix.run, command, timeout=_SECONDS)
        plain = _read(here.result(), "NVIDIA's driver itself")
        try:
            bridged = _read(there.result(), "the GPU bridge")
        except HostError as error:
            raise _failed(f"the GPU bridge fails its self-test: {error.message}") from None
    if found := next(differences(plain, bridged, gpus), None):
        raise _failed(found)
    return Passed(line(bridged.bridge, 80), len(gpus), time.monotonic() - began)


def _failed(message: str) -> HostError:
    """What failed, with who can do something about it: the driver was asked by itself before."""
    if message.startswith(_BRIDGE):
        cure = "Without the bridge the driver does it right: please report this line, the GPU, its "
        return HostError(message, advice=f"{cure}driver and Wine's version. {_WITHOUT}")
    return HostError(message, advice=f"See nvidia-smi. {_WITHOUT}")


def _on_linux(places: list[str]) -> str:
    try:
        done = driver.alone(Path(probe.__file__), places, seconds=_SECONDS)
    except subprocess.TimeoutExpired:
        raise _failed(f"NVIDIA's driver itself hung for {_SECONDS:.0f} s in a kernel") from None
    text = done.stdout.decode("utf-8", "replace")
    if done.returncode:
        said = line(done.stderr.decode("utf-8", "replace")[-1000:], 300)
        raise _failed(f"a process on NVIDIA's driver itself left with {done.returncode}: {said}")
    return text


def _read(text: str, who: str) -> Answers:
    rows = (row for row in text.splitlines() if row.startswith(probe.MARK))
    try:
        told = json.loads(next(rows).removeprefix(probe.MARK))
        if isinstance(told, dict) and "failed" in told:
            raise _failed(f"{who} fails: {line(told['failed'], 300)}")
        return Answers.model_validate(told)
    except StopIteration:
        raise _failed(f"{who} said nothing in its self-test") from None
    except ValidationError as error:
        said = line(first_problem(error), 300)
        raise _failed(f"{who} told nonsense in its self-test: {said}") from None
    except ValueError as error:
        raise _failed(f"{who} told nonsense in its self-test: {line(error, 300)}") from None


def differences(plain: Answers, bridged: Answers, gpus: Sequence[Gpu]) -> Iterator[str]:
    """Each thing that is not as it should be, in words; what is wrong without a bridge first."""
    yield from _wrong("NVIDIA's driver itself", plain, gpus)
    if plain.error[:2] != _ERROR or not plain.error[2]:
        yield (
            "NVIDIA's driver itself says of a GPU that there is not "
            f"{line(plain.error, _SHOWN)}, not {_ERROR}"
        )
    if plain.bridge:
        yield f"this machine's libcuda.so.1 is itself a bridge ({line(plain.bridge, 80)})"
    yield from _wrong("the GPU bridge", bridged, gpus)
    if bridged.platform != "win32":
        yield f"the GPU bridge was not asked by Windows' Python but on {bridged.platform[:20]}"
    if not bridged.bridge:
        yield "the driver in the sandbox is not the GPU bridge: it does not say that it is one"
    yield from _other("driver version", plain.driver, bridged.driver)
    yield from _other("error", plain.error, bridged.error)
    for own, other in zip(plain.gpus, bridged.gpus, strict=False):
        for name in OfGpu.model_fields:
            yield from _other(
                f"{name} of {own.name[:80]}", getattr(own, name), getattr(other, name)
            )


def _wrong(who: str, told: Answers, gpus: Sequence[Gpu]) -> Iterator[str]:
    """What is wrong of itself, whatever else is said elsewhere."""
    if not gpus:
        yield f"{who} was asked about no GPU"
    if len(told.gpus) != len(gpus):
        yield f"{who} tells of {len(told.gpus)} GPUs, and {len(gpus)} were asked for"
    for gpu, asked in zip(told.gpus, gpus, strict=False):
        if asked.uuid and gpu.uuid != asked.uuid:
            there = f"{line(asked.bus, 20)}, not {line(asked.uuid, 40)}"
            yield f"{who} has the GPU {line(gpu.uuid, 40)} on {there}"
        if gpu.numbers != NUMBERS:
            bad = [i for i, value in enumerate(gpu.numbers[: len(NUMBERS)]) if value != NUMBERS[i]]
            where = f"{len(bad)} of them, the first is {bad[0]}" if bad else "not all are there"
            yield f"{who}: a kernel computes wrong numbers on {line(gpu.name, 80)}: {where}"
        if gpu.callback != _CALLED:
            yield f"{who}: a callback came as {gpu.callback}, not as {_CALLED}"
        if not gpu.occupancy[2]:
            yield f"{who}: the occupancy was told without asking our own function"


def _other(what: str, plain: object, bridged: object) -> Iterator[str]:
    if plain != bridged:
        yield (
            f"the GPU bridge has another {line(what, 100)} than NVIDIA's driver itself: "
            f"{line(bridged, _SHOWN)}, not {line(plain, _SHOWN)}"
        )
