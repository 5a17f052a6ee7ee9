"""A sandbox of its own for these tests, removed afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.config import Config
from pipelines.hosts.base import Opening, Silent
from pipelines.hosts.sandbox.config import SandboxHost
from pipelines.hosts.sandbox.host import Sandbox
from pipelines.pipeline import open_work, take_order
from pipelines.stages.work import Work
from pipelines.toolchain.lock import Cache, load_lock


class Events(Silent):
    """Remembers the steps."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def step(self, text: str) -> None:
        self.steps.append(text)


def make_sandbox(home: Path, **config: object) -> Sandbox:
    settings = SandboxHost.model_validate({"kind": "sandbox", "home": str(home), **config})
    return Sandbox(home.name, settings, Opening("3.11", Cache(load_lock()), Events()))


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Work]:
    """An order for the sandbox, provisioned once for all tests."""
    base = tmp_path_factory.mktemp("pipeline")
    settings = Config.model_validate(
        {
            "hosts": {"sandbox": {"kind": "sandbox", "home": str(base / "sandbox")}},
            "out": str(base / "out"),
        }
    )
    work = open_work(take_order(settings, archs="80+PTX"), settings)
    yield work
    work.close()
    assert isinstance(work.host, Sandbox)
    work.host.teardown()
