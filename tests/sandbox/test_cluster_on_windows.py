"""Two controllers: one asks for a build at a sandbox of the other; both are killed meanwhile."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipelines.files import sha256_of
from pipelines.paths import PACKAGE
from pipelines.run import Run

pytestmark = pytest.mark.sandbox

PATIENCE = 900.0
LINE = ("--python", "3.11", "--archs", "80")


class Controller:
    """A directory with a ``pipeline.yaml``, and the program run in it; all have one certificate."""

    def __init__(self, path: Path, *hosts: str) -> None:
        self.path, self.out = path, path / "out"
        path.mkdir()
        self.hosts = hosts
        fleet = {"free_gib": 0.1, "certificate": str(path.parent / "fleet.pem")}
        settings = {"hosts": {name: {"kind": "sandbox"} for name in hosts}, "fleet": fleet}
        (path / "pipeline.yaml").write_text(json.dumps(settings))

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        with (self.path / "said.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "pipelines", *words],
                cwd=self.path,
                env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
                stdout=log,
                stderr=log,
            )

    def run(self, *words: str) -> None:
        assert self.start(*words).wait(PATIENCE) == 0, self.said()

    def said(self) -> str:
        log = self.path / "said.log"
        return log.read_text() if log.is_file() else ""

    def until(self, true: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.2)


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    made: list[subprocess.Popen[bytes]] = []
    yield made
    for one in made:
        one.kill()
        one.wait()


@pytest.fixture
def controllers(tmp_path: Path) -> Iterator[tuple[Controller, Controller]]:
    asker, lab = Controller(tmp_path / "asker", "lone"), Controller(tmp_path / "lab", "a")
    yield asker, lab
    for one in (asker, lab):
        for host in one.hosts:
            one.start("host", "remove", "--host", host, "--force").wait(120)


def test_a_build_at_another_controller_has_the_bytes_of_a_lone_one(
    controllers: tuple[Controller, Controller], started: list[subprocess.Popen[bytes]]
) -> None:
    asker, lab = controllers
    with socket.create_server(("127.0.0.1", 0)) as free:
        where = f"tls://127.0.0.1:{free.getsockname()[1]}"
    started.append(asker.start("fleet", "serve", where))
    asker.until(lambda: "Ctrl-C" in asker.said())
    join = ("fleet", "join", where, "--hosts", "a", "--name", "lab")
    ask = ("build", "test", "--fleet", "--scheduler", where, "--hosts", "lab/a", *LINE)
    members = [lab.start(*join)]
    lab.until(lambda: "joined as lab" in lab.said())

    first = asker.start(*ask)
    asker.until(
        lambda: any(
            "running build_ext" in log.read_text() for log in asker.out.glob("fleet-*/*.log")
        )
    )
    first.kill()
    members[0].kill()
    for one in (first, members[0]):
        one.wait()
    members.append(lab.start(*join))
    started += members
    lab.until(lambda: lab.said().count("joined as lab") == 2)
    asker.run(*ask)

    (folder,) = asker.out.glob("fleet-*")
    (ledger,) = asker.out.glob("fleet-*/fleet.sqlite")
    assert ledger.is_file()
    texts = {path.stem: path.read_text() for path in folder.glob("*.log")}
    cell = next(name for name in texts if not name.endswith("-test"))
    assert "found again: attempt 1" in texts[cell], "it was taken up where it ran"
    (pointer,) = folder.glob("*.run")
    run = Run(asker.out / pointer.read_text())
    assert run.facts().target.host == "lab/a"
    assert list(run.stages()) == ["provision", "build", "collect", "audit", "test"]
    (wheel,) = (run.path / "wheels").glob("*.whl")
    made = sha256_of(wheel)
    assert len([*lab.out.glob("2*/record.sqlite")]) == 1, "it was begun once"
    assert (folder / "report.html").is_file()

    asker.run("build", "--host", "lone", *LINE)
    (wheel,) = (asker.out / "latest/wheels").glob("*.whl")
    assert sha256_of(wheel) == made
