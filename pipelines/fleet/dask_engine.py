"""Dask carries works to drivers: a scheduler and a worker a host, all in this process.

The one module that knows Dask. It decides nothing: every work is pinned to the worker of the host
that the dispatcher chose, is never begun again by Dask itself, and takes its needs of that worker's
resources, so that limits hold whatever the dispatcher believes.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import queue
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import dask
from distributed import Client, Future, Scheduler, SpecCluster, Worker, get_worker
from distributed.core import Status

from pipelines.fleet.model import Ended, Machine, Work
from pipelines.hosttext import line
from pipelines.record import ErrorResult

_log = logging.getLogger(__name__)
#: Seconds that a message within this process may take: on a machine with much to do, some.
_CONNECT = 600.0
_SETTINGS = {
    # What watches over workers that are machines of their own is a burden where there are hundreds
    # in one process: no thread looks at what ours do, and none is warned of that they take hours.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick": {"interval": "5s", "limit": "1h", "cycle": "1h"},
    "distributed.admin.system-monitor.interval": "60s",
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.scheduler.worker-ttl": None,
    "distributed.scheduler.work-stealing": False,
    # A work is begun again by the dispatcher alone.
    "distributed.scheduler.allowed-failures": 0,
    "distributed.comm.timeouts": {"connect": f"{_CONNECT}s", "tcp": f"{_CONNECT}s"},
}
#: Seconds that drivers are given to leave what they do.
_LEAVE = 20.0


class Carrier(Protocol):
    """A driver, as its worker sees it."""

    def do(self, work: Work, attempt: int) -> Ended:
        """Do the work to its end; never raises."""

    def withdraw(self, work: Work, attempt: int) -> Ended:
        """End what the work has left running on the host; never raises."""

    def reach(self) -> str:
        """Connect and look; why nothing can be done there, or nothing. Never raises."""

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


def _driver() -> Carrier:
    """Of the worker that runs this: works are pinned to one."""
    worker = get_worker()
    assert isinstance(worker, _HostWorker)  # noqa: S101 - the cluster has no others
    return worker.driver


def _do(told: str, attempt: int) -> str:
    """Run by a worker, in a thread of its own: JSON in and out, as between machines."""
    return _driver().do(Work.model_validate_json(told), attempt).model_dump_json()


def _withdraw(told: str, attempt: int) -> str:
    return _driver().withdraw(Work.model_validate_json(told), attempt).model_dump_json()


def _reach() -> str:
    return _driver().reach()


def _resources(machine: Machine) -> dict[str, float]:
    return {"slots": machine.slots, "memory": machine.memory, "gpus": len(machine.gpus)}


def _taken(work: Work) -> dict[str, float]:
    needs = work.needs
    return {"slots": needs.slots, "memory": needs.memory, "gpus": 1 if needs.gpu else 0}


def _has_pages() -> bool:
    return importlib.util.find_spec("bokeh") is not None


class DaskEngine:
    """Implements :class:`pipelines.fleet.engine.Engine` with an embedded cluster."""

    def __init__(
        self,
        drivers: Mapping[str, Carrier],
        machines: Mapping[str, Machine],
        dashboard_port: int = 0,
    ) -> None:
        """Start the cluster: a worker for each of ``drivers``; and Dask's page, if bokeh is there.

        The page is for this machine alone: nobody signs in to it.
        """
        self._drivers, self._machines = dict(drivers), dict(machines)
        self._started: dict[str, tuple[str, int]] = {}
        """Key of a work that goes on -> its host and attempt."""
        self._cancelled: set[str] = set()
        """Of those: told to their drivers until they end, which may not have begun them yet."""
        self._lock = threading.Lock()
        self._up: set[str] = set()
        self._coming: set[str] = set()
        self._why: dict[str, str] = {}
        self._asked = 0
        self._ended: queue.SimpleQueue[Ended] = queue.SimpleQueue()
        # Else Dask's files are in one place for all, and stay there.
        self._scratch = tempfile.TemporaryDirectory(prefix="wcw-fleet-", ignore_cleanup_errors=True)
        # Of a machine without a way to the internet; nobody dials what is in this process.
        warnings.filterwarnings("ignore", "Couldn't detect a suitable IP", RuntimeWarning)
        dask.config.set(_SETTINGS | {"temporary-directory": self._scratch.name})
        self._cluster = SpecCluster(
            workers={name: self._worker(name) for name in self._drivers},
            scheduler={
                "cls": Scheduler,
                "options": {
                    "protocol": "inproc",
                    "dashboard": _has_pages(),
                    "dashboard_address": f"127.0.0.1:{dashboard_port}",
                },
            },
            silence_logs=logging.CRITICAL,
            name="fleet",
        )
        self._client = Client(self._cluster, set_as_default=False, timeout=_CONNECT)

    def _worker(self, name: str) -> dict[str, Any]:
        machine = self._machines[name]
        return {
            "cls": _HostWorker,
            "options": {
                "protocol": "inproc",
                "name": name,
                # Builds, tests, and a look whether the host is there.
                "nthreads": machine.slots + max(1, len(machine.gpus)) + 1,
                "memory_limit": 0,
                "resources": _resources(machine),
                "dashboard": False,
                # Its HTTP server is there in any case, and would listen to every network.
                "dashboard_address": "127.0.0.1:0",
                "driver": self._drivers[name],
            },
        }

    @property
    def dashboard(self) -> str:
        """Address of Dask's page; empty without bokeh."""
        scheduler = self._cluster.scheduler
        if scheduler is None or not _has_pages():
            return ""
        return f"http://127.0.0.1:{scheduler.services['dashboard'].port}/status"

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def alive(self) -> frozenset[str]:
        """The hosts that were reached and whose workers run."""
        workers = self._cluster.workers.items()
        running = {str(name) for name, one in workers if one.status is Status.running}
        with self._lock:
            return frozenset(self._up & running)

    def ask(self, host: str) -> None:
        """Have the host reached and looked at, unless it is there or on its way."""
        with self._lock:
            if host in self._up or host in self._coming:
                return
            worker = self._cluster.workers.get(host)
            if worker is None or worker.status is not Status.running:
                self._why[host] = "its driver has ended; the same command begins another"
                return
            self._coming.add(host)
            self._why.pop(host, None)
        self._asked += 1
        future = self._submit(_reach, host, f"reach {host}#{self._asked}", {})
        future.add_done_callback(lambda done: self._reached(host, done))

    def _reached(self, host: str, future: Future[Any]) -> None:
        try:
            why = str(future.result(timeout=_CONNECT))
        except BaseException as error:
            why = f"its driver has ended: {type(error).__name__}: {line(error, 200)}"
        with self._lock:
            self._coming.discard(host)
            self._stands(host, why)

    def _stands(self, host: str, why: str) -> None:
        if why:
            self._up.discard(host)
            self._why[host] = why
        else:
            self._up.add(host)

    def why(self, host: str) -> str:
        """Why it is not alive; empty while it is on its way, or nobody asked for it."""
        with self._lock:
            return self._why.get(host, "")

    def give(self, host: str) -> None:
        """Give a host back that is made on demand; returns at once."""
        with self._lock:
            self._up.discard(host)
        threading.Thread(target=self._drivers[host].release, daemon=True).start()

    def start(self, work: Work, host: str, attempt: int) -> None:
        """Have the driver of ``host`` begin; what that host can never give is told as lost."""
        have, took = _resources(self._machines[host]), _taken(work)
        if short := [name for name in took if took[name] > have[name]]:
            said = ", ".join(f"{name}: {took[name]:g} of {have[name]:g}" for name in short)
            self._tell_lost(work.key, host, attempt, self.now(), f"{host} has too little of {said}")
            return
        began = self.now()
        future = self._submit(
            _do, host, f"{work.key}#{attempt}@{host}", took, work.model_dump_json(), attempt
        )
        self._started[work.key] = host, attempt
        future.add_done_callback(lambda done: self._done(work.key, host, attempt, began, done))

    def withdraw(self, work: Work, host: str, attempt: int) -> None:
        """End what a lost attempt may have left at ``host``; told as an end of that attempt."""
        began = self.now()
        self._asked += 1
        name = f"withdraw {work.key}#{attempt}@{host}#{self._asked}"
        future = self._submit(_withdraw, host, name, {}, work.model_dump_json(), attempt)
        future.add_done_callback(lambda done: self._done(work.key, host, attempt, began, done))

    def _submit(
        self,
        function: Callable[..., str],
        host: str,
        key: str,
        taken: Mapping[str, float],
        *given: object,
    ) -> Future[Any]:
        future: Future[Any] = self._client.submit(
            function,
            *given,
            key=key,
            workers=[host],
            allow_other_workers=False,
            resources={name: many for name, many in taken.items() if many},
            pure=False,
            retries=0,
        )
        return future

    def _done(self, key: str, host: str, attempt: int, began: float, future: Future[Any]) -> None:
        """Called by a thread of the client once a future has any end."""
        try:
            ended = Ended.model_validate_json(future.result(timeout=_CONNECT))
        except BaseException as error:
            why = f"the driver of {host} has ended: {type(error).__name__}: {line(error, 200)}"
            self._tell_lost(key, host, attempt, began, why)
            return
        if ended.gone:
            with self._lock:
                self._stands(host, ended.error.message if ended.error is not None else "it is gone")
        self._ended.put(ended)

    def _tell_lost(self, key: str, host: str, attempt: int, began: float, why: str) -> None:
        ended = Ended(
            key=key,
            host=host,
            attempt=attempt,
            outcome="lost",
            began=began,
            ended=max(began, self.now()),
            error=ErrorResult(kind="HostError", title="host", message=why),
        )
        self._ended.put(ended)

    def cancel(self, key: str) -> None:
        """End the work at its host; its end is told by :meth:`wait`."""
        if key in self._started:
            self._cancelled.add(key)
            self._drivers[self._started[key][0]].cancel(key)

    def wait(self, timeout: float) -> Iterable[Ended]:
        """What has ended since the last call; at most ``timeout`` seconds until the first."""
        self._look_for_dead()
        for key in self._cancelled & self._started.keys():
            self._drivers[self._started[key][0]].cancel(key)
        found: list[Ended] = []
        with contextlib.suppress(queue.Empty):
            found.append(
                self._ended.get(timeout=timeout) if timeout > 0 else self._ended.get_nowait()
            )
            while True:
                found.append(self._ended.get_nowait())
        for one in found:
            if self._started.get(one.key) == (one.host, one.attempt):  # or it was withdrawn
                del self._started[one.key]
        self._cancelled &= self._started.keys()
        return found

    def _look_for_dead(self) -> None:
        """Tell of works whose worker has ended, of which Dask itself says nothing."""
        workers = self._cluster.workers
        for key, (host, attempt) in [*self._started.items()]:
            worker = workers.get(host)
            if worker is None or worker.status in (Status.closed, Status.failed):
                self._drivers[host].leave()  # its thread may go on without it
                del self._started[key]
                why = f"the driver of {host} has ended"
                self._tell_lost(key, host, attempt, self.now(), why)

    def close(self) -> None:
        """Have every driver leave its works where they are, and end the cluster."""
        for driver in self._drivers.values():
            driver.leave()
        deadline = time.monotonic() + _LEAVE
        while self._started and time.monotonic() < deadline:
            list(self.wait(0.2))
        for key, (host, _) in self._started.items():
            _log.warning("%s: %s does not leave", host, key)
        self._client.close(timeout=5)
        self._cluster.close(timeout=5)
        self._scratch.cleanup()
