"""The report on one wheel: the models of ``invoke audit``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pipelines.audit.loads import Loads
from pipelines.core.finding import Finding, Level, worst_level
from pipelines.core.model import Model
from pipelines.wheels.stable import Stable

#: Version of what ``--json`` prints; raised when programs that read it must change.
SCHEMA = 1
Runs = Literal["native", "jit", "partly", "no", "unknown"]
#: The best first.
RUNS: tuple[Runs, ...] = ("native", "jit", "partly", "no", "unknown")


class Card(Model):
    """How a wheel's device code runs on the GPUs of one compute capability."""

    names: tuple[str, ...]
    """Such as ``RTX 40xx``."""
    capability: str
    """Such as ``8.9``."""
    runs: Runs
    """``native``: machine code of each unit; ``jit``: the driver compiles PTX of some; ``partly``:
    some units run and others fail when they are called; ``no``; ``unknown``: there is no device
    code, or not all of it could be read."""
    native: int = 0
    """Units with machine code for it."""
    jit: int = 0
    """Units with PTX for it alone."""
    units: int = 0
    """All units."""
    driver: str = ""
    """The oldest Windows driver by CUDA's rules: ``528.33``, ``of CUDA 13.2``; empty: unknown."""
    why: str = ""


class Coverage(Model):
    """A binary's units by what they hold."""

    binary: str
    units: int
    sass: dict[str, int]
    """Architecture -> units with machine code for it."""
    ptx: dict[str, int]
    other: tuple[str, ...] = ()
    cuda: tuple[str, ...] = ()
    """CUDA versions that it states it was made with."""
    whole: bool = True


class Gpus(Model):
    """The device code of a wheel."""

    sass: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()
    cuda: tuple[str, ...] = ()
    """CUDA versions that it was made with."""
    binaries: tuple[Coverage, ...] = ()
    cards: tuple[Card, ...] = ()


class WheelReport(Model):
    """The audit of one wheel. What could not be read is empty, and a finding says so."""

    file: str
    sha256: str = ""
    size: int = 0
    """In bytes."""
    name: str = ""
    version: str = ""
    tags: tuple[str, ...] = ()
    place: str = ""
    """Where it was taken from."""
    partial: bool = False
    """Whether only parts of it were read; ``sha256`` then is what its source states."""
    fetched: int = 0
    """Bytes of it that a survey has fetched."""
    gpus: Gpus = Gpus()
    loads: tuple[Loads, ...] = ()
    stable: Stable | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def worst(self) -> Level:
        """The worst of its findings; ``unknown`` for a wheel without any."""
        return worst_level(finding.level for finding in self.findings)

    @property
    def failed(self) -> bool:
        """Whether something is wrong with it, or a requested check has no result."""
        return any(finding.failed for finding in self.findings)

    def of(self, level: Level) -> tuple[Finding, ...]:
        """Its findings of that level."""
        return tuple(finding for finding in self.findings if finding.level == level)


def references_of(examined: Iterable[WheelReport]) -> dict[str, str]:
    """Each torch, then each other set of DLLs that wheels were checked against, with its hash."""
    references: dict[str, str] = {}
    for load in (load for wheel in examined for load in wheel.loads):
        if load.sha256:
            by = ", as its index states" if load.stated else ""
            references[load.against] = f"sha256 {load.sha256}{by}"
        elif load.table:
            references[load.against] = f"a directory; its table of exports has sha256 {load.table}"
    return dict(sorted(references.items(), key=lambda item: not item[0].startswith("torch ")))
