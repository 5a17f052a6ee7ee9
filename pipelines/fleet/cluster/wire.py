"""How controllers reach each other: a Dask scheduler that all of them dial, over mutual TLS.

The one module of a cluster that knows Dask. A member is a worker with one more handler, which is
given text and bytes and answers the same; the scheduler has one that passes a question on to the
member of a name. No task is ever given to Dask here: what goes on at a member is the member's, and
a scheduler that dies has nothing that could be lost.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dask
from distributed import Scheduler, Security, Worker
from distributed.core import ConnectionPool
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.utils import get_ip

from pipelines.errors import ConfigError, HostError, PipelineError
from pipelines.fleet.cluster.certificates import Address, knock
from pipelines.hosttext import line

_log = logging.getLogger(__name__)
_OP = "windows-cuda-wheels"
_PARTS = ("cert", "key")
#: Of a member: a question's verb, text and bytes -> the answer's.
Answer = Callable[[str, str, bytes], tuple[str, bytes]]
Say = Callable[[str], object]
_SETTINGS = {
    # A member whose machine lost its power is forgotten after this: its name is free again.
    "distributed.scheduler.worker-ttl": "60s",
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.allowed-failures": 0,
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "60s",
    "distributed.comm.timeouts": {"connect": "10s", "tcp": "30s"},
    # Wheels are packed already.
    "distributed.comm.compression": False,
}
#: Seconds until a member or scheduler that was away is dialled again: at first, and at most.
_PAUSE, _MOST_PAUSE = 1.0, 30.0
#: Questions of one member that are answered at a time.
_THREADS = 64
#: Seconds within which an answer comes; none of them waits for a host.
_ANSWER = 60.0
#: The same where every member is asked: who takes longer is taken to be away.
_HELLO = 15.0


class AwayError(HostError):
    """A member cannot be asked at this moment; what it does goes on."""


class _TakenError(ConfigError):
    """Another member has the name; or we had it, and nobody has noticed yet that we were gone."""


def security(certificate: Path) -> Security:
    """Whoever listens and whoever dials shows the certificate of that file."""
    file = str(certificate)
    roles = ("client", "scheduler", "worker")
    parts: dict[str, Any] = {f"tls_{role}_{what}": file for role in roles for what in _PARTS}
    return Security(tls_ca_file=file, require_encryption=True, **parts)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Dask's own log is for its developers."""
    warnings.filterwarnings("ignore", "Couldn't detect a suitable IP", RuntimeWarning)
    names = [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]
    before = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


class _Scheduler(Scheduler):
    """A scheduler that passes on what members are asked, by their names."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.handlers[_OP] = self._pass_on

    async def _pass_on(
        self, name: str = "", verb: str = "", text: str = "", data: bytes = b""
    ) -> dict[str, Any]:
        """What the member of that name answers, or every one, by name; one that is away lacks."""
        asked = [name] if name else [str(one.name) for one in self.workers.values()]
        there = {one: where for one in asked if (where := self.aliases.get(one)) is not None}

        async def ask(where: str) -> Any:
            try:
                asked = getattr(self.rpc(where), _OP)(verb=verb, text=text, data=data)
                # Of all that are asked one that hangs is not waited for by the others.
                return await asyncio.wait_for(asked, _ANSWER if name else _HELLO)
            except Exception as error:  # it has left at this moment, or is no member
                _log.info("%s: %s", where, error)
                return None

        told = await asyncio.gather(*map(ask, there.values()))
        return {one: answer for one, answer in zip(there, told, strict=True) if answer is not None}


class _Told(SchedulerPlugin):
    """Says who comes and goes."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._names: dict[str, str] = {}

    async def add_worker(self, scheduler: Scheduler, worker: str, **_: Any) -> None:
        """A member has joined."""
        self._names[worker] = line(scheduler.workers[worker].name, 80)
        self._say(f"{self._names[worker]} has joined ({line(worker, 100)})")

    async def remove_worker(self, scheduler: Scheduler, worker: str, **_: Any) -> None:  # noqa: ARG002
        """A member has left, or cannot be reached."""
        self._say(f"{self._names.pop(worker, line(worker, 100))} has left")


async def serve(address: Address, certificate: Path, say: Say, ready: Say) -> None:
    """Run a scheduler until it is cancelled; ``ready`` is given its address."""
    with _quiet(), dask.config.set(_SETTINGS):
        try:
            scheduler = await _Scheduler(
                protocol="tls",
                host=address.host,
                port=address.port,
                security=security(certificate),
                dashboard=False,
                # Its HTTP server is there in any case, and would listen to every network.
                dashboard_address="127.0.0.1:0",
            )
        except OSError as error:
            raise ConfigError(
                f"nothing can listen at {address}: {line(error, 200)}",
                advice="Name another one: invoke fleet serve tls://HOST:PORT",
            ) from None
        try:
            scheduler.add_plugin(_Told(say))
            ready(str(scheduler.address))
            await scheduler.finished()
        finally:
            await scheduler.close()


class _Member(Worker):
    """A worker that is asked things by name, and given no tasks."""

    def __init__(
        self, address: str, *, answer: Answer, threads: ThreadPoolExecutor, **options: Any
    ) -> None:
        super().__init__(address, **options)
        self._answer, self._threads = answer, threads
        self.handlers[_OP] = self._asked

    async def _asked(self, verb: str, text: str, data: bytes) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        told, sent = await loop.run_in_executor(self._threads, self._answer, verb, text, data)
        return {"text": told, "data": sent}


async def stay(
    address: Address, certificate: Path, name: str, answer: Answer, *, say: Say, port: int = 0
) -> None:
    """Be the member ``name`` of a cluster until this is cancelled; goes on when the scheduler does.

    Raises what :func:`pipelines.fleet.cluster.certificates.knock` does before it has joined once,
    and :class:`ConfigError` at any time for what no waiting changes.
    """
    pause, joined, away = _PAUSE, False, ""
    threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="asked")
    with _quiet(), dask.config.set(_SETTINGS):
        while True:
            try:
                await asyncio.to_thread(knock, address, certificate)
                worker = await _entered(
                    address, certificate, name, answer=answer, threads=threads, port=port or None
                )
            except (HostError, OSError, _TakenError) as error:
                if not joined:
                    raise
                said = error.message if isinstance(error, PipelineError) else line(error, 200)
                if said != away:
                    say(f"{said}; what goes on here goes on, and it is dialled again")
                away = said
                await asyncio.sleep(pause)
                pause = min(pause * 2, _MOST_PAUSE)
                continue
            how = "back" if joined else "joined"
            say(f"{how} as {name}: {address} reaches it at {worker.address}")
            pause, joined, away = _PAUSE, True, ""
            try:
                await worker.finished()  # type: ignore[no-untyped-call]
                await asyncio.sleep(_PAUSE)
            finally:
                await worker.close(timeout=5, executor_wait=False)


async def _require_ours(pool: ConnectionPool, address: Address) -> None:
    """Refuse a scheduler that understands us differently, or not at all."""
    known = await asyncio.wait_for(pool(str(address)).versions(), _ANSWER)
    theirs = known.get("packages", {}).get("distributed", "?")
    if theirs != version("distributed"):
        raise ConfigError(
            f"{address} has Dask {line(theirs, 40)}, here is {version('distributed')}",
            advice="Install the same release at both ends: docs/install.md.",
        )
    nobody = await asyncio.wait_for(getattr(pool(str(address)), _OP)(name=" "), _ANSWER)
    if nobody != {}:
        raise ConfigError(
            f"{address} is a Dask scheduler of something else",
            advice="invoke fleet serve begins one of ours, and says where it listens.",
        )


async def _entered(address: Address, certificate: Path, name: str, **options: Any) -> _Member:
    guard, where = security(certificate), str(address)
    pool = await ConnectionPool(connection_args=guard.get_connection_args("client"))
    try:
        await _require_ours(pool, address)
    finally:
        await pool.close()
    try:
        joined: _Member = await _Member(
            where,
            name=name,
            # What this machine is called by others is how it would reach them.
            host=get_ip(address.host, address.port),
            nthreads=1,
            memory_limit=0,
            security=guard,
            dashboard=False,
            dashboard_address="127.0.0.1:0",
            **options,
        )
    except (ValueError, RuntimeError) as error:
        said = str(error.__cause__ or error)
        if "name taken" in said:
            raise _TakenError(
                f"{address} has a member '{name}' already",
                advice="Take another name: --name. One that lost its power is forgotten after a "
                "minute.",
            ) from None
        raise HostError(f"{address} does not take us: {line(said, 300)}") from None
    return joined


class Wire:
    """An asker's way to the members of a cluster; for all threads."""

    def __init__(self, address: Address, certificate: Path) -> None:
        """What :func:`pipelines.fleet.cluster.certificates.knock` raises."""
        knock(address, certificate)
        self.address = address
        self._certificate = certificate
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="wire", daemon=True)
        self._thread.start()
        try:
            self._pool: ConnectionPool = self._within(self._open(), _ANSWER)
        except BaseException:
            self._end()
            raise

    async def _open(self) -> ConnectionPool:
        guard = security(self._certificate).get_connection_args("client")
        pool = await ConnectionPool(connection_args=guard, timeout=10)
        await _require_ours(pool, self.address)
        return pool

    def _within(self, work: Any, seconds: float) -> Any:
        future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, seconds), self._loop)
        try:
            return future.result(seconds + 5)
        except (concurrent.futures.TimeoutError, TimeoutError) as error:
            future.cancel()
            raise AwayError(f"{self.address}: no answer within {seconds:g} s") from error
        except PipelineError:
            raise
        except Exception as error:  # whatever Dask makes of a connection that broke
            raise AwayError(
                f"{self.address}: {type(error).__name__}: {line(error, 200)}"
            ) from error

    def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(AwayError):
            self._within(self._pool.close(), 5)
        self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def _passed(self, **asked: Any) -> dict[str, Any]:
        told = self._within(getattr(self._pool(str(self.address)), _OP)(**asked), _ANSWER)
        return dict(told) if isinstance(told, dict) else {}

    def members(self, verb: str, text: str = "") -> dict[str, str]:
        """What every member that can be reached answers, by their names."""
        told = self._passed(verb=verb, text=text)
        return {
            str(name): str(one.get("text")) for name, one in told.items() if isinstance(one, dict)
        }

    def ask(self, name: str, verb: str, text: str, data: bytes = b"") -> tuple[str, bytes]:
        """What the member answers; :class:`AwayError` when it cannot be asked now."""
        told = self._passed(name=name, verb=verb, text=text, data=data)
        if (one := told.get(name)) is None:
            raise AwayError(
                f"{name} is not at {self.address}",
                advice="Does invoke fleet join run there, and can the scheduler reach it?",
            )
        answer, sent = (one.get("text"), one.get("data")) if isinstance(one, dict) else (0, 0)
        if not isinstance(answer, str) or not isinstance(sent, bytes | bytearray | memoryview):
            raise AwayError(f"{name} answers nothing that makes sense: {line(one, 200)}")
        return answer, bytes(sent)
