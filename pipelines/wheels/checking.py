"""What a check of a wheel is, what it may need, and which findings are errors for whom."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

from packaging.tags import Tag

from pipelines.core.architectures.archs import ArchList
from pipelines.core.errors import PipelineError
from pipelines.core.finding import Finding, Level
from pipelines.record.toolsets import ToolSet
from pipelines.wheels.binary import Binary
from pipelines.wheels.imported import Exports
from pipelines.wheels.metadata import WheelFacts
from pipelines.wheels.tags import wheel_tags


@dataclass(frozen=True)
class Order:
    """What a wheel was built for, or taken for."""

    platform: str
    """A platform tag such as ``win_amd64``; ``any``: it is to have no compiled code."""
    python: str
    """A release such as ``3.12``."""
    tag: str | None = None
    """The recipe's ``wheel_tag``: of ``py3-none`` or ``py39-none`` nothing is for one Python."""
    toolset: ToolSet | None = None
    """What should have built it, with the stamp of that host's wheels."""
    torch: str = ""
    """The release that its METADATA must take; empty: any."""

    @property
    def pure(self) -> bool:
        """Whether it is to have no compiled code, and so to be for every platform."""
        return self.platform == "any"

    @property
    def library(self) -> bool:
        """Whether what is compiled in it is loaded by any Python, and not imported by one."""
        return not self.pure and (self.tag or "").endswith("-none")

    @property
    def takes(self) -> Collection[Tag]:
        """The tags of which its Python takes wheels there."""
        return wheel_tags(self.python, [self.platform])


@dataclass(frozen=True)
class Kernels:
    """What device code was ordered."""

    archs: ArchList
    cuda: str
    """A release such as ``12.8``; ``12`` stands for every 12.x."""
    expects: Callable[[str], Collection[str]] | None = None
    """Of a binary's name those of ``archs`` that it is to have, where that is not all of them."""
    jit: bool = False
    """Whether code that serves an architecture does, be it another's or PTX."""


@dataclass(frozen=True)
class Installation:
    """Where a wheel of somebody else's is to be installed."""

    python: str
    platforms: Sequence[str]
    files: tuple[str, ...] = ()
    """Paths within the wheels that are installed with it."""

    @property
    def takes(self) -> Collection[Tag]:
        """The tags of which its Python takes wheels there."""
        return wheel_tags(self.python, self.platforms)


@dataclass(frozen=True)
class Inputs:
    """What checks may need. A check whose need is ``None`` does not apply."""

    binaries: tuple[Binary, ...]
    elsewhere: tuple[Binary, ...] = ()
    """Files with device code that are no binaries by their names."""
    facts: WheelFacts | None = None
    """``None``: it is no wheel, but a library of device code."""
    order: Order | None = None
    kernels: Kernels | None = None
    installation: Installation | None = None
    stated: str | None = None
    """The sha256 that the wheel's place states; empty: it states none."""
    torches: Mapping[str, Exports | None] | None = None
    """Releases of torch that it must load with -> what their DLLs export, if that is known."""


class Result(NamedTuple):
    """What a check function says."""

    level: Level
    actual: str
    expected: str = ""
    hint: str = ""
    source: str = ""
    values: Iterable[str] = ()


@dataclass(frozen=True)
class Policy:
    """Which findings are errors for whoever asks."""

    errors: frozenset[tuple[str, Level]] = frozenset()
    """Check and level, besides those of level ``error``."""
    tolerated: frozenset[str] = frozenset()
    """Checks whose errors are only to be warned of."""

    def level(self, check: str, level: Level) -> Level:
        """The level of what ``check`` has found."""
        if (check, level) in self.errors:
            return "error"
        return "warning" if level == "error" and check in self.tolerated else level


@dataclass(frozen=True)
class Check:
    """A check: its parameters name the fields of :class:`Inputs` that it needs."""

    id: str
    title: str
    function: Callable[..., Iterable[Result]]

    def __post_init__(self) -> None:
        known = {one.name for one in fields(Inputs)}
        if unknown := set(inspect.signature(self.function).parameters) - known:
            raise TypeError(f"check {self.id} needs {unknown}, which no inputs have")

    def run(self, inputs: Inputs, policy: Policy) -> Iterable[Finding]:
        """Its findings; none where it does not apply. One that breaks has found an error."""
        needs = inspect.signature(self.function).parameters.values()
        given = {need.name: getattr(inputs, need.name) for need in needs}
        if any(given[need.name] is None and need.default is need.empty for need in needs):
            return
        try:
            results = [*self.function(**given)]
        except PipelineError:  # of this machine, such as a full disk
            raise
        except Exception as error:  # what somebody made to break a reader is found by that
            actual = f"it cannot be looked at: {type(error).__name__}: {error}"
            yield Finding(id=self.id, title=self.title, level="error", actual=actual)
            return
        for result in results:
            level = policy.level(self.id, result.level)
            told = result._replace(level=level, values=tuple(result.values))
            yield Finding(id=self.id, title=self.title, **told._asdict())


def check(id_: str, title: str) -> Callable[[Callable[..., Iterable[Result]]], Check]:
    """Make a check of a function."""
    return lambda function: Check(id_, title, function)


def unless(wrong: object, level: Level = "error") -> Level:
    """``ok`` unless something is wrong."""
    return level if wrong else "ok"
