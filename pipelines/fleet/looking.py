"""What a host must be before a fleet gives it work: itself alone, with its clock and disk right."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from pipelines import units
from pipelines.errors import StorageError
from pipelines.files import write_atomic
from pipelines.fleetsettings import FleetSettings
from pipelines.hosts.live import LiveSession
from pipelines.hosttext import line, safe
from pipelines.model import Model, first_problem
from pipelines.remote import identity as remote_identity
from pipelines.session.base import UnfitHostError
from pipelines.units import GIB

#: Materials of a build that are one host's as they are another's, or their tool chains differ.
_CHAIN = ("tool set", "tool set's files", "host made of")
_FOUND = "found "


class _Told(BaseModel):
    """What a host says of itself, as far as it is relied on."""

    place: Annotated[str, Field(min_length=1, max_length=64)]
    boot: Annotated[str, Field(max_length=400)]
    time: Annotated[float, Field(ge=0, le=4e9, allow_inf_nan=False)]
    free: Annotated[int, Field(ge=0, le=1 << 60)]


class _Chain(Model):
    """What the first host of a group was found to build with."""

    host: str
    chain: dict[str, str]


class _Known(Model):
    """What this fleet knows of its hosts, kept for who goes on with it."""

    chains: dict[str, _Chain] = Field(default={})
    places: dict[str, str] = Field(default={})
    """A machine and place -> the host that it was first seen as."""


class Hosts:
    """The hosts that were looked at, so that none is two, and all have one tool chain."""

    def __init__(self, settings: FleetSettings, folder: Path, names: Collection[str]) -> None:
        """``folder`` is the fleet's: what was agreed on is kept there for who goes on with it.

        ``names`` are all of its hosts: one that was removed is in nobody's way.
        """
        self._names = names
        self._settings = settings
        self._lock = threading.Lock()
        self._file = folder / "hosts.json"
        self._others: dict[str, UnfitHostError] = {}
        """Host -> in what its tool chain was found to be another one."""

    def look(self, name: str, session: LiveSession, root: str) -> None:
        """Look at the host called ``name``, with its directory of builds ``root``.

        Raises :class:`UnfitHostError` with what speaks against it, and what a call raises.
        """
        before = time.time()
        answer = session.call(remote_identity.identity, root=root)
        after = time.time()
        try:
            told = _Told.model_validate(answer)
        except ValidationError as error:
            raise UnfitHostError(
                f"{name} says what makes no sense of itself: {safe(first_problem(error), 200)}",
                advice="Look at what answers there.",
            ) from None
        self._judge_clock(name, told.time, before, after)
        need = self._settings.free_gib * GIB
        if told.free < need:
            raise UnfitHostError(
                f"{name} has {units.size(told.free)} free where it builds, {root}; a fleet wants "
                f"{units.size(int(need))}",
                advice="Free some space there, or lower fleet.free_gib in pipeline.yaml.",
            )
        place = f"{told.place} {told.boot}"
        with self._changed() as known:
            other = known.places.get(place, name)
            if other not in self._names:
                other = name
            known.places[place] = other
        if other != name:
            raise UnfitHostError(
                f"{name} is the same machine and place as {other}: both build in {root} there",
                advice=f"Leave one of them out, and give {other} more 'slots'.",
            )

    def _judge_clock(self, name: str, told: float, before: float, after: float) -> None:
        most = self._settings.clock_minutes * 60
        off = told - after if told > after else min(0.0, told - before)
        if abs(off) > most:
            raise UnfitHostError(
                f"{name}: its clock is {units.elapsed(abs(off))} {'ahead' if off > 0 else 'behind'}"
                f" of this machine's; a fleet wants {units.elapsed(most)} at most",
                advice="Set it right there: builds go by the times of files. w32tm /resync does.",
            )

    def agree(self, name: str, group: str, made_of: Mapping[str, str]) -> None:
        """Have the host's tool chain be that of the others, by the materials of a build there.

        The first one of a ``group`` (Python and so on) says what it is. Raises
        :class:`UnfitHostError` with the first difference.
        """
        mine = {k: v for k, v in made_of.items() if k in _CHAIN or k.startswith(_FOUND)}
        with self._changed() as known:
            first = known.chains.setdefault(group, _Chain(host=name, chain=mine))
        for key in sorted({*mine, *first.chain}):
            here, there = mine.get(key), first.chain.get(key)
            if here == there:
                continue
            if name == first.host:
                self._others[name] = UnfitHostError(
                    f"{name} has another tool chain than when this fleet began: {line(key, 80)} "
                    f"is {line(here or 'absent', 300)}, it was {line(there or 'absent', 300)}",
                    advice="Have it as it was. Or remove "
                    f"{self._file}: then what is done was built with another than the rest.",
                )
            else:
                self._others[name] = UnfitHostError(
                    f"{name} has another tool chain than {first.host}: {line(key, 80)} is "
                    f"{line(here or 'absent', 300)}, there {line(there or 'absent', 300)}",
                    advice="Make them alike, or build on each with a line of its own: --hosts.",
                )
            self.require_agreed(name)

    def require_agreed(self, name: str) -> None:
        """Raise what was found of a host's tool chain.

        It is not tried again before a person has looked, or each of its works would be lost there.
        """
        if (found := self._others.get(name)) is not None:
            raise found

    @contextmanager
    def _changed(self) -> Iterator[_Known]:
        """What is known, by one thread at a time; what was added is written."""
        with self._lock:
            known = self._read()
            before = known.model_dump_json(indent=1)
            yield known
            if (after := known.model_dump_json(indent=1)) != before:
                write_atomic(self._file, after.encode())

    def _read(self) -> _Known:
        try:
            return _Known.model_validate_json(self._file.read_bytes())
        except FileNotFoundError:
            return _Known()
        except (OSError, ValidationError) as error:
            raise StorageError(
                f"{self._file} cannot be read: {line(error, 200)}",
                advice="Remove it: the next look at each host says anew which is which.",
            ) from None
