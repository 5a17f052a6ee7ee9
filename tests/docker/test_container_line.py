"""The main job in a container, as it is typed: also when something dies in the middle of it."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from project import Project

from pipelines.core.evidence import Evidence
from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.images import Image

ARCHS = ("--archs", "80+PTX")


@pytest.fixture
def project(tmp_path: Path, engine: Engine, sandbox_image: Image) -> Iterator[Project]:
    made = Project(tmp_path, engine)
    yield made
    made.clear()


def listen(process: subprocess.Popen[str], pattern: str, seconds: float = 240) -> str:
    """What it says up to the line with ``pattern``."""
    said, deadline = "", time.monotonic() + seconds
    assert process.stdout is not None
    for line in process.stdout:
        said += line
        if re.search(pattern, line):
            return said
        assert time.monotonic() < deadline, said
    raise AssertionError(said)


def test_a_container_that_is_removed_in_mid_build(project: Project) -> None:
    """It is replaced, and the build continues with the units in the volume."""
    process = project.start("provision", "build", "test", "--host", "box", *ARCHS)
    said = listen(process, r"\[2/5\]")
    (one,) = project.containers()
    one.remove(force=True)
    rest, _ = process.communicate(timeout=400)
    assert process.returncode == 0, said + rest
    assert "continuing in a new one" in rest
    assert "34 passed" in rest
    assert f"evidence: {Evidence.BINARIES.meaning}" in rest
    assert "is up to date" in rest, "what was finished is not compiled again"
    assert project.containers() == []
    (run,) = (project.home / "out").glob("2*")  # one run, not two
    told = json.loads((run / "manifest.json").read_text())
    assert told["publishable"] is False
    assert [file["path"] for file in told["files"] if file["path"].endswith(".whl")]


def test_a_lasting_one_goes_on_without_its_controller(project: Project) -> None:
    process = project.start("build", "--host", "lasting", *ARCHS)
    listen(process, r"\[2/5\]")
    process.kill()
    process.wait()
    (one,) = project.containers()
    assert one.status == "running"
    code, said = project.wcw("build", "test", "--host", "lasting", *ARCHS)
    assert code == 0, said
    assert "reconnected" in said
    assert [found.id for found in project.containers()] == [one.id]
    code, said = project.wcw("host", "remove", "--host", "lasting")
    assert code == 0, said
    assert project.containers() == []
    code, said = project.wcw("hosts", "--json")
    told = json.loads(said)
    assert [t for p in told["places"] for t in p["things"] if t["host"] == "lasting"] == []
