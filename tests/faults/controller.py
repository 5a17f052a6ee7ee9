"""One controller of the campaign, as a process that can be killed: upload, build, bring home.

``controller.py ORDER`` where ORDER is a JSON file. What it uses is the product's: sessions over
WinRS, transfers, the run's record, detached jobs. Run again, it goes on.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from pipelines.core.errors import PipelineError
from pipelines.core.evidence import Evidence
from pipelines.core.files import write_atomic
from pipelines.core.target import Target
from pipelines.hosts.base import Capabilities, Host
from pipelines.hosts.live import LiveSession
from pipelines.record.results import RunFacts
from pipelines.record.run import Run
from pipelines.remote import process
from pipelines.session.base import Session
from pipelines.session.channel import bootstrap_command, open_session
from pipelines.session.transports.endpoint import Endpoint
from pipelines.session.transports.winrs import WinRSStream
from pipelines.stages import detached
from pipelines.stages.detached import Job, JobSpec

detached._PAUSES = (0.05, 0.2, 0.5, 1.0, 1.0)


class Bench(Host):
    """A host that is only a session and a name."""

    name = "simulated"
    executable = sys.executable
    evidence = Evidence.SIMULATED
    capabilities = Capabilities(windows=False, msvc=False, gpu=False, publishable=False)

    def __init__(self, session: Session) -> None:
        self.session = session

    def connect(self) -> Session:
        return self.session

    def restart(self, session: Session) -> Session:
        raise AssertionError("nothing here restarts")

    def close(self) -> None:
        """The session is closed by whoever opened it."""


class Password:
    """Read from its file at each sign-in, as from a keyring."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def get_secret_value(self) -> str:
        return self.path.read_text()


def main(order: dict[str, Any]) -> None:
    endpoint = Endpoint(
        order["url"], "builder", Password(order["password"]), operation_timeout=2, read_timeout=6
    )

    def stream() -> WinRSStream:
        return WinRSStream(endpoint, bootstrap_command(sys.executable))

    build = hashlib.sha256(str(order["build"]).encode()).hexdigest()[:12]
    facts = RunFacts(target=Target(recipe="c", version=build))
    run = Run.take_up(Path(order["out"]), facts) or Run.create(Path(order["out"]), facts)
    session = open_session(
        stream(), name="simulated", reconnect=stream, pauses=(0.05, 0.2, 0.5, 1.0, 1.0)
    )
    there = Path(order["there"])
    with session, run.stage("build"):
        session.put(Path(order["source"]), str(there / "source"))
        command = [sys.executable, order["program"], str(there)]
        job = Job(
            LiveSession(Bench(session)),
            run,
            JobSpec(str(there), "c", process.stream, {"command": command}),
            run.path / "build.log",
            keep=lambda left: left.get("exit") == 0,
        )
        result: dict[str, Any] = {}
        with job.log.open("ab") as log:
            for item in job.follow():
                if isinstance(item, dict):
                    result = item
                else:
                    log.write(item)
                    log.flush()
        session.get(str(there / "wheel"), Path(order["home"]) / "wheel")
    write_atomic(Path(order["home"]) / "done", json.dumps(result).encode())


if __name__ == "__main__":
    try:
        main(json.loads(Path(sys.argv[1]).read_text()))
    except PipelineError as error:
        print(f"{type(error).__name__}: {error.message}", flush=True)
        sys.exit(error.exit_code)
