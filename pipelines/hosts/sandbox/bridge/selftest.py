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
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Protocol

from pydantic import Field, StringConstraints, ValidationError

from pipelines.core.errors import HostError
from pipelines.core.files import write_atomic
from pipelines.core.hosttext import line
from pipelines.core.model import Model, first_problem
from pipelines.hosts.sandbox.bridge import driver, probe
from pipelines.hosts.sandbox.bridge.driver import Gpu

_PLACE = "windows/temp/driver-probe.py"
_SECONDS = 60.0
_SHOWN = 160  # characters of a value
_WITHOUT = "The sandbox works without a GPU: leave --gpu and 'gpu: bridge' out."
#: What the kernel of the probe computes: three times the number, and its half without the rest.
NUMBERS = tuple(3 * i + i // 2 for i in range(probe.COUNT))
_CALLED = (7001, True)
_ERROR = (101, "CUDA_ERROR_INVALID_DEVICE")

_Text = Annotated[str, StringConstraints(max_length=400)]
_Numbers = Annotated[tuple[int, ...], Field(max_length=4096)]


class Side(StrEnum):
    """Who was asked, as messages call it."""

    DRIVER = "NVIDIA's driver itself"
    BRIDGE = "the GPU bridge"


@dataclass(frozen=True)
class Difference:
    """A thing that is not as it should be."""

    side: Side
    """Whose fault it is."""
    what: str
    """In a sentence."""


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
        plain = _read(here.result(), Side.DRIVER)
        try:
            said = there.result()
        except HostError as error:
            what = f"the GPU bridge fails its self-test: {error.message}"
            raise _failed(Difference(Side.BRIDGE, what)) from None
    bridged = _read(said, Side.BRIDGE)
    if found := next(differences(plain, bridged, gpus), None):
        raise _failed(found)
    return Passed(line(bridged.bridge, 80), len(gpus), time.monotonic() - began)


def _failed(found: Difference) -> HostError:
    """What failed, with who can do something about it: the driver was asked by itself before."""
    hint = "See nvidia-smi."
    if found.side is Side.BRIDGE:
        hint = (
            "Without the bridge the driver does it right: please report this line, the GPU, its "
            "driver and Wine's version."
        )
    return HostError(found.what, hint=f"{hint} {_WITHOUT}")


def _on_linux(places: list[str]) -> str:
    try:
        done = driver.alone(Path(probe.__file__), places, seconds=_SECONDS)
    except subprocess.TimeoutExpired:
        what = f"{Side.DRIVER} hung for {_SECONDS:.0f} s in a kernel"
        raise _failed(Difference(Side.DRIVER, what)) from None
    text = done.stdout.decode("utf-8", "replace")
    if done.returncode:
        said = line(done.stderr.decode("utf-8", "replace")[-1000:], 300)
        what = f"a process on {Side.DRIVER} left with {done.returncode}: {said}"
        raise _failed(Difference(Side.DRIVER, what))
    return text


def _read(text: str, side: Side) -> Answers:
    rows = (row for row in text.splitlines() if row.startswith(probe.MARK))
    try:
        told = json.loads(next(rows).removeprefix(probe.MARK))
        if not isinstance(told, dict) or "failed" not in told:
            return Answers.model_validate(told)
        what = f"fails: {line(told['failed'], 300)}"
    except StopIteration:
        what = "said nothing in its self-test"
    except ValueError as error:  # of JSON, or pydantic's
        why = first_problem(error) if isinstance(error, ValidationError) else error
        what = f"told nonsense in its self-test: {line(why, 300)}"
    raise _failed(Difference(side, f"{side} {what}"))


def differences(plain: Answers, bridged: Answers, gpus: Sequence[Gpu]) -> Iterator[Difference]:
    """Each thing that is not as it should be; what is wrong without a bridge first."""
    for what in _wrong(Side.DRIVER, plain, gpus):
        yield Difference(Side.DRIVER, what)
    if plain.error[:2] != _ERROR or not plain.error[2]:
        said = f"{Side.DRIVER} says of a GPU that there is not {line(plain.error, _SHOWN)}"
        yield Difference(Side.DRIVER, f"{said}, not {_ERROR}")
    if plain.bridge:
        what = f"this machine's libcuda.so.1 is itself a bridge ({line(plain.bridge, 80)})"
        yield Difference(Side.DRIVER, what)
    for what in (*_wrong(Side.BRIDGE, bridged, gpus), *_unlike(plain, bridged)):
        yield Difference(Side.BRIDGE, what)


def _unlike(plain: Answers, bridged: Answers) -> Iterator[str]:
    """What the bridge says otherwise than the driver."""
    if bridged.platform != "win32":
        yield f"{Side.BRIDGE} was not asked by Windows' Python but on {bridged.platform[:20]}"
    if not bridged.bridge:
        yield f"the driver in the sandbox is not {Side.BRIDGE}: it does not say that it is one"
    yield from _other("driver version", plain.driver, bridged.driver)
    yield from _other("error", plain.error, bridged.error)
    for own, other in zip(plain.gpus, bridged.gpus, strict=False):
        for name in OfGpu.model_fields:
            yield from _other(
                f"{name} of {own.name[:80]}", getattr(own, name), getattr(other, name)
            )


def _wrong(who: Side, told: Answers, gpus: Sequence[Gpu]) -> Iterator[str]:
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
            f"the GPU bridge has another {line(what, 100)} than {Side.DRIVER}: "
            f"{line(bridged, _SHOWN)}, not {line(plain, _SHOWN)}"
        )
