"""A controller with 200 hosts, each with a real session to a Python of its own: its memory.

Prints JSON: tasks that are done, seconds, VmHWM in bytes, threads. A task is what carrying one
costs a controller: a run with its record, calls, a stream that is followed, a log.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

from pipelines.core.console import host_line
from pipelines.core.target import Target
from pipelines.core.units import GIB
from pipelines.fleet.history import fleet_state
from pipelines.fleet.ledger import Ledger
from pipelines.fleet.model import Machine, Needs, Task
from pipelines.fleet.scheduler import Scheduler
from pipelines.fleet.workers import HostWorker, HostWorkers, Result
from pipelines.record.results import RunFacts
from pipelines.record.run import Run
from pipelines.remote import facts, identity, process
from pipelines.session.base import Session
from pipelines.session.channel import bootstrap_command, open_session
from pipelines.session.transports.popen import PopenStream


class Idle:
    """The executor of one host: its session is opened once and kept."""

    def __init__(self, name: str, out: Path) -> None:
        self.name, self.out = name, out
        self._session: Session | None = None

    def reach(self) -> None:
        command = ["sh", "-c", bootstrap_command(sys.executable)]
        self._session = open_session(PopenStream(command), name=self.name, patience=600.0)
        self._session.call(identity.identity, root=str(self.out / self.name))

    def do(self, task: Task, done: Result) -> None:
        assert self._session is not None
        run = Run.create(self.out, RunFacts(target=Target(host=self.name, recipe=task.key)))
        done.run = str(run.path)
        with run.stage("build"):
            self._session.call(facts.facts)
            said = ["sh", "-c", "for n in 1 2 3 4 5; do echo $n; sleep 0.2; done"]
            for item in self._session.stream(process.stream, command=said):
                host_line(str(item))
        run.close()

    def withdraw(self, task: Task) -> None:
        """Nothing is left of it."""

    def unblock(self) -> None:
        if self._session is not None:
            self._session.close()

    def reachable(self) -> bool:
        return True

    def release(self) -> None:
        """It is not made."""


def main(place: Path, hosts: int, tasks: int) -> None:
    out = place / "out"
    out.mkdir()
    names = [f"host{n:03}" for n in range(hosts)]
    ledger = Ledger.create(out, "bench", durable=False)
    machines = {name: Machine(name=name, cores=8, memory=64 * GIB) for name in names}
    ledger.put(
        [
            Task(
                key=f"cell{n:04}",
                kind="cell",
                cell=f"cell{n:04}",
                core_seconds=60,
                needs=Needs(memory=GIB),
                hosts=tuple(names),
            )
            for n in range(tasks)
        ],
        machines.values(),
        time.time(),
    )
    executors = {name: Idle(name, out) for name in names}
    workers = {name: HostWorker(name, executors[name], ledger.path) for name in names}
    pool = HostWorkers(workers)
    began, most = time.monotonic(), 0
    due = 0.0

    def look() -> None:
        nonlocal due, most
        most = max(most, threading.active_count())
        if time.monotonic() > due:
            fleet_state(ledger, {name: one.progress() for name, one in workers.items()})
            due = time.monotonic() + 2.0

    summary = Scheduler(ledger, pool).run(look)
    seconds = time.monotonic() - began
    pool.close()
    for executor in executors.values():
        executor.unblock()
    status = Path("/proc/self/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
    told = {"tasks": summary.tasks, "seconds": seconds, "VmHWM": peak, "threads": most}
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
