"""A controller with 200 hosts, each with a real session to a Python of its own: its memory.

Prints JSON: works that are done, seconds, VmHWM in bytes, threads. A work is what carrying one
costs a controller: a run with its record, calls, a stream that is followed, a log.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

from pipelines.console import host_line
from pipelines.fleet.dask_engine import DaskEngine
from pipelines.fleet.dispatch import Dispatcher
from pipelines.fleet.drivers import Done, Driver, doing_of
from pipelines.fleet.ledger import Ledger
from pipelines.fleet.model import Machine, Needs, Work
from pipelines.fleet.states import state
from pipelines.record import RunFacts
from pipelines.remote import facts, identity, process
from pipelines.run import Run
from pipelines.session.base import Session
from pipelines.session.channel import bootstrap_command, open_session
from pipelines.session.transports.popen import PopenStream
from pipelines.target import Target
from pipelines.units import GIB


class Idle:
    """The errand of one host: its session is opened once and kept."""

    def __init__(self, name: str, out: Path) -> None:
        self.name, self.out = name, out
        self._session: Session | None = None

    def reach(self) -> None:
        command = ["sh", "-c", bootstrap_command(sys.executable)]
        self._session = open_session(PopenStream(command), name=self.name, patience=600.0)
        self._session.call(identity.identity, root=str(self.out / self.name))

    def do(self, work: Work, done: Done) -> None:
        assert self._session is not None
        run = Run.create(self.out, RunFacts(target=Target(host=self.name, recipe=work.key)))
        done.run = str(run.path)
        with run.stage("build"):
            self._session.call(facts.facts)
            said = ["sh", "-c", "for n in 1 2 3 4 5; do echo $n; sleep 0.2; done"]
            for item in self._session.stream(process.stream, command=said):
                host_line(str(item))
        run.close()

    def withdraw(self, work: Work) -> None:
        """Nothing is left of it."""

    def unblock(self) -> None:
        if self._session is not None:
            self._session.close()

    def reachable(self) -> bool:
        return True

    def release(self) -> None:
        """It is not made."""


def main(place: Path, hosts: int, works: int) -> None:
    out = place / "out"
    out.mkdir()
    names = [f"host{n:03}" for n in range(hosts)]
    ledger = Ledger.create(out, "bench", durable=False)
    machines = {name: Machine(name=name, cores=8, memory=64 * GIB) for name in names}
    ledger.put(
        [
            Work(
                key=f"cell{n:04}",
                kind="cell",
                cell=f"cell{n:04}",
                core_seconds=60,
                needs=Needs(memory=GIB),
                hosts=tuple(names),
            )
            for n in range(works)
        ],
        machines.values(),
        time.time(),
    )
    errands = {name: Idle(name, out) for name in names}
    drivers = {name: Driver(name, errands[name], ledger.path) for name in names}
    engine = DaskEngine(drivers, machines)
    began, most = time.monotonic(), 0
    due = 0.0

    def look() -> None:
        nonlocal due, most
        most = max(most, threading.active_count())
        if time.monotonic() > due:
            state(ledger, doing=doing_of(drivers))
            due = time.monotonic() + 2.0

    summary = Dispatcher(ledger, engine).run(look)
    seconds = time.monotonic() - began
    engine.close()
    for errand in errands.values():
        errand.unblock()
    status = Path("/proc/self/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
    told = {"works": summary.works, "seconds": seconds, "VmHWM": peak, "threads": most}
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
