"""The controller of a fleet of simulated hosts, as a process that can be killed.

``fleet_controller.py ORDER`` where ORDER is a JSON file. Ledger, scheduler, workers,
sessions and detached jobs are the product's; what a task does is :mod:`unit_build`. Run again, it
goes on.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from controller import Bench, Password

from pipelines.core.errors import BuildError
from pipelines.core.files import write_atomic
from pipelines.core.target import Target
from pipelines.core.units import GIB
from pipelines.fleet.executor import run_of
from pipelines.fleet.ledger import Ledger
from pipelines.fleet.model import Machine, Needs, Task
from pipelines.fleet.policy import Limits
from pipelines.fleet.scheduler import Scheduler
from pipelines.fleet.workers import HostWorker, HostWorkers, Result
from pipelines.hosts.live import LiveSession
from pipelines.record.results import RunFacts
from pipelines.record.run import Run
from pipelines.remote import identity, process
from pipelines.remote.jobs import follow as remote_follow
from pipelines.session.base import Session
from pipelines.session.channel import bootstrap_command, open_session
from pipelines.session.transports.endpoint import Endpoint
from pipelines.session.transports.winrs import WinRSStream
from pipelines.stages import detached
from pipelines.stages.detached import Job, JobSpec

detached._PAUSES = (0.05, 0.2, 0.5, 1.0, 1.0)
detached.ATTEMPTS = 1000  # how often a host loses a job is the campaign's, not a build's fault
PAUSES = (0.05, 0.2, 0.5, 1.0)
LIMITS = Limits(
    grace=15, pause=0.3, max_pause=2, boot=15, tries=1000, deaths=1000, losses=1000, poll=0.2
)


class Units:
    """The executor of one simulated host: send, build as a detached job, bring home."""

    def __init__(self, name: str, host: dict[str, str], order: dict[str, Any], out: Path) -> None:
        self.name, self.host, self.order, self.out = name, host, order, out
        self._open: set[Session] = set()
        self._lock = threading.Lock()

    def _session(self) -> Session:
        endpoint = Endpoint(
            self.host["url"],
            "builder",
            Password(self.order["password"]),
            operation_timeout=2,
            read_timeout=6,
        )

        def stream() -> WinRSStream:
            return WinRSStream(endpoint, bootstrap_command(sys.executable))

        made = open_session(stream(), name=self.name, reconnect=stream, pauses=PAUSES)
        with self._lock:
            self._open.add(made)
        return made

    def do(self, task: Task, done: Result) -> None:
        there, home = self._there(task), Path(self.order["home"])
        facts = RunFacts(target=Target(host=self.name, recipe="c", version=task.key))
        left = run_of(self._pointer(task), self.out)
        run = Run.take_up(self.out, facts, (left,) if left else ()) or Run.create(self.out, facts)
        write_atomic(self._pointer(task), run.path.name.encode())
        done.run = str(run.path)
        try:
            with self._session() as session, run.stage("build"):
                for name in ("source", "order.json"):
                    session.put(home / task.key / name, str(there / name))
                self._follow(session, run, there, task)
                got = session.get(str(there / "wheel"), home / task.key / "wheel")
                done.details["sha256"] = got
        finally:
            run.close()

    def _follow(self, session: Session, run: Run, there: Path, task: Task) -> None:
        command = [sys.executable, self.order["program"], str(there)]
        live = LiveSession(Bench(session))
        live.host.name = self.name
        spec = JobSpec(str(there), task.key, process.stream, {"command": command})
        job = Job(live, run, spec, run.path / "build.log", keep=lambda left: left.get("exit") == 0)
        with job.log.open("ab") as log:
            for item in job.follow():
                if isinstance(item, dict):
                    if item.get("exit") != 0:
                        raise BuildError(f"{task.key}: {item}")
                    return
                log.write(item)
                log.flush()

    def withdraw(self, task: Task) -> None:
        if run_of(self._pointer(task), self.out) is not None:
            with self._session() as session:
                session.call(remote_follow.cancel, directory=str(self._there(task)))

    def reach(self) -> None:
        with self._session() as session:
            session.call(identity.identity, root=self.host["root"])

    def unblock(self) -> None:
        with self._lock:
            going = [*self._open]
        for session in going:
            session.close()

    def reachable(self) -> bool:
        try:
            self.reach()
        except Exception:
            return False
        return True

    def _there(self, task: Task) -> Path:
        return Path(self.host["root"]) / task.key

    def _pointer(self, task: Task) -> Path:
        return self.out / f"{task.key}@{self.name}.run"


def main(order: dict[str, Any]) -> None:
    out = Path(order["out"])
    out.mkdir(exist_ok=True)
    hashed = hashlib.sha256(b"campaign").hexdigest()
    if (ledger := Ledger.find(out, hashed)) is not None:
        ledger.hold()
    else:
        ledger = Ledger.create(out, hashed)
    hosts = order["hosts"]
    machines = {name: Machine(name=name, cores=1, memory=8 * GIB) for name in hosts}
    tasks = [
        Task(
            key=key,
            kind="cell",
            cell=key,
            core_seconds=float(seconds),
            needs=Needs(memory=GIB),
            hosts=tuple(hosts),
        )
        for key, seconds in order["tasks"].items()
    ]
    ledger.put(tasks, machines.values(), time.time())
    workers = {
        name: HostWorker(name, Units(name, host, order, out), ledger.path)
        for name, host in hosts.items()
    }
    pool = HostWorkers(workers)
    try:
        Scheduler(ledger, pool, LIMITS).run()
    finally:
        pool.close()
        ledger.close()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
