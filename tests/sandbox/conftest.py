"""A sandbox of its own for these tests, removed afterwards."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.hosts.base import OpenOptions, Silent
from pipelines.hosts.live import LiveSession
from pipelines.hosts.sandbox import libcxx
from pipelines.hosts.sandbox.config import SandboxHost
from pipelines.hosts.sandbox.host import Sandbox
from pipelines.hosts.sandbox.wine import Prefix
from pipelines.plan.config.model import Config
from pipelines.plan.matrix.buildplan import Request, resolve_build_plan
from pipelines.stages.line import Line
from pipelines.toolchain.lock import Cache, load_lock

#: Corruptions are those of the unit tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))


class Events(Silent):
    """Remembers the steps."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def step(self, text: str) -> None:
        self.steps.append(text)


def make_sandbox(home: Path, **config: object) -> Sandbox:
    settings = SandboxHost.model_validate({"kind": "sandbox", "home": str(home), **config})
    return Sandbox(home.name, settings, OpenOptions("3.11", Cache(load_lock()), Events()))


@pytest.fixture(scope="session")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    """A plan for the sandbox on its way, provisioned once for all tests."""
    base = tmp_path_factory.mktemp("pipeline")
    settings = Config.model_validate(
        {
            "hosts": {"sandbox": {"kind": "sandbox", "home": str(base / "sandbox")}},
            "out": str(base / "out"),
        }
    )
    plan = resolve_build_plan(settings, Request(axes={"archs": "80+PTX"}))
    line = Line(plan, LiveSession(plan.host))
    yield line
    line.close()
    assert plan.host.lifecycle is not None
    plan.host.lifecycle.teardown()


@pytest.fixture(scope="session")
def libcxx_there(line: Line) -> None:
    """As a sandbox has it whose package asks for it."""
    assert line.session.facts, "it is started"
    host = line.plan.host
    assert isinstance(host, Sandbox)
    libcxx.install_libcxx(libcxx.ensure_libcxx(host.cache, host.python, print), Prefix(host.prefix))
