"""What a host must be before a fleet uses it: itself alone, with its clock and disk right."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from pipelines.core import units
from pipelines.core.errors import ConfigError, PipelineError, SetupError, StorageError
from pipelines.core.files import write_atomic
from pipelines.core.hosttext import safe_line, safe_text
from pipelines.core.model import Model, first_problem
from pipelines.core.units import GIB
from pipelines.fleet.model import Machine
from pipelines.hosts.live import LiveSession
from pipelines.plan.config.fleet import FleetSettings
from pipelines.plan.config.model import Config
from pipelines.plan.matrix.hostfacts import HostFacts
from pipelines.record.materials import Materials
from pipelines.remote import identity as remote_identity
from pipelines.remote.facts import Facts
from pipelines.session.base import UnfitHostError

_log = logging.getLogger(__name__)
#: Hosts that are surveyed at a time.
_AT_ONCE = 32


class _Identity(BaseModel):
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
    """What this fleet knows of its hosts, kept for whoever resumes it."""

    chains: dict[str, _Chain] = Field(default={})
    places: dict[str, str] = Field(default={})
    """A machine and place -> the host that it was first seen as."""


class HostChecks:
    """The hosts that were looked at, so that none is two, and all have one tool chain."""

    def __init__(self, settings: FleetSettings, folder: Path, names: Collection[str]) -> None:
        """``folder`` is the fleet's, which keeps what its hosts, ``names``, have in common."""
        self._names, self._settings = names, settings
        self._lock = threading.Lock()
        self._file = folder / "hosts.json"
        self._others: dict[str, UnfitHostError] = {}
        """Host -> in what its tool chain was found to be another one."""

    def look(self, name: str, session: LiveSession, root: str) -> None:
        """Check the host called ``name``, with its directory of builds ``root``.

        Raises :class:`UnfitHostError` with the reason, and what a call raises.
        """
        before = time.time()
        answer = session.call(remote_identity.identity, root=root)
        after = time.time()
        try:
            found = _Identity.model_validate(answer)
        except ValidationError as error:
            raise UnfitHostError(
                f"{name} reports invalid facts: {safe_text(first_problem(error), 200)}",
                hint="Check what answers there.",
            ) from None
        most = self._settings.clock_minutes * 60
        off = found.time - after if found.time > after else min(0.0, found.time - before)
        if abs(off) > most:
            raise UnfitHostError(
                f"{name}: its clock is {units.format_elapsed(abs(off))} "
                f"{'ahead' if off > 0 else 'behind'}"
                f" of this machine's; a fleet allows {units.format_elapsed(most)}",
                hint="Correct it: builds compare the times of files. w32tm /resync does so.",
            )
        need = self._settings.free_gib * GIB
        if found.free < need:
            raise UnfitHostError(
                f"{name} has {units.format_size(found.free)} free where it builds, {root}; a "
                "fleet needs "
                f"{units.format_size(int(need))}",
                hint="Free some space there, or lower fleet.free_gib in pipeline.yaml.",
            )
        place = f"{found.place} {found.boot}"
        with self._changed() as known:
            other = known.places.get(place, name)
            if other not in self._names:
                other = name
            known.places[place] = other
        if other != name:
            raise UnfitHostError(
                f"{name} is the same machine and place as {other}: both build in {root} there",
                hint=f"Leave one of them out, and give {other} more 'slots'.",
            )

    def agree(self, name: str, group: str, made_of: Materials) -> None:
        """Require the toolchain of the other hosts, by the materials of a build there.

        The first host of a ``group`` (such as a Python) sets it. Raises :class:`UnfitHostError`
        with the first difference.
        """
        rows = made_of.rows("found", "host", "toolset")
        own = (
            "host",
            "requested toolset",
        )  # not one.label: that is cut, and names may be alike then
        mine = {f"{one.kind} {one.name}": one.value for one in rows if one[:2] != own}
        with self._changed() as known:
            first = known.chains.setdefault(group, _Chain(host=name, chain=mine))
        for key in sorted({*mine, *first.chain}):
            here, there = mine.get(key), first.chain.get(key)
            if here == there:
                continue
            here, there = safe_line(here or "absent", 300), safe_line(there or "absent", 300)
            if name == first.host:
                self._others[name] = UnfitHostError(
                    f"{name} has another toolchain than when this fleet began: "
                    f"{safe_line(key, 80)} "
                    f"is {here}, it was {there}",
                    hint=f"Restore it. Or remove {self._file}: then what is done was "
                    "built with another than the rest.",
                )
            else:
                self._others[name] = UnfitHostError(
                    f"{name} has another toolchain than {first.host}: {safe_line(key, 80)} is "
                    f"{here}, there {there}",
                    hint="Make them equal, or build on each with its own command: --hosts.",
                )
            self.require_agreed(name)

    def require_agreed(self, name: str) -> None:
        """Raise the error of a host's toolchain, which stays until a person has fixed it."""
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
                f"{self._file} cannot be read: {safe_line(error, 200)}",
                hint="Remove it: the next check of each host creates it again.",
            ) from None


@dataclass
class Survey:
    """What hosts said of themselves."""

    machines: dict[str, Machine] = field(default_factory=dict)
    """All of them; one that did not answer is taken to be as this machine."""
    facts: dict[str, HostFacts] = field(default_factory=dict)
    """Of those that answered."""
    aside: dict[str, str] = field(default_factory=dict)
    """Host -> why it cannot be used now."""
    left_out: dict[str, PipelineError] = field(default_factory=dict)
    """Host -> what is wrong here, such as a password that is not set: waiting does not help."""


_Look = Callable[[], tuple[Facts, tuple[str, ...]]]


def survey_hosts(settings: Config, looks: Mapping[str, _Look]) -> Survey:
    """Reach every host; ``looks``: facts and GPUs of each."""
    found = Survey()

    def look(name: str) -> tuple[HostFacts, tuple[str, ...]] | str | PipelineError:
        try:
            facts, gpus = looks[name]()
        except (ConfigError, SetupError) as error:
            return error
        except PipelineError as error:
            return safe_line(error.message, 500) or error.title
        except Exception as error:
            _log.info("%s: survey", name, exc_info=error)
            return f"this should not happen: {type(error).__name__}: {safe_line(error)}"
        return HostFacts.from_session(facts, name=name, native=gpus or None), gpus

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="survey") as pool:
        answers = dict(zip(looks, pool.map(look, looks), strict=True))
    for name, answer in answers.items():
        if isinstance(answer, PipelineError):
            found.left_out[name] = answer
            continue
        facts, gpus = answer if isinstance(answer, tuple) else (HostFacts.local(), ())
        if isinstance(answer, str):
            found.aside[name] = answer
        else:
            found.facts[name] = facts
        found.machines[name] = Machine(
            name=name,
            slots=settings.host(name).slots,
            cores=facts.cores,
            memory=facts.usable,
            gpus=gpus,
        )
    return found
