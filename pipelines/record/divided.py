"""A wheel whose compile units are divided among builds: shares, objects, what was linked.

Seconds and bytes. What comes from a host, or from another controller, is validated by these.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from pipelines.core.errors import ConfigError
from pipelines.core.hosttext import line
from pipelines.core.model import Model
from pipelines.record.taken import Sha256

#: The file of a share's run that lists its objects.
LIST = "objects.json"
#: Into so many shares at most.
MOST = 1000
#: Of compile units that a wheel may have.
UNITS = 20_000
#: Of headers and sources that they read.
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
    """Such as ``3/20``; :class:`ConfigError` for what is no share."""
    found = _SHARE.fullmatch(text)
    if found is not None and 1 <= int(found[1]) <= int(found[2]) <= MOST:
        return Share(int(found[1]), int(found[2]))
    raise ConfigError(
        f"--shard {line(text, 40)}: expected K/N, K from 1 to N, N up to {MOST}",
        hint="Such as --shard 3/20, the third of twenty.",
    )


def shards_of(text: str) -> int:
    """The number of shares; 0 is ``auto``. :class:`ConfigError` for what is neither."""
    if text == "auto":
        return 0
    if text.isascii() and text.isdecimal() and 1 <= int(text) <= MOST:
        return int(text)
    raise ConfigError(
        f"--shards {line(text, 40)}: expected a number from 1 to {MOST}, or auto",
        hint="Such as --shards 4.",
    )


class Unit(Model):
    """A source that becomes an object."""

    model_config = ConfigDict(extra="ignore")

    id: UnitId
    """The hash of its manifest's place, its output and its command."""
    source: _Path
    output: _Path
    command: Sha256
    """Of the words that compile it."""
    seconds: _Seconds
    """That it was reckoned with when the units were divided."""


class UnitObject(Model):
    """What a unit became."""

    model_config = ConfigDict(extra="ignore")

    unit: UnitId
    path: _Path
    """On the host that compiled it."""
    size: _Size
    sha256: Sha256
    seconds: _Seconds
    """That it took."""


class Lent(Model):
    """What a link took of the run of a share."""

    run: str
    host: str
    share: str
    units: Annotated[int, Field(ge=0)]
    """Whose objects were linked."""
    sealers: tuple[str, ...] = ()
    """Who recorded them: keys of controllers."""


class Divided(Model):
    """What the build of a share, or a link of shares, did."""

    mode: Literal["compile", "link"]
    share: str = ""
    """Such as 3/20; empty of a link."""
    compilers: dict[str, Text] = Field(default={})
    """The host's own programs that compile and link, by their sha256, and the variables that they
    read: no pin says what these are."""
    units: Annotated[tuple[Unit, ...], Field(max_length=UNITS)] = ()
    """All of the wheel's."""
    objects: Annotated[tuple[UnitObject, ...], Field(max_length=UNITS)] = ()
    """Of a share: those that it compiled."""
    read: Annotated[dict[_Path, Sha256], Field(max_length=READ)] = Field(default={})
    """Of a share: what its compilers have read, sources and headers, by its place."""
    placed: Annotated[tuple[UnitId, ...], Field(max_length=UNITS)] = ()
    """Of a link: those whose objects were compiled elsewhere."""
    compiled: Annotated[tuple[UnitId, ...], Field(max_length=UNITS)] = ()
    """Of a link: those for which there was no object."""
    lent: tuple[Lent, ...] = ()

    @model_validator(mode="after")
    def _of_these_units(self) -> Self:
        known = {unit.id for unit in self.units}
        if len(known) != len(self.units):
            raise ValueError("a unit is there twice")
        for what in ([one.unit for one in self.objects], [*self.placed, *self.compiled]):
            if len({*what}) != len(what):
                raise ValueError("an object is there twice")
            if strange := sorted({*what} - known):
                raise ValueError(f"{strange[0]} is none of its units")
        if self.mode == "link" and len(self.placed) + len(self.compiled) != len(known):
            raise ValueError(
                f"{len(self.placed)} units were placed and {len(self.compiled)} compiled, of "
                f"{len(known)}"
            )
        return self

    @property
    def told(self) -> str:
        """In words."""
        if self.mode == "compile":
            done = f"{len(self.objects)} of {len(self.units)} compile units"
            return f"share {line(self.share, 20)}: {done}"
        rows = [(one.units, line(one.host, 80), line(one.share, 20)) for one in self.lent]
        hosts = ", ".join(f"{count} from {host} ({share})" for count, host, share in rows)
        return f"{len(self.units)} compile units: " + ", ".join(
            filter(None, (hosts, f"{len(self.compiled)} compiled by the link"))
        )
