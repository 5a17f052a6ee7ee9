"""The engine goes down and comes back, with hosts in use; only one that tests have started."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from project import ROOT, Project

from pipelines.core.errors import HostError, PipelineError
from pipelines.hosts.base import Host, OpenOptions, Silent
from pipelines.hosts.engine.engine import Engine
from pipelines.hosts.images import Image
from pipelines.plan.config.model import load_config
from pipelines.remote import facts, files
from pipelines.toolchain.lock import Cache

SETUP = ROOT / "scripts/setup-docker"


@pytest.fixture
def project(
    tmp_path: Path, engine: Engine, sandbox_image: Image, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Project]:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    if not (cache / "windows-cuda-wheels/dockerd/pid").is_file():
        pytest.skip("the engine here was not started by scripts/setup-docker: it is left alone")
    made = Project(tmp_path, engine)
    monkeypatch.chdir(tmp_path)
    yield made
    made.clear()


def opened(name: str, cache: Cache) -> Host:
    return load_config().host(name).open(name, OpenOptions("3.11", cache, Silent()))


def test_an_engine_that_is_restarted(project: Project, cache: Cache) -> None:
    """What comes and goes is gone, and known to be; what lasts is found again with its files."""
    box, lasting = opened("box", cache), opened("lasting", cache)
    session, other = box.connect(), lasting.connect()
    other.call(files.make_dirs, path=r"C:\t\mine")
    subprocess.run([SETUP, "--stop"], check=True, timeout=60)
    try:
        with pytest.raises(PipelineError, match=r"is not running|no Docker engine"):
            opened("box", cache).connect()
    finally:
        subprocess.run([SETUP], check=True, timeout=120, capture_output=True)
    assert box.is_gone()
    with pytest.raises(HostError):
        session.call(facts.facts)
    box.close()
    assert [str(one.name)[-8:] for one in project.containers()] == ["-lasting"]
    assert other.call(files.stat, path=r"C:\t\mine"), "started again, on the same files"
    other.close()
    with box.connect() as again:
        assert again.call(facts.facts)
    box.close()
    lasting.close()
