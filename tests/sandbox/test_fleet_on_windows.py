"""A fleet of real sandboxes: its controller and one of them are killed, and nothing is lost."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.core.files import sha256_of
from pipelines.core.paths import PACKAGE
from pipelines.record.results import BuildResult
from pipelines.record.run import Run
from pipelines.record.shards import ShardsResult

ARCHS = ("75", "80", "90")


class Project:
    """A controller with three sandboxes, two of which are a fleet."""

    #: Seconds for a command line to end, or for something to become true.
    patience = 1200.0

    def __init__(self, path: Path) -> None:
        self.path, self.out = path, path / "out"
        path.mkdir()
        hosts = {name: {"kind": "sandbox"} for name in ("a", "b", "lone")}
        settings = {"hosts": hosts, "fleet": {"hosts": ["a", "b"], "free_gib": 0.1}}
        (path / "pipeline.yaml").write_text(json.dumps(settings))
        self.environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        with (self.path / "said.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "pipelines", *words],
                cwd=self.path,
                env=self.environment,
                stdout=log,
                stderr=log,
            )

    def run(self, *words: str) -> None:
        assert self.start(*words).wait(self.patience) == 0, self.said()

    def said(self) -> str:
        log = self.path / "said.log"
        return log.read_text() if log.is_file() else ""

    def until(self, true: Callable[[], object]) -> None:
        deadline = time.monotonic() + self.patience
        while not true():
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.2)

    def building(self) -> int:
        """How many builds have begun on their hosts: they have said something of their own."""
        logs = self.out.glob("fleet-*/*.log")
        return sum("running build_ext" in log.read_text() for log in logs)

    def remove(self, *hosts: str) -> None:
        for host in hosts:
            self.start("host", "remove", "--host", host, "--force").wait(120)

    def state(self) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-m", "pipelines", "fleet", "--json"],
            cwd=self.path,
            env=self.environment,
            stdout=subprocess.PIPE,
            check=False,
        )
        told: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
        return told

    def kill_sandbox(self, name: str) -> int:
        """End its service, as the kernel does when memory is short; how many processes that was."""
        home, killed = f"{self.path}/.sandbox/{name}-", 0
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                words = (entry / "cmdline").read_text().split("\0")
                if "pipelines.hosts.sandbox.daemon" in words and any(
                    word.startswith(home) for word in words
                ):
                    os.kill(int(entry.name), signal.SIGKILL)
                    killed += 1
        return killed


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path / "project")
    yield made
    made.remove("a", "b", "lone")


def test_killed_controller_and_sandbox_lose_nothing(project: Project) -> None:
    words = ("build", "--fleet", "--python", "3.11", "--archs", "|".join(ARCHS))
    first = project.start(*words)
    project.until(lambda: project.building() == 2)
    first.kill()
    first.wait()
    assert project.kill_sandbox("b") == 1
    project.run(*words)

    (folder,) = project.out.glob("fleet-*")
    told = project.state()
    assert told["tasks"] == {"done": len(ARCHS)}
    assert told["ended"] is not None
    logs = {path.stem: path.read_text() for path in folder.glob("*.log")}
    taken_up = [name for name, text in logs.items() if "reconnected: attempt 1" in text]
    assert len(taken_up) == 2, "both builds were found again where they were begun"
    assert (folder / "report.html").is_file()
    assert not [*folder.glob(".started-*")], "what was started for the fleet was stopped"
    assert not project.kill_sandbox("a") + project.kill_sandbox("b")

    made = {}
    for pointer in folder.glob("*.run"):
        (wheel,) = (project.out / pointer.read_text() / "wheels").glob("*.whl")
        made[pointer.stem.partition("@")[0].rpartition("-sm")[2]] = sha256_of(wheel)
    assert set(made) == set(ARCHS)
    assert len(set(made.values())) == len(ARCHS)
    for arch in ARCHS:
        project.run("build", "--host", "lone", "--python", "3.11", "--archs", arch)
        (wheel,) = (project.out / "latest/wheels").glob("*.whl")
        assert sha256_of(wheel) == made[arch], f"sm{arch} is another wheel than that of one host"


def divided_of(run: Path) -> ShardsResult | None:
    built = Run(run.resolve()).result(BuildResult)
    assert built is not None
    assert not built.kept, "it was built"
    return built.divided


def divided(run: Path) -> ShardsResult:
    found = divided_of(run)
    assert found is not None
    return found


def test_a_wheel_in_shares_is_that_of_one_host(project: Project) -> None:
    words = ("--recipe", "smoke-attention-torch", "--python", "3.11", "--archs", "80")
    project.run("build", "--fleet", "--shards", "2", *words)
    assert project.state()["tasks"] == {"done": 3}
    (folder,) = project.out.glob("fleet-*")
    runs = {path.stem: project.out / path.read_text() for path in folder.glob("*.run")}
    assert {name.rpartition("@")[2] for name in runs if "of2" in name} == {"a", "b"}
    (linked,) = (run for name, run in runs.items() if "of2" not in name)
    made = {name: divided(run) for name, run in runs.items()}
    units = {tuple(one.units) for one in made.values()}
    assert len(units) == 1, "all see the same units"
    shares = [len(one.objects) for one in made.values() if one.mode == "compile"]
    assert sum(shares) == len(*units) == 7
    assert min(shares) >= 3
    assert [len(one.placed) for one in made.values() if one.mode == "link"] == [7]
    (wheel,) = (linked / "wheels").glob("*.whl")
    assert not [path for run in runs.values() if run != linked for path in run.rglob("*.whl")]

    project.run("build", "--reproducible", "--host", "a", *words)
    assert divided_of(project.out / "latest") is None
    (whole,) = (project.out / "latest/wheels").glob("*.whl")
    assert sha256_of(wheel) == sha256_of(whole)
