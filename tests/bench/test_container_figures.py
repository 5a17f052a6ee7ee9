"""A host in a container: how soon it can be used, and what the main job costs in it.

The peer is the bare sandbox, in the same run, turn about. Needs a container engine with the image
of the sandbox: ``make docker`` brings both.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipelines.core.paths import PACKAGE
from pipelines.hosts import images
from pipelines.hosts.base import Host, OpenOptions, Silent
from pipelines.hosts.engine.engine import Engine
from pipelines.plan.config.model import load_config
from pipelines.remote import facts
from pipelines.toolchain.lock import Cache, load_lock

HOSTS = """\
hosts:
  bare: {kind: sandbox}
  box: {kind: container, memory: 8g, cache: false}
  by-exec: {kind: container, memory: 8g, cache: false, via: exec}
  lasting: {kind: container, memory: 8g, keep: true}
"""
TURNS = int(os.environ.get("CONTAINER_TURNS", "3"))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    cache = Cache(load_lock())
    if images.find(Engine(), "sandbox", "3.11", cache) is None:
        pytest.fail("there is no image of the sandbox. Type: make docker")
    (tmp_path / "pipeline.yaml").write_text(HOSTS)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    wcw(tmp_path, "host", "remove", "--host", "lasting", "--force")
    wcw(tmp_path, "host", "remove", "--host", "bare", "--force")


def wcw(home: Path, *words: str) -> tuple[float, str]:
    """A command as it is typed: seconds, and what it said."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pipelines", *words],
        cwd=home,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return time.monotonic() - began, done.stdout


def host(name: str) -> Host:
    return load_config().host(name).open(name, OpenOptions("3.11", Cache(load_lock()), Silent()))


def connected(make: Callable[[], Host]) -> float:
    """Seconds until a function has run there; nothing is imported for the first time in them."""
    one = make()
    began = time.monotonic()
    with one.connect() as session:
        session.call(facts.facts)
        took = time.monotonic() - began
    one.close()
    return took


def told(name: str, values: list[float]) -> None:
    each = " ".join(f"{value:.2f}" for value in values)
    print(f"{name}: {statistics.median(values):.2f} s in the median of {each}")


def test_how_soon_a_container_can_be_used(home: Path) -> None:
    connected(lambda: host("box"))  # imports, and what the engine reads for the first time
    print()
    told("fresh, WinRM", [connected(lambda: host("box")) for _ in range(TURNS)])
    told("fresh, exec", [connected(lambda: host("by-exec")) for _ in range(TURNS)])
    connected(lambda: host("lasting"))
    told("adopted, WinRM", [connected(lambda: host("lasting")) for _ in range(TURNS)])


def test_the_main_job_in_a_container(home: Path) -> None:
    """Each from a fresh host to a tested wheel; images are there."""
    taken: dict[str, list[float]] = {"bare": [], "box": []}
    wcw(home, "provision", "--host", "bare")  # makes the sandbox's own image, once
    for turn in range(TURNS):
        for name in ("bare", "box") if turn % 2 else ("box", "bare"):
            if name == "bare":
                wcw(home, "host", "remove", "--host", "bare", "--force")
            seconds, said = wcw(home, "provision", "build", "test", "--host", name)
            assert re.search(r"\b3\d passed", said)
            taken[name].append(seconds)
    print()
    for name, values in taken.items():
        told(name, values)
    ratios = [box / bare for box, bare in zip(taken["box"], taken["bare"], strict=True)]
    least, most = min(ratios), max(ratios)
    print(f"in a container / bare: {statistics.median(ratios):.2f} ({least:.2f} to {most:.2f})")
