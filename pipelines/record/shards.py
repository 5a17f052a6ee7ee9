"""Sharded builds, whose compile units are divided among hosts: shares, objects, links.

Seconds and bytes. What comes from a host, or from another controller, is validated by these.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from pipelines.core.errors import ConfigError
from pipelines.core.hosttext import safe_line
from pipelines.core.model import Model
from pipelines.record.prebuilt import Sha256

#: Most shares.
MOST = 1000
#: Most compile units of a wheel.
UNITS = 20_000
#: Most headers and sources that they read.
READ = 200_000
_SHARE = re.compile(r"([0-9]{1,4})/([0-9]{1,4})")

UnitId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{8,64}$")]
_Path = Annotated[str, StringConstraints(max_length=32_767)]
_Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
_Size = Annotated[int, Field(ge=0, le=1 << 50)]
Text = Annotated[str, StringConstraints(max_length=20_000)]


@dataclass(frozen=True)
class Share:
    """One of several parts of a wheel's compile units."""

    number: int
    """From 1."""
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def share_of(text: str) -> Share:
    """Parse ``3/20``; :class:`ConfigError` for anything else."""
    match = _SHARE.fullmatch(text)
    if match is not None and 1 <= int(match[1]) <= int(match[2]) <= MOST:
        return Share(int(match[1]), int(match[2]))
    raise ConfigError(
        f"--shard {safe_line(text, 40)}: expected K/N, K from 1 to N, N up to {MOST}",
        hint="For example --shard 3/20, the third of twenty.",
    )


def shards_of(text: str) -> int:
    """Parse a number of shares; 0 is ``auto``. :class:`ConfigError` for anything else."""
    if text == "auto":
        return 0
    if text.isascii() and text.isdecimal() and 1 <= int(text) <= MOST:
        return int(text)
    raise ConfigError(
        f"--shards {safe_line(text, 40)}: expected a number from 1 to {MOST}, or auto",
        hint="For example --shards 4.",
    )


class Unit(Model):
    """A source to compile."""

    model_config = ConfigDict(extra="ignore")

    id: UnitId
    """The hash of its manifest's path, its output and its command."""
    source: _Path
    output: _Path
    command: Sha256
    """Hash of its compile command."""
    seconds: _Seconds
    """Estimated when the units were divided."""


class UnitObject(Model):
    """The object of a unit."""

    model_config = ConfigDict(extra="ignore")

    unit: UnitId
    path: _Path
    """On the host that compiled it."""
    size: _Size
    sha256: Sha256
    seconds: _Seconds
    """Compile time."""


class ObjectSource(Model):
    """Objects that a link used from the run of a share."""

    run: str
    host: str
    share: str
    units: Annotated[int, Field(ge=0)]
    """Whose objects were linked."""
    sealers: tuple[str, ...] = ()
    """Who recorded them: keys of controllers."""


class ShardsResult(Model):
    """The result of building a share, or of linking shares."""

    mode: Literal["compile", "link"]
    share: str = ""
    """Such as 3/20; empty for a link."""
    compilers: dict[str, Text] = Field(default={})
    """The host's own compilers and linkers by sha256, and the variables that they read: these are
    not pinned."""
    units: Annotated[tuple[Unit, ...], Field(max_length=UNITS)] = ()
    """All units of the wheel."""
    objects: Annotated[tuple[UnitObject, ...], Field(max_length=UNITS)] = ()
    """For a share: its compiled objects."""
    read: Annotated[dict[_Path, Sha256], Field(max_length=READ)] = Field(default={})
    """For a share: sources and headers that its compilers read, by path."""
    placed: Annotated[tuple[UnitId, ...], Field(max_length=UNITS)] = ()
    """For a link: units compiled elsewhere."""
    compiled: Annotated[tuple[UnitId, ...], Field(max_length=UNITS)] = ()
    """For a link: units compiled by the link itself."""
    lent: tuple[ObjectSource, ...] = ()

    @model_validator(mode="after")
    def _of_these_units(self) -> Self:
        known = {unit.id for unit in self.units}
        if len(known) != len(self.units):
            raise ValueError("duplicate unit")
        for what in ([item.unit for item in self.objects], [*self.placed, *self.compiled]):
            if len({*what}) != len(what):
                raise ValueError("duplicate object")
            if strange := sorted({*what} - known):
                raise ValueError(f"{strange[0]} is not one of its units")
        if self.mode == "link" and len(self.placed) + len(self.compiled) != len(known):
            raise ValueError(
                f"{len(self.placed)} units were placed and {len(self.compiled)} compiled, of "
                f"{len(known)}"
            )
        return self

    @property
    def summary(self) -> str:
        """In words."""
        if self.mode == "compile":
            done = f"{len(self.objects)} of {len(self.units)} compile units"
            return f"shard {safe_line(self.share, 20)}: {done}"
        rows = [
            (lent.units, safe_line(lent.host, 80), safe_line(lent.share, 20)) for lent in self.lent
        ]
        hosts = ", ".join(f"{count} from {host} ({share})" for count, host, share in rows)
        return f"{len(self.units)} compile units: " + ", ".join(
            filter(None, (hosts, f"{len(self.compiled)} compiled by the link"))
        )
