"""Two controllers: one asks for a build at a sandbox of the other; both are killed meanwhile."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from controllers import Controller

from pipelines.files import sha256_of
from pipelines.run import Run

pytestmark = pytest.mark.sandbox

LINE = ("--python", "3.11", "--archs", "80")


def controller(path: Path, *hosts: str) -> Controller:
    """All have one certificate."""
    fleet = {"free_gib": 0.1, "certificate": str(path.parent / "fleet.pem")}
    return Controller(
        path, {"hosts": {name: {"kind": "sandbox"} for name in hosts}, "fleet": fleet}
    )


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    made: list[subprocess.Popen[bytes]] = []
    yield made
    for one in made:
        one.kill()
        one.wait()


@pytest.fixture
def controllers(tmp_path: Path) -> Iterator[tuple[Controller, Controller]]:
    asker, lab = controller(tmp_path / "asker", "lone"), controller(tmp_path / "lab", "a")
    yield asker, lab
    asker.remove("lone")
    lab.remove("a")


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
    asker.until(asker.building)
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
