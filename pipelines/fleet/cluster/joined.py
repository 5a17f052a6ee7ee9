"""Hosts of a cluster's members, as a fleet has them: beside its own, each with a driver here.

What a driver has done at such a host is done by the member, see :mod:`.member`; only what has come
home whole, and is what was asked for, is done. The fleet's ledger is the only truth.
"""

from __future__ import annotations

import fnmatch
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

from pipelines import errors
from pipelines.beside import heed, onlooker, tell_stage, tell_units
from pipelines.buildplan import open_cache, resolve_recipe, settle
from pipelines.errors import (
    ConfigError,
    HostError,
    PipelineError,
    TransferError,
    UnexpectedError,
)
from pipelines.fleet.cluster import parcels
from pipelines.fleet.cluster.arrivals import Arrivals
from pipelines.fleet.cluster.commission import (
    Answered,
    Commission,
    Errand,
    Hello,
    Lent,
    Parcel,
    Piece,
    Told,
    decided,
    read,
    require_program,
)
from pipelines.fleet.cluster.wire import AwayError, Wire
from pipelines.fleet.drivers import Done, ElsewhereError
from pipelines.fleet.lines import Order, request_for, told_of
from pipelines.fleet.looking import Hosts
from pipelines.fleet.model import Work
from pipelines.hosts.base import HostConfig, Supply
from pipelines.hosttext import line, safe
from pipelines.model import Model
from pipelines.record import ErrorResult
from pipelines.remote.facts import Facts
from pipelines.run import Run
from pipelines.session.base import UnfitHostError
from pipelines.toolchain.lock import ToolchainLock
from pipelines.units import few

#: Seconds between two questions how a work stands.
POLL = 2.0
#: Seconds in which a member may be away: while a work goes on there, and while it is looked at.
_PATIENCE, _LOOK = 60.0, 5.0
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,40}")


class JoinedHost(HostConfig):
    """A host of a member: what of it must be known to plan for it; it is never opened here."""

    kind: Literal["joined"] = "joined"
    lent: Lent

    @property
    def is_windows(self) -> bool:
        """As the member says."""
        return self.lent.windows

    @property
    def made(self) -> bool:
        """As the member says."""
        return self.lent.made

    def supply(self, lock: ToolchainLock) -> Supply:  # noqa: ARG002 - the member has the same
        """As the member says."""
        return self.lent.given


@dataclass(frozen=True)
class Cluster:
    """The members that may be asked, and their hosts."""

    wire: Wire
    hosts: Mapping[str, JoinedHost] = field(default_factory=dict)
    """By ``member/host``."""
    aside: Mapping[str, str] = field(default_factory=dict)
    """Member -> why nothing is asked of it."""

    def chosen(self, asked: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Of the names of ``--hosts`` those of our own hosts, and those of joined ones.

        ``lab/*`` are all of that member. Where none is named all take part. Raises
        :class:`ConfigError` for a name that no member has.
        """
        own = tuple(name for name in asked if "/" not in name)
        wanted = [name for name in asked if "/" in name]
        if not own and not wanted:
            return (), tuple(self.hosts)
        found: dict[str, None] = {}
        for pattern in wanted:
            matching = fnmatch.filter(self.hosts, pattern)
            if not matching:
                member, _, host = pattern.partition("/")
                why = self.aside.get(member, f"{member} has not joined, or is away for now")
                if any(name.startswith(f"{member}/") for name in self.hosts):
                    why = f"{member} does not offer {host}"
                raise ConfigError(
                    f"--hosts {line(pattern, 100)}: {line(why, 500)}",
                    advice=f"There are: {few(sorted(self.hosts)) or 'none'}. On the machine that "
                    "has it, invoke fleet join ... --hosts offers it; then type this again.",
                )
            found |= dict.fromkeys(matching)
        return own, tuple(found)


def look(wire: Wire) -> Cluster:
    """Who is there, and what is offered; who is not this very program is set aside."""
    hosts: dict[str, JoinedHost] = {}
    aside: dict[str, str] = {}
    for member, text in sorted(wire.members("hello").items()):
        name = line(member, 60)
        if not _NAME.fullmatch(member):
            aside[name] = "its name is none that a member may have"
            continue
        try:
            told = read(Hello, _opened(text), name)
            require_program(told.program, name)
        except PipelineError as error:
            aside[name] = f"{error.message}. {error.advice}".rstrip(". ")
            continue
        for host, lent in told.hosts.items():
            hosts[f"{name}/{host}"] = JoinedHost(lent=lent, slots=lent.slots, price=lent.price)
    return Cluster(wire, hosts, aside)


def _opened(text: str) -> str:
    """What is in an answer; raises the error that is in it instead."""
    answer = read(Answered, text, "a member")
    if answer.error is not None:
        raise _raised(answer.error.kind, answer.error.message, answer.error.advice)
    return answer.told


def _raised(kind: str, message: str, advice: str = "") -> PipelineError:
    """An error of a member as one of here, by the name of its class."""
    known = getattr(errors, kind, None)
    if not (isinstance(known, type) and issubclass(known, PipelineError)):
        known = UnexpectedError
    return known(safe(message, 8000), advice=safe(advice, 2000))


class JoinedErrand:
    """Implements :class:`pipelines.fleet.drivers.Errand` for a host of a member."""

    def __init__(
        self, name: str, wire: Wire, order: Order, hosts: Hosts, *, fleet: str, first: Work | None
    ) -> None:
        """``fleet`` is what the member knows this fleet by. Nothing is asked yet."""
        self.name, self._wire, self._order, self._hosts = name, wire, order, hosts
        self._fleet, self._first = fleet, first
        self._member, _, self._host = name.partition("/")
        self._arrivals = Arrivals(order, name, hosts)
        self._decided: dict[tuple[str, str], dict[str, str]] = {}

    # What is asked.

    def _ask(
        self, verb: str, asked: Model, data: bytes = b"", *, patience: float | None = None
    ) -> tuple[str, bytes]:
        """One question, asked again while the member is away for a moment."""
        deadline = time.monotonic() + (_PATIENCE if patience is None else patience)
        text = asked.model_dump_json()
        while True:
            try:
                told, sent = self._wire.ask(self._member, verb, text, data)
                return _opened(told), sent
            except AwayError:
                if time.monotonic() > deadline:
                    raise
                _pause(POLL)

    def _commission(self, errand: Errand, work: Work, *, whole: bool = False) -> Commission:
        """``whole``: with what decides the wheel, and with what comes before it."""
        order = self._order
        asked = Commission(
            fleet=self._fleet,
            host=self._host,
            errand=errand,
            key=work.key,
            work=work,
            axes=dict(order.cells[work.cell]),
            jobs=order.jobs,
            reproducible=order.reproducible,
            chains=self._hosts.chains(),
        )
        if not whole:
            return asked
        before = dict(zip(work.after, order.before(work), strict=True))
        seals = {key: parcels.seal_of(Run(Path(run))) for key, run in before.items()}
        return asked.model_copy(update={"decided": self._decides(work), "after": seals})

    def _decides(self, work: Work) -> dict[str, str]:
        known = (work.cell, work.kind)  # what is divided is built in another way
        if known not in self._decided:
            settings, request = self._order.settings, request_for(self._order, work, self.name)
            recipe = settle(resolve_recipe(settings, request), request)
            self._decided[known] = decided(recipe, open_cache(settings))
        return self._decided[known]

    def _carried(self, asked: Commission, hear: Callable[[Told], None] = lambda _: None) -> Told:
        """What became of a commission; leaving leaves it where it is."""
        said, patience = 0, None if asked.errand == "do" else _LOOK
        while True:
            heed()
            now = asked.model_copy(update={"said": said})
            text, _ = self._ask("carry", now, patience=patience)
            told = read(Told, text, self._member)
            hear(told)
            said = told.heard
            if told.over:
                return told
            _pause(POLL if asked.errand == "do" else min(POLL, 0.5))

    def _looked(self, errand: Errand) -> Told:
        if self._first is None:
            raise ConfigError(f"{self.name} fits no work of this fleet")
        told = self._carried(self._commission(errand, self._first))
        if told.why:
            raise HostError(f"{self.name}: {line(told.why, 500)}")
        if not told.place:
            raise UnfitHostError(f"{self.name} does not say which machine it is")
        self._hosts.claim(self.name, told.place)
        return told

    # What a driver wants.

    def survey(self) -> tuple[Facts, tuple[str, ...]]:
        """What the host says of itself, and the compute capabilities of its GPUs."""
        told = self._looked("survey")
        return cast("Facts", told.facts), told.gpus

    def reach(self) -> None:
        """Have the member look at the host; raises what speaks against it."""
        self._hosts.require_agreed(self.name)
        self._looked("reach")

    def reachable(self) -> bool:
        """Whether the member reaches the host at this moment."""
        try:
            self._looked("reach")
        except PipelineError:
            return False
        return True

    def do(self, work: Work, done: Done) -> None:
        """Have it done there, and bring its run home; raises what went wrong, there or here."""
        # Of an attempt that came home, and we were killed before anything could be noted of it.
        if (run := self._arrivals.known(work)) is None:
            asked = self._commission("do", work, whole=True)
            self._send(asked)
            told = self._carried(asked, _hear)
            try:
                run = self._arrived(work, told, done)
            except TransferError:  # it is made again, or it would be told again as it was
                self._ask("settle", asked)
                raise
            self._ask("settle", asked)
            self._raise(told)
            if run is None:
                raise TransferError(f"{self.name} says that {work.key} is done, and has no run")
        done.run = str(run.path)
        self._order.runs[work.key] = done.run
        done.told |= told_of(run, test=work.kind == "test")

    def _send(self, asked: Commission) -> None:
        """Have the member have the runs that the work comes after."""
        lacking, _ = self._ask("lacks", asked)
        for key in filter(None, lacking.split("\n")):
            if key not in asked.after:
                raise UnfitHostError(
                    f"{self._member} lacks what nobody told it of: {line(key, 80)}"
                )
            tell_stage(f"send {key}")
            run = Run(Path(self._order.runs[key]))
            path, parcel = parcels.pack(run, self._order.folder / "parcels")
            piece = Piece(fleet=self._fleet, parcel=parcel, seal=asked.after[key])
            try:
                with path.open("rb") as file:
                    while data := file.read(parcels.PIECE):
                        heed()
                        self._ask("put", piece, data)
                        piece = piece.model_copy(update={"offset": file.tell()})
            finally:
                path.unlink(missing_ok=True)

    def _arrived(self, work: Work, told: Told, done: Done) -> Run | None:
        """The run of what has ended there, home; ``None`` where there is none to bring."""
        if told.ended is None or told.ended.outcome not in ("done", "failed") or not told.parcel:
            return None  # what was lost there goes on in its run there
        well = told.ended.outcome == "done"
        tell_stage("bring home")

        def fetch(parcel: Parcel, offset: int) -> bytes:
            heed()
            return self._ask("piece", Piece(fleet=self._fleet, parcel=parcel, offset=offset))[1]

        try:
            run = self._arrivals.bring_home(told.parcel, fetch, work, well=well)
        except PipelineError:
            if well:
                raise
            return None  # what went wrong there is the error to tell
        done.run = str(run.path)
        return run

    def _raise(self, told: Told) -> None:
        """Raise what went wrong there, so that it is judged here as it is of an own host."""
        ended = told.ended
        if ended is None:
            raise HostError(f"{self.name}: {line(told.why, 500) or 'nothing came of it'}")
        if ended.outcome == "done":
            return
        error = ended.error or ErrorResult(
            kind="HostError", title="host", message="its member has left it"
        )
        if ended.outcome == "failed":
            raise _raised(error.kind, error.message, error.advice)
        # Whether the host is gone was looked at there; of what was left it is looked at here.
        kind = UnfitHostError if ended.gone else ElsewhereError if ended.error else HostError
        raise kind(f"{self.name}: {safe(error.message, 4000)}", advice=safe(error.advice, 1000))

    def withdraw(self, work: Work) -> None:
        """Have the member end what it has begun; raises where nobody could look."""
        told = self._carried(self._commission("withdraw", work))
        if told.ended is None or told.ended.outcome == "lost":
            self._raise(told)

    def unblock(self) -> None:
        """Nothing to break: whoever waits for a member looks whether it is to leave."""

    def release(self) -> None:
        """Nothing waits for the host: the member gives it back."""
        self._say("release")

    def close(self, *, stop: bool) -> None:
        """``stop``: the fleet is over. Else what goes on at the member goes on."""
        if stop:
            self._say("leave")

    def _say(self, verb: Literal["release", "leave"]) -> None:
        if self._first is None:
            return
        try:
            asked = self._commission("reach", self._first)
            self._wire.ask(self._member, verb, asked.model_dump_json())
        except PipelineError:
            return  # it is away: its host is given back when invoke fleet join ends


def _pause(seconds: float) -> None:
    """Wait, unless the work is to leave."""
    deadline = time.monotonic() + seconds
    while (rest := deadline - time.monotonic()) > 0:
        heed()
        time.sleep(min(0.2, rest))


def _hear(told: Told) -> None:
    """Tell of a work what its member tells."""
    one = onlooker()
    if told.said and one is not None:
        one.console.print(safe(told.said, 2 * len(told.said)), markup=False, end="")
    if told.doing is not None:
        tell_stage(told.doing.stage)
        if told.doing.total is not None:
            tell_units(told.doing.done or 0, told.doing.total)
