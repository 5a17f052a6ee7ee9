"""A member of a cluster: has works done at its hosts for fleets of others, by drivers of its own.

What it is doing is in this process; what it has done is in its runs, and builds are detached jobs.
So whoever asks again, after either end was killed, is told of what goes on, or has it taken up.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from pipelines.buildplan import BuildPlan
from pipelines.config import Config
from pipelines.errors import ConfigError, HostError, PipelineError
from pipelines.files import disk_errors
from pipelines.fleet.cluster.commission import (
    Answered,
    Commission,
    Hello,
    Lent,
    Told,
    decided,
    program,
    read,
    require_decided,
)
from pipelines.fleet.cluster.store import Store
from pipelines.fleet.drivers import Done, Driver, ElsewhereError, log_of
from pipelines.fleet.lines import LineErrand, Order
from pipelines.fleet.looking import Hosts
from pipelines.fleet.model import Ended, Work
from pipelines.fleet.rooms import Room
from pipelines.fleet.survey import machine_of
from pipelines.hosttext import line
from pipelines.matrix.hostfacts import HostFacts
from pipelines.paths import home
from pipelines.run import Run, error_of
from pipelines.session.base import UnfitHostError
from pipelines.toolchain.lock import load_lock

#: Of a log that is told at a time.
_SAID = 64 << 10
_LEAVE = 20.0
#: Seconds for which a look is good: who asked may have been killed before it was told.
_FRESH = 20.0
#: What of a commission decides what becomes of it.
_ORDER = ("axes", "jobs", "reproducible", "decided", "after")
Say = Callable[[str], object]


class LentErrand(LineErrand):
    """Works for somebody else's fleet: only what is the same here as where it is asked for."""

    def __init__(self, name: str, order: Order, hosts: Hosts, first: Work) -> None:
        super().__init__(name, order, hosts, first)
        self.asked: dict[str, dict[str, str]] = {}
        """Cell -> what decides its wheel, as the asker has it."""

    def plan(self, work: Work) -> BuildPlan:
        """As any; what cannot be here may well be elsewhere."""
        try:
            return super().plan(work)
        except ConfigError as error:
            raise ElsewhereError(error.message, advice=error.advice) from None

    def do(self, work: Work, done: Done) -> None:
        """As any, unless something else would be made of it here."""
        plan = self.plan(work)
        require_decided(decided(plan.recipe, plan.cache), self.asked[work.cell], plan.recipe.name)
        super().do(work, done)


@dataclass
class _Post:
    """What one fleet has of one host here."""

    order: Order
    cells: dict[str, dict[str, str]]
    errand: LentErrand
    driver: Driver
    room: Room | None = None


@dataclass
class _Job:
    """Something that goes on for an asker, or has ended and was not taken yet."""

    commission: Commission
    thread: threading.Thread = field(init=False)
    cancelled: threading.Event = field(default_factory=threading.Event)
    told: Told | None = None
    over: float = math.inf
    """When it was over."""
    base: int = 0
    """Bytes that the work's log had before."""

    def is_other(self, asked: Commission) -> bool:
        """Whether what was found is no answer to ``asked``: something else, or too long ago."""
        if asked.errand == "do":
            return any(getattr(asked, one) != getattr(self.commission, one) for one in _ORDER)
        return self.told is not None and time.monotonic() - self.over > _FRESH


class Member:
    """Answers askers; its works go on whoever asks, and whether anybody does."""

    def __init__(self, settings: Config, hosts: tuple[str, ...], say: Say = lambda _: None) -> None:
        """Of ``pipeline.yaml`` as it is here these hosts are offered."""
        self._settings, self._names, self._say = settings, hosts, say
        self._root = home() / settings.out / "asked"
        self._program = program()  # as it was read: its files may be others by tomorrow
        self._lock = threading.RLock()
        self._room = threading.Condition()
        self._hosts: dict[str, Hosts] = {}
        self._posts: dict[tuple[str, str], _Post] = {}
        self._jobs: dict[tuple[str, str, str, str], _Job] = {}
        self._store = Store(self._root)
        self._rooms: dict[str, Room] = {}
        """Of each host, for all fleets."""
        self._verbs: dict[str, Callable[[str, bytes], tuple[str, bytes]]] = {
            "hello": self._hello,
            "carry": self._carry,
            "settle": self._settle,
            "release": self._release,
            "leave": self._leave,
            "lacks": self._store.lacks,
            "piece": self._store.piece,
            "put": self._store.put,
        }

    def answer(self, verb: str, text: str, data: bytes) -> tuple[str, bytes]:
        """What is said to an asker; never raises."""
        try:
            if (act := self._verbs.get(verb)) is None:
                raise UnfitHostError(f"'{line(verb, 40)}' is asked, which is not known")  # noqa: TRY301
            told, sent = act(text, data)
        except Exception as error:
            return Answered(error=error_of(error)).model_dump_json(), b""
        return Answered(told=told).model_dump_json(), sent

    def _hello(self, _text: str, _data: bytes) -> tuple[str, bytes]:
        lock, lent = load_lock(), {}
        for name in self._names:
            config = self._settings.host(name)
            with contextlib.suppress(ConfigError):  # it is not there to be asked
                given = config.supply(lock)
                lent[name] = Lent(
                    given=replace(given, instead=dict(given.instead)),
                    windows=config.is_windows,
                    made=config.made,
                    slots=config.slots,
                    price=config.price,
                )
        return Hello(program=self._program, hosts=lent).model_dump_json(), b""

    # Commissions.

    def _carry(self, text: str, _data: bytes) -> tuple[str, bytes]:
        """Begin a commission, or say how it stands: it is told as often as it is asked for."""
        asked = read(Commission, text, "the asker")
        if asked.key != asked.work.key or asked.host not in self._names:
            raise UnfitHostError(f"{line(asked.host, 60)} is not offered here")
        key = (asked.fleet, asked.host, asked.errand, asked.key)
        with self._lock:
            job = self._jobs.get(key)
            if job is not None and job.is_other(asked):
                if job.told is None:
                    raise HostError(
                        f"{asked.key} goes on at {asked.host} as it was asked for before",
                        advice="Have it end, or have the order as it was.",
                    )
                self._forget(key)
                job = None
            if job is None:
                if asked.errand == "do":  # that it was ended is not true any more
                    self._jobs.pop((asked.fleet, asked.host, "withdraw", asked.key), None)
                job = self._jobs[key] = _Job(asked)
                with contextlib.suppress(OSError):
                    log = log_of(self._root / asked.fleet, asked.key)
                    job.base = log.stat().st_size
                job.thread = threading.Thread(target=self._go, args=(job,), daemon=True)
                job.thread.start()
            elif job.told is not None and asked.errand != "do":
                del self._jobs[key]  # a look is as old as its answer
        return self._stands(job, asked.said).model_dump_json(), b""

    def _stands(self, job: _Job, said: int) -> Told:
        asked, now = job.commission, job.told or Told()
        if asked.errand != "do":
            return now
        with self._lock:
            post = self._posts.get((asked.fleet, asked.host))
        now_doing = post.driver.doing() if post is not None else ()
        doing = next((one for one in now_doing if one.key == asked.key), None)
        data, folder = b"", self._root / asked.fleet
        with contextlib.suppress(OSError), log_of(folder, asked.key).open("rb") as log:
            if job.base + said > log.seek(0, os.SEEK_END):
                said = 0  # that was the log of the process before
            log.seek(job.base + said)
            data = log.read(_SAID)
        whole = len(data) < _SAID
        if not whole:  # no letter is cut in two
            data = data[: data.rfind(b"\n") + 1] or data
        heard = said + len(data)
        return now.model_copy(
            update={
                "over": now.over and whole,
                "doing": doing,
                "said": data.decode("utf-8", "replace"),
                "heard": heard,
            }
        )

    def _post(self, asked: Commission) -> _Post:
        """The fleet's driver of a host, with what is known of its order."""
        with self._lock:
            folder = self._root / asked.fleet
            post = self._posts.get((asked.fleet, asked.host))
            if post is None:
                with disk_errors(self._root):
                    folder.mkdir(parents=True, exist_ok=True)
                hosts = self._hosts.setdefault(
                    asked.fleet, Hosts(self._settings.fleet, folder, self._names)
                )
                cells: dict[str, dict[str, str]] = {asked.work.cell: dict(asked.axes)}
                order = Order(
                    self._settings, folder, cells, asked.jobs, reproducible=asked.reproducible
                )
                errand = LentErrand(asked.host, order, hosts, asked.work)
                post = _Post(order, cells, errand, Driver(asked.host, errand, folder))
                self._posts[asked.fleet, asked.host] = post
            post.cells[asked.work.cell] = dict(asked.axes)
            if asked.errand == "do":
                post.errand.asked[asked.work.cell] = dict(asked.decided)
            self._hosts[asked.fleet].adopt(asked.chains)
            return post

    def _go(self, job: _Job) -> None:
        """A commission, in a thread of its own; ``job.told`` is set whatever becomes of it."""
        asked = job.commission
        try:
            post = self._post(asked)
            if asked.errand == "do":
                job.told = self._do(job, post)
            elif asked.errand == "withdraw":
                job.told = Told(over=True, ended=self._withdraw(asked, post))
            else:
                job.told = self._look(asked, post)
        except PipelineError as error:
            job.told = Told(over=True, why=line(error.message, 500) or error.title)
        except BaseException as error:
            why = f"this should not happen: {type(error).__name__}: {line(error)}"
            job.told = Told(over=True, why=why)
        finally:
            job.over = time.monotonic()

    def _look(self, asked: Commission, post: _Post) -> Told:
        if why := post.driver.reach():
            return Told(over=True, why=why)
        place = self._hosts[asked.fleet].place_of(asked.host)
        if asked.errand == "reach":
            return Told(over=True, place=place)
        facts, gpus = post.errand.survey()
        return Told(over=True, facts=dict(facts), gpus=gpus, place=place)

    def _do(self, job: _Job, post: _Post) -> Told:
        asked, began = job.commission, time.time()
        for key, seal in asked.after.items():
            if (found := self._store.found(seal)) is None:
                raise UnfitHostError(f"{asked.key} comes after {key}, whose run has not come here")
            post.order.runs[key] = str(found)
        self._say(f"{asked.host}: {asked.key} for {asked.fleet}")
        with self._taken(job, post) as why:
            if why:
                ended = Ended(
                    key=asked.key,
                    host=asked.host,
                    attempt=1,
                    outcome="lost",
                    began=began,
                    ended=time.time(),
                    error=error_of(UnfitHostError(why)),
                )
            else:
                ended = post.driver.do(asked.work, 1)
        self._say(f"{asked.host}: {asked.key}: {ended.outcome}")
        parcel = None
        if ended.run and ended.outcome in ("done", "failed"):  # what was lost goes on in it
            run = Run(Path(ended.run))
            parcel = self._store.packed(asked.fleet, run, sealed=ended.outcome == "done")
        return Told(over=True, ended=ended, parcel=parcel)

    @contextlib.contextmanager
    def _taken(self, job: _Job, post: _Post) -> Iterator[str]:
        """Room at the host for a work, or why there is none; limits hold for all fleets."""
        asked = job.commission
        if why := post.driver.reach():
            yield why
            return
        if asked.host not in self._rooms:
            facts, gpus = post.errand.survey()
            told = HostFacts.told(facts, name=asked.host, native=gpus or None)
            made = machine_of(self._settings, asked.host, told, gpus)
            with self._room:
                self._rooms.setdefault(asked.host, Room(made))
        room = self._rooms[asked.host]
        mine = asked.work.model_copy(update={"key": f"{asked.fleet} {asked.key}"})
        if not room.can(mine):
            yield f"{asked.host} is too small for {asked.key}"
            return
        with self._room:
            while not room.fits(mine) and not job.cancelled.is_set():
                self._room.wait(1.0)
            room.take(mine, 0.0)
        try:
            yield "it was cancelled before it began" if job.cancelled.is_set() else ""
        finally:
            with self._room:
                room.drop(mine.key, 0.0)
                self._room.notify_all()

    def _withdraw(self, asked: Commission, post: _Post) -> Ended:
        """End a work: that which goes on here, or what an earlier process has left at the host."""
        key = (asked.fleet, asked.host, "do", asked.key)
        with self._lock:
            job = self._jobs.get(key)
        if job is not None:
            job.cancelled.set()
            while job.thread.is_alive():
                post.driver.cancel(asked.key)  # it may not have begun yet
                job.thread.join(0.2)
            with self._lock:
                if self._jobs.get(key) is job:
                    del self._jobs[key]
        return post.driver.withdraw(asked.work, 1)

    def _settle(self, text: str, _data: bytes) -> tuple[str, bytes]:
        """What has ended is where it was asked for: it is not told any more."""
        asked = read(Commission, text, "the asker")
        key = (asked.fleet, asked.host, asked.errand, asked.key)
        with self._lock:
            job = self._jobs.get(key)
            if job is not None and job.told is not None:
                self._forget(key)
        return "", b""

    def _forget(self, key: tuple[str, str, str, str]) -> None:
        told = self._jobs.pop(key).told
        if told is not None and told.parcel is not None:
            self._store.forget(key[0], told.parcel)

    def _release(self, text: str, _data: bytes) -> tuple[str, bytes]:
        """Nothing waits for this host: give it back, unless it works."""
        asked = read(Commission, text, "the asker")
        with self._lock:
            post = self._posts.get((asked.fleet, asked.host))
        if post is not None:
            threading.Thread(target=post.driver.release, daemon=True).start()
        return "", b""

    def _leave(self, text: str, _data: bytes) -> tuple[str, bytes]:
        """A fleet has come to its end: give its host back, and forget what was sent for it."""
        self._release(text, b"")
        fleet = read(Commission, text, "the asker").fleet
        with self._lock:
            mine = [key for key, job in self._jobs.items() if key[0] == fleet]
            if all(self._jobs[key].told is not None for key in mine):
                self._store.clear(fleet)
        return "", b""

    def close(self) -> None:
        """Leave every work where it is: it is taken up when it is asked for again."""
        with self._lock:
            posts, jobs = [*self._posts.values()], [*self._jobs.values()]
        for job in jobs:
            job.cancelled.set()
        for post in posts:
            post.driver.leave()
        deadline = time.monotonic() + _LEAVE
        for job in jobs:
            job.thread.join(max(0.0, deadline - time.monotonic()))
        for post in posts:
            post.errand.close(stop=False)
