"""Dask carries works to drivers: a scheduler and a worker a host, all in this process.

The one module that knows Dask. It decides nothing: every work is pinned to the worker of the host
that the dispatcher chose, is never begun again by Dask itself, and takes its needs of that worker's
resources, so that limits hold whatever the dispatcher believes.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import time
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import dask
from distributed import Client, Future, Scheduler, SpecCluster, Worker, get_worker
from distributed.core import Status

from pipelines.fleet.model import Ended, Machine, Work
from pipelines.hosttext import line
from pipelines.record import ErrorResult

_log = logging.getLogger(__name__)
#: Seconds that drivers are given to leave what they do.
_LEAVE = 20.0


class Carrier(Protocol):
    """A driver, as its worker sees it."""

    def do(self, work: Work, attempt: int) -> Ended:
        """Do the work to its end; never raises."""

    def cancel(self, key: str) -> None:
        """End that work, if it goes on here; returns at once."""

    def leave(self) -> None:
        """Leave every work where it is; returns at once."""

    def release(self) -> None:
        """Give the host back: nothing waits for it."""


class _HostWorker(Worker):
    """A worker that has the driver of one host."""

    def __init__(self, *given: Any, driver: Carrier, **options: Any) -> None:
        super().__init__(*given, **options)
        self.driver = driver


def _carry(told: str, attempt: int) -> str:
    """Run by a worker, in a thread of its own: JSON in and out, as between machines."""
    worker = get_worker()
    assert isinstance(worker, _HostWorker)  # noqa: S101 - pinned to one
    return worker.driver.do(Work.model_validate_json(told), attempt).model_dump_json()


def _resources(machine: Machine) -> dict[str, float]:
    return {"slots": machine.slots, "memory": machine.memory, "gpus": len(machine.gpus)}


def _taken(work: Work) -> dict[str, float]:
    needs = work.needs
    return {"slots": needs.slots, "memory": needs.memory, "gpus": 1 if needs.gpu else 0}


class DaskEngine:
    """Implements :class:`pipelines.fleet.engine.Engine` with an embedded cluster."""

    def __init__(self, drivers: Mapping[str, Carrier], machines: Mapping[str, Machine]) -> None:
        """Start the cluster: a worker for each of ``drivers``."""
        self._drivers, self._machines = dict(drivers), dict(machines)
        self._started: dict[str, tuple[Future[Any], str, int, float]] = {}
        self._ended: queue.SimpleQueue[Ended] = queue.SimpleQueue()
        settings = {
            # No thread of Dask looks at what ours do, and none is warned of that they take hours.
            "distributed.worker.profile.enabled": False,
            "distributed.admin.tick.limit": "1h",
            "distributed.scheduler.allowed-failures": 0,
            "distributed.scheduler.work-stealing": False,
        }
        with dask.config.set(settings):
            self._cluster = SpecCluster(
                workers={name: self._worker(name) for name in self._drivers},
                scheduler={
                    "cls": Scheduler,
                    "options": {"protocol": "inproc", "dashboard": False},
                },
                silence_logs=logging.CRITICAL,
                name="fleet",
            )
            self._client = Client(self._cluster, set_as_default=False)

    def _worker(self, name: str) -> dict[str, Any]:
        machine = self._machines[name]
        return {
            "cls": _HostWorker,
            "options": {
                "protocol": "inproc",
                "name": name,
                "nthreads": machine.slots + max(1, len(machine.gpus)),
                "memory_limit": 0,
                "resources": _resources(machine),
                "dashboard": False,
                "driver": self._drivers[name],
            },
        }

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def alive(self) -> frozenset[str]:
        """The hosts whose workers run."""
        running = (n for n, w in self._cluster.workers.items() if w.status is Status.running)
        return frozenset(map(str, running))

    def start(self, work: Work, host: str, attempt: int) -> None:
        """Have the driver of ``host`` begin; what that host can never give is told as lost."""
        have, took = _resources(self._machines[host]), _taken(work)
        if short := [name for name in took if took[name] > have[name]]:
            said = ", ".join(f"{name}: {took[name]:g} of {have[name]:g}" for name in short)
            self._tell_lost(work.key, host, attempt, self.now(), f"{host} has too little of {said}")
            return
        began = self.now()
        future = self._client.submit(
            _carry,
            work.model_dump_json(),
            attempt,
            key=f"{work.key}#{attempt}@{host}",
            workers=[host],
            allow_other_workers=False,
            resources={name: many for name, many in took.items() if many},
            pure=False,
            retries=0,
        )
        self._started[work.key] = (future, host, attempt, began)
        future.add_done_callback(lambda done: self._done(work.key, host, attempt, began, done))

    def _done(self, key: str, host: str, attempt: int, began: float, future: Future[Any]) -> None:
        """Called by a thread of the client once a future has any end."""
        try:
            self._ended.put(Ended.model_validate_json(future.result(timeout=5)))
        except BaseException as error:
            why = f"the driver of {host} has ended: {type(error).__name__}: {line(error, 200)}"
            self._tell_lost(key, host, attempt, began, why)

    def _tell_lost(self, key: str, host: str, attempt: int, began: float, why: str) -> None:
        error = ErrorResult(kind="HostError", title="host", message=why)
        ended = Ended(
            key=key,
            host=host,
            attempt=attempt,
            outcome="lost",
            began=began,
            ended=max(began, self.now()),
            error=error,
        )
        self._ended.put(ended)

    def cancel(self, key: str) -> None:
        """End the work at its host; its end is told by :meth:`wait`."""
        if key in self._started:
            _, host, *_ = self._started[key]
            self._drivers[host].cancel(key)

    def wait(self, timeout: float) -> Iterable[Ended]:
        """What has ended since the last call; at most ``timeout`` seconds until the first."""
        found: list[Ended] = []
        with contextlib.suppress(queue.Empty):
            found.append(
                self._ended.get(timeout=timeout) if timeout > 0 else self._ended.get_nowait()
            )
            while True:
                found.append(self._ended.get_nowait())
        for one in found:
            self._started.pop(one.key, None)
        return found

    def close(self) -> None:
        """Have every driver leave its works where they are, and end the cluster."""
        for driver in self._drivers.values():
            driver.leave()
        deadline = time.monotonic() + _LEAVE
        while self._started and time.monotonic() < deadline:
            list(self.wait(0.2))
        for future, host, *_ in self._started.values():
            _log.warning("%s: %s does not leave", host, future.key)
        self._client.close(timeout=5)
        self._cluster.close(timeout=5)
