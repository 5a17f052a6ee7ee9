"""``invoke build --fleet``: from an order to its works, ledger and dispatcher, and its end."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipelines import errors, units
from pipelines.buildplan import Request
from pipelines.config import Config
from pipelines.console import console, say
from pipelines.divided import shards_of
from pipelines.errors import PipelineError, StorageError
from pipelines.files import disk_errors
from pipelines.fleet import results
from pipelines.fleet.cells import Cells, planned_on, works_of
from pipelines.fleet.dask_engine import DaskEngine
from pipelines.fleet.dispatch import Dispatcher, Summary
from pipelines.fleet.drivers import Driver, doing_of
from pipelines.fleet.entries import Attempt, Entry
from pipelines.fleet.history import history
from pipelines.fleet.kept import begin_lost
from pipelines.fleet.ledger import Ledger
from pipelines.fleet.lines import LineErrand, Order
from pipelines.fleet.live import Show
from pipelines.fleet.looking import Hosts
from pipelines.fleet.model import Work
from pipelines.fleet.rules import Rules
from pipelines.fleet.states import state
from pipelines.fleet.survey import Surveyed, survey
from pipelines.hosttext import line
from pipelines.matrix.hostfacts import HostFacts
from pipelines.matrix.plan import Plan
from pipelines.paths import home
from pipelines.remote.locks import claim

#: Seconds between two looks at the view, and how often as long as one of them takes.
_EVERY, _PART = 0.5, 30.0


@dataclass(frozen=True)
class Asked:
    """What was typed, and how a plan is made of it for a host."""

    settings: Config
    request: Request
    """Its axes may have several values each, as for ``invoke plan``."""
    plan: Callable[[str, HostFacts | None], Plan]
    """The cells on a host of that name, of which more may be known."""
    hosts: tuple[str, ...] = ()
    select: str = ""
    test: bool = False
    """Whether every wheel is tested as well."""

    @property
    def shards(self) -> int | None:
        """Into so many shares each wheel is divided; 0: ``auto``; ``None``: it is built whole."""
        return None if self.request.shards is None else shards_of(self.request.shards)

    @property
    def hash(self) -> str:
        """Of what is to be built: the same command finds its fleet by it, on whatever hosts."""
        told = {
            "axes": dict(sorted(self.request.axes.items())),
            "select": self.select,
            "test": self.test,
            "jobs": self.request.jobs,
            "shards": self.request.shards,
            "reproducible": self.request.reproducible,
            "default": self.settings.default.model_dump(mode="json"),
        }
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


class FleetError(PipelineError):
    """Works of a fleet were not done. It leaves with the worst of their exit codes."""

    title = "fleet"

    def __init__(self, message: str, *, advice: str, exit_code: int) -> None:
        super().__init__(message, advice=advice)
        self.exit_code = exit_code


def run_fleet(asked: Asked) -> Path:
    """Build the cells on the hosts of the fleet until nothing is left to do; its directory.

    A fleet of the same order that has not come to its end is gone on with. Raises
    :class:`FleetError` when works failed or were left, :class:`ConfigError` when no host fits, or
    another process works at it.
    """
    names = asked.settings.fleet_hosts(asked.hosts)
    first = _cells(asked, names, Surveyed())  # refuses what cannot be, before anything is reached
    ledger = _ledger(home() / asked.settings.out, asked.hash)
    try:
        _say_left_out(first)
        return _run(asked, names, first, ledger)
    finally:
        ledger.close()


def _ledger(out: Path, order: str) -> Ledger:
    """The fleet of that order, found or begun, and held."""
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        # Of two that begin at the same moment the second finds the fleet of the first.
        with claim(out / ".fleets", patience=30):
            ledger = Ledger.find(out, order, lambda why: say(f"passed over: {why}", style="yellow"))
            if ledger is None:
                return Ledger.create(out, order)
            say(f"going on with {ledger.path.name}", style="bold")
            try:
                ledger.hold()
            except BaseException:
                ledger.close()
                raise
            return ledger


def _cells(asked: Asked, names: Sequence[str], known: Surveyed) -> Cells:
    """The works on these hosts, by what is known of them."""
    hosts = {name: asked.settings.host(name) for name in names}
    plans = planned_on(hosts, known.facts, asked.plan)
    return works_of(plans, known.machines, test=asked.test, shards=asked.shards)


def _run(asked: Asked, names: Sequence[str], first: Cells, ledger: Ledger) -> Path:
    """Look at the hosts, have the ledger know what is to be done, do it, say how it went."""
    settings, folder = asked.settings, ledger.path
    for key, why in begin_lost(ledger, time.time()).items():
        say(f"{key} is built again: {why}", style="yellow")
    order = Order(
        settings,
        folder,
        first.axes,
        jobs=asked.request.jobs,
        reproducible=asked.request.reproducible,
        runs={one.span.key: one.span.run for one in ledger.attempts() if _is_done(one)},
    )
    hosts = Hosts(settings.fleet, folder, names)
    sample = {name: next((w for w in first.works if name in w.hosts), None) for name in names}
    errands = {name: LineErrand(name, order, hosts, sample[name]) for name in names}
    drivers = {name: Driver(name, errands[name], folder) for name in names}
    fitting = {name: one for name, one in errands.items() if sample[name] is not None}
    finished = False
    try:
        say(f"looking at {units.counted(len(fitting), 'host')}")
        known = survey(settings, fitting)
        for name, why in known.aside.items():
            say(f"{name} is set aside: {why}", style="yellow")
        works = _cells(asked, tuple(fitting), known).works
        ledger.put(works, known.machines.values(), time.time())
        _announce(works, known, ledger)
        with _engine(drivers, known, settings.fleet.dashboard_port) as engine:
            summary = _dispatched(ledger, engine, drivers, settings)
        finished = True
    except KeyboardInterrupt:
        say(
            f"What runs on hosts goes on there: the same command goes on with {folder.name}, "
            "invoke fleet shows it.",
            style="yellow",
        )
        raise
    finally:
        for errand in errands.values():
            errand.close(stop=finished)
    told = history(ledger, settings.fleet.currency)
    say(f"{results.write(told, folder)}", style="bold")
    results.tell_github(told)
    _tell(ledger, summary)
    return folder


class Shown:
    """When the view is due again: it takes a small part of the time, however many works."""

    def __init__(self) -> None:
        self._next = 0.0

    def due(self) -> bool:
        """Whether it is."""
        return time.monotonic() >= self._next

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Around what is shown."""
        began = time.monotonic()
        yield
        ended = time.monotonic()
        self._next = ended + max(_EVERY, _PART * (ended - began))


@contextmanager
def _engine(
    drivers: Mapping[str, Driver], known: Surveyed, dashboard_port: int
) -> Iterator[DaskEngine]:
    mine = {name: drivers[name] for name in known.machines}
    engine = DaskEngine(mine, known.machines, dashboard_port)
    if engine.dashboard:
        say(f"Dask's page: {engine.dashboard}")
    try:
        yield engine
    finally:
        engine.close()


def _dispatched(
    ledger: Ledger, engine: DaskEngine, drivers: Mapping[str, Driver], settings: Config
) -> Summary:
    """Dispatch until nothing is left to do, and show it; :class:`StorageError` for our own disk."""
    rules = Rules(grace=settings.fleet.wait_minutes * 60)
    dispatcher = Dispatcher(ledger, engine, rules)
    shown = Shown()
    with Show(console) as show:

        def tell() -> None:
            now = state(
                ledger,
                doing=doing_of(drivers),
                entries=dispatcher.entries.values(),
                hosts=dispatcher.hosts.values(),
                currency=settings.fleet.currency,
            )
            show.update(now.model_copy(update={"dashboard": engine.dashboard}))

        def look() -> None:
            if broken := next((one.broken for one in drivers.values() if one.broken), None):
                raise StorageError(
                    broken.message,
                    advice="Free some space here; what runs on hosts goes on, and the same command "
                    "finds it again.",
                )
            if shown.due():
                with shown.timed():
                    tell()

        summary = dispatcher.run(look)
        tell()  # what came last
        return summary


def _is_done(attempt: Attempt) -> bool:
    return attempt.span.outcome == "done" and bool(attempt.span.run)


def _announce(works: Sequence[Work], known: Surveyed, ledger: Ledger) -> None:
    cells = {work.cell for work in works}
    hosts = units.counted(len(known.machines), "host")
    say(
        f"{units.counted(len(cells), 'cell')}, {units.counted(len(works), 'work')} on {hosts}: "
        f"{ledger.path}",
        style="bold",
    )


def _say_left_out(cells: Cells) -> None:
    for why in dict.fromkeys(cells.left_out.values()):
        names = [name for name, said in cells.left_out.items() if said == why]
        say(f"left out: {units.few(names)}: {line(why, 500)}", style="yellow")


def _tell(ledger: Ledger, summary: Summary) -> None:
    """Say how it went; :class:`FleetError` unless all of it is done."""
    counts = ", ".join(f"{many} {stand}" for stand, many in sorted(summary.works.items()))
    say(f"{ledger.path.name}: {counts}", style="green" if summary.complete else "yellow")
    if summary.complete:
        return
    bad = [one for one in ledger.works() if one.stand != "done"]
    told = [f"{one.work.key} ({one.stand})" for one in bad]
    raise FleetError(
        f"{len(bad)} of {sum(summary.works.values())} works are not done: {units.few(told)}"
        + (f"; {summary.stuck}" if summary.stuck else ""),
        advice="invoke fleet says why, each. "
        + (
            "invoke fleet retry WORK, then the same command, does that work again; without a "
            "retry it begins a fleet anew."
            if ledger.fact("ended")
            else "The same command goes on with what can be done."
        ),
        exit_code=left_with(bad),
    )


def left_with(bad: Sequence[Entry]) -> int:
    """The exit code of a fleet of which these works are not done: the worst of their errors.

    That of an interruption where there is none but that somebody has cancelled works, else that of
    hosts: none has taken them.
    """
    stands, kinds = {one.stand for one in bad}, [one.error.kind for one in bad if one.error]
    cancelled = "cancelled" in stands and stands <= {"cancelled", "blocked"}
    nothing = errors.INTERRUPTED if cancelled else errors.HostError.exit_code
    return max(map(_exit_code, kinds), default=nothing)


def _exit_code(kind: str) -> int:
    """Of the error class of that name, as the ledger has it."""
    known = getattr(errors, kind, None)
    known = known if isinstance(known, type) and issubclass(known, PipelineError) else None
    return (known or PipelineError).exit_code
