"""Defines checks of wheels, their inputs, and policies for which findings are errors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

from packaging.tags import Tag

from pipelines.core.architectures.archs import ArchList
from pipelines.core.errors import PipelineError
from pipelines.core.finding import Finding, Level
from pipelines.core.toolsets import Toolset
from pipelines.wheels.binary import Binary
from pipelines.wheels.imports import Exports
from pipelines.wheels.metadata import Depth, WheelFacts
from pipelines.wheels.tags import wheel_tags


@dataclass(frozen=True)
class Order:
    """What a wheel was built or chosen for."""

    platform: str
    """A platform tag such as ``win_amd64``; ``any``: no compiled code."""
    python: str
    """A version such as ``3.12``."""
    tag: str | None = None
    """The recipe's ``wheel_tag``; ``py3-none`` and ``py39-none`` are for every Python."""
    toolset: Toolset | None = None
    """The toolset that should have built it, with its stamp."""
    torch: str = ""
    """The version that its METADATA must accept; empty: any."""

    @property
    def pure(self) -> bool:
        """Whether it has no compiled code and is for every platform."""
        return self.platform == "any"

    @property
    def library(self) -> bool:
        """Whether its compiled code is loaded by any Python rather than imported by one."""
        return not self.pure and (self.tag or "").endswith("-none")

    @property
    def takes(self) -> Collection[Tag]:
        """The tags that its Python accepts."""
        return wheel_tags(self.python, [self.platform])


@dataclass(frozen=True)
class Kernels:
    """The requested device code."""

    archs: ArchList
    cuda: str
    """A version such as ``12.8``; ``12`` means every 12.x."""
    expects: Callable[[str], Collection[str]] | None = None
    """For a binary's name, which of ``archs`` it should have; ``None``: all of them."""
    jit: bool = False
    """Whether compatible code or PTX suffices for an architecture."""


@dataclass(frozen=True)
class Installation:
    """Where an external wheel is to be installed."""

    python: str
    platforms: Sequence[str]
    files: tuple[str, ...] = ()
    """Paths within wheels that are installed with it."""

    @property
    def takes(self) -> Collection[Tag]:
        """The tags that its Python accepts."""
        return wheel_tags(self.python, self.platforms)


@dataclass(frozen=True)
class Inputs:
    """What checks may need. A check does not apply if an input it needs is ``None``."""

    binaries: tuple[Binary, ...]
    elsewhere: tuple[Binary, ...] = ()
    """Files with device code whose names are not those of binaries."""
    facts: WheelFacts | None = None
    """``None``: not a wheel but a library of device code."""
    order: Order | None = None
    kernels: Kernels | None = None
    installation: Installation | None = None
    stated: str | None = None
    """The sha256 that the wheel's source states; empty if it does not."""
    torches: Mapping[str, Exports | None] | None = None
    """Versions of torch that it must load with -> their exports, if known."""


class Result(NamedTuple):
    """The result of a check function."""

    level: Level
    actual: str
    expected: str = ""
    hint: str = ""
    subject: str = ""
    values: Iterable[str] = ()


@dataclass(frozen=True)
class Policy:
    """Which findings are errors for a caller."""

    errors: frozenset[tuple[str, Level]] = frozenset()
    """Check and level that are errors in addition to level ``error``."""
    tolerated: frozenset[str] = frozenset()
    """Checks whose errors are only warnings."""

    def level(self, check: str, level: Level) -> Level:
        """The level of a finding of ``check``."""
        if (check, level) in self.errors:
            return "error"
        return "warning" if level == "error" and check in self.tolerated else level


@dataclass(frozen=True)
class Check:
    """A check: its parameters name the fields of :class:`Inputs` that it needs."""

    id: str
    title: str
    function: Callable[..., Iterable[Result]]
    reads: Depth = Depth.ALL
    """How much of a wheel must be read for its results to hold; of less it is ``unknown``."""

    def __post_init__(self) -> None:
        known = {field.name for field in fields(Inputs)}
        if unknown := set(inspect.signature(self.function).parameters) - known:
            raise TypeError(f"check {self.id} needs unknown inputs {unknown}")

    def run(self, inputs: Inputs, policy: Policy) -> Iterable[Finding]:
        """Its findings; none if it does not apply. A check that raises is an error of the wheel."""
        needs = inspect.signature(self.function).parameters.values()
        arguments = {need.name: getattr(inputs, need.name) for need in needs}
        if any(arguments[need.name] is None and need.default is need.empty for need in needs):
            return
        depth = inputs.facts.depth if inputs.facts else Depth.ALL
        try:
            results = [*self.function(**arguments)]
        except PipelineError:  # of this machine, such as a full disk
            raise
        except Exception as error:  # hostile files can break a parser
            actual = f"check failed: {type(error).__name__}: {error}"
            failed: Level = "error" if depth >= self.reads else "unknown"
            yield Finding(id=self.id, title=self.title, level=failed, actual=actual)
            return
        for result in results:
            level = policy.level(self.id, result.level)
            row = result._replace(level=level, values=tuple(result.values))
            if depth < self.reads and level != "skipped":
                row = Result("unknown", "not all of it was read", subject=result.subject)
            yield Finding(id=self.id, title=self.title, **row._asdict())


def wheel_check(
    id_: str, title: str, reads: Depth = Depth.ALL
) -> Callable[[Callable[..., Iterable[Result]]], Check]:
    """Make a check of a function."""
    return lambda function: Check(id_, title, function, reads)


def level_if_wrong(wrong: object, level: Level = "error") -> Level:
    """``ok`` unless something is wrong."""
    return level if wrong else "ok"
