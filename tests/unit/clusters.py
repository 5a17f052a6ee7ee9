"""A cluster within this process: a real scheduler and members over TLS on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plans import LAB, at_desk
from test_between_stages import good

from pipelines import buildplan
from pipelines.buildplan import Request
from pipelines.config import Config
from pipelines.divided import share_of
from pipelines.fleet import lines
from pipelines.fleet.cluster import certificates, joined, wire
from pipelines.fleet.cluster.certificates import Address
from pipelines.fleet.cluster.joined import JoinedErrand, look
from pipelines.fleet.cluster.member import Member
from pipelines.fleet.cluster.wire import Wire
from pipelines.fleet.lines import Order
from pipelines.fleet.looking import Hosts
from pipelines.fleet.model import Work

CELL = Work(key="pkg-cp", kind="cell", cell="pkg-cp", core_seconds=1, hosts=("lab/desk",))
PATIENCE = 30.0


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Going:
    """A coroutine in a thread of its own, until it is ended."""

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self.error: BaseException | None = None
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._begun = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self.thread.start()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        async def whole() -> None:
            self._task = asyncio.current_task()
            self._begun.set()
            await work

        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(whole())
        except (asyncio.CancelledError, Exception) as error:
            self.error = error
        with contextlib.suppress(Exception):
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())

    def end(self) -> None:
        self._begun.wait(PATIENCE)
        if self._task is not None and self.thread.is_alive():
            self._loop.call_soon_threadsafe(self._task.cancel)
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()


class Cluster:
    """A scheduler; members and askers that come to it."""

    def __init__(self, place: Path) -> None:
        self.file = place / "fleet.pem"
        certificates.make(self.file)
        self.said: list[str] = []
        self.address = Address("127.0.0.1", 0)
        self.going: list[Going] = []
        self.wires: list[Wire] = []
        self.serve()

    def serve(self) -> Going:
        ready: list[str] = []
        made = Going(wire.serve(self.address, self.file, self.said.append, ready.append))
        until(lambda: ready or made.error)
        assert made.error is None, made.error
        self.address = certificates.read_address(ready[0], "test")
        self.scheduler = made
        return made

    def join(self, name: str, answer: wire.Answer) -> Going:
        said: list[str] = []
        made = Going(wire.stay(self.address, self.file, name, answer, say=said.append))
        until(lambda: said or made.error)
        self.going.append(made)
        return made

    def wire(self) -> Wire:
        self.wires.append(Wire(self.address, self.file))
        return self.wires[-1]

    def close(self) -> None:
        for one in self.wires:
            one.close()
        for going in self.going:
            going.end()
        self.scheduler.end()


class Lab:
    """A member whose one host, ``desk``, is this process; and an asker of it."""

    def __init__(
        self,
        cluster: Cluster,
        place: Path,
        monkeypatch: pytest.MonkeyPatch,
        job: Any = None,
        make: Callable[..., Any] = at_desk,
    ) -> None:
        monkeypatch.setattr(joined, "POLL", 0.02)
        monkeypatch.setattr(joined, "_PATIENCE", 5.0)
        monkeypatch.setattr(joined, "_LOOK", 0.5)
        monkeypatch.setattr(wire, "_PAUSE", 0.05)
        self.cluster, self.place = cluster, place
        (place / "member").mkdir()
        self.line, self.session = make(place / "member", job or good(place / "member"))
        self.settings = Config.model_validate(
            {"hosts": {"desk": {"kind": "local"}}, "out": str(place / "member/out")}
        )
        self.asked: list[Request] = []

        def resolve(_: Config, request: Request, **__: Any) -> Any:
            self.asked.append(request)
            share = share_of(request.share) if request.share else None
            recipe = buildplan.settle(self.line.plan.recipe, request)
            return replace(self.line.plan, recipe=recipe, objects=request.objects, share=share)

        monkeypatch.setattr(lines, "resolve", resolve)
        self.recipe = self.line.plan.recipe
        monkeypatch.setattr(buildplan, "load_recipe", lambda *_, **__: self.recipe)
        self.member = Member(self.settings, ("desk",))
        self.staying = cluster.join("lab", self.member.answer)
        self.folder = place / "asker/out/fleet-1"
        self.folder.mkdir(parents=True)
        self.axes = {
            name: value
            for name, value in self.line.plan.target.values().items()
            if value and name != "host"
        }

    def again(self) -> None:
        """The member, as another process has it."""
        self.staying.end()
        self.member.close()
        self.member = Member(self.settings, ("desk",))
        self.staying = self.cluster.join("lab", self.member.answer)

    def errand(
        self, fleet: str = "fleet-1-a", first: Work = CELL, runs: dict[str, str] | None = None
    ) -> JoinedErrand:
        """Of an asker, as another process would have it."""
        there = look(self.cluster.wire())
        assert not there.aside
        own = {"hosts": {"own": LAB}, "out": str(self.place / "asker/out")}
        settings = Config.model_validate(own)
        settings = settings.model_copy(update={"hosts": {**settings.hosts, **there.hosts}})
        order = Order(settings, self.folder, {"pkg-cp": self.axes}, jobs=3, runs=runs or {})
        self.hosts = Hosts(settings.fleet, self.folder, tuple(settings.hosts))
        return JoinedErrand("lab/desk", there.wire, order, self.hosts, fleet=fleet, first=first)
