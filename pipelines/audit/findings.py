"""What is said of one wheel, by whatever was looked at: the models of ``invoke audit``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pipelines.audit.loads import Loads
from pipelines.core.finding import Finding, Level, worst
from pipelines.core.model import Model
from pipelines.wheels.stable import Stable

#: Of what ``--json`` prints; raised when a program that reads it must be changed.
SCHEMA = 1
#: How levels are shown.
WORDS: dict[Level, str] = {
    "error": "problem",
    "warning": "mind",
    "unknown": "not checked",
    "skipped": "not checked",
    "ok": "ok",
}
Runs = Literal["native", "jit", "partly", "no", "unknown"]
#: The best first.
RUNS: tuple[Runs, ...] = ("native", "jit", "partly", "no", "unknown")


class Card(Model):
    """What becomes of a wheel's device code on the GPUs of one compute capability."""

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
    """The least of Windows by CUDA's rules: ``528.33``, or ``of CUDA 13.2``; empty: not known."""
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
    """Releases of CUDA that made it, as it tells."""
    whole: bool = True


class Gpus(Model):
    """The device code of a wheel."""

    sass: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()
    cuda: tuple[str, ...] = ()
    """Releases of CUDA that made it."""
    binaries: tuple[Coverage, ...] = ()
    cards: tuple[Card, ...] = ()


class Examined(Model):
    """One wheel. What could not be read is empty, and a finding says so."""

    file: str
    sha256: str = ""
    size: int = 0
    """In bytes."""
    name: str = ""
    version: str = ""
    tags: tuple[str, ...] = ()
    place: str = ""
    """Where it was taken from."""
    gpus: Gpus = Gpus()
    loads: tuple[Loads, ...] = ()
    stable: Stable | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def worst(self) -> Level:
        """The worst of its findings; ``unknown`` of a wheel of which nothing was found."""
        return worst(one.level for one in self.findings)

    @property
    def failed(self) -> bool:
        """Whether something is wrong with it, or what was asked for has no answer."""
        return any(one.failed for one in self.findings)

    def of(self, level: Level) -> tuple[Finding, ...]:
        """Its findings of that level."""
        return tuple(one for one in self.findings if one.level == level)


def held_against(examined: Iterable[Examined]) -> dict[str, str]:
    """Each torch, then each other set of DLLs that wheels were held against; which that was."""
    found: dict[str, str] = {}
    for load in (load for one in examined for load in one.loads):
        if load.sha256:
            by = ", as its index states" if load.stated else ""
            found[load.against] = f"sha256 {load.sha256}{by}"
        elif load.table:
            found[load.against] = f"a directory; its table of exports has sha256 {load.table}"
    return dict(sorted(found.items(), key=lambda one: not one[0].startswith("torch ")))
