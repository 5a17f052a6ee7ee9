"""One wheel over two sandboxes: torch's own BuildExtension and ninja, genuine Windows binaries.

The wheel is the one that a sandbox builds alone, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from pipelines.buildplan import Request, resolve
from pipelines.config import Config
from pipelines.errors import AuditError
from pipelines.files import sha256_of
from pipelines.hosts.live import LiveSession
from pipelines.record import BuildResult
from pipelines.run import Run
from pipelines.stages.line import Line, run_build

pytestmark = pytest.mark.sandbox
AXES = {"recipe": "smoke-attention-torch", "archs": "80"}
HOSTS = ("first", "second-of-another-length")


@dataclass
class Sandboxes:
    """Two hosts with homes of their own."""

    settings: Config

    @contextmanager
    def line(self, host: str, **asked: object) -> Iterator[Line]:
        """A line for the wheel, or for what is asked of it, on that host."""
        request = Request(axes=AXES | {"host": host}, **asked)  # type: ignore[arg-type]
        plan = resolve(self.settings, request)
        line = Line(plan, LiveSession(plan.host))
        try:
            yield line
        finally:
            line.close()

    def built(self, host: str, **asked: object) -> tuple[Run, BuildResult]:
        """The run of a build there, and its result."""
        with self.line(host, **asked) as line:
            run_build(line)
            done = line.run.result(BuildResult)
            assert done is not None
            return line.run, done


@pytest.fixture(scope="module")
def sandboxes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandboxes]:
    base = tmp_path_factory.mktemp("shards")
    hosts = {name: {"kind": "sandbox", "home": str(base / name)} for name in HOSTS}
    made = Sandboxes(Config.model_validate({"hosts": hosts, "out": str(base / "out")}))
    yield made
    for name in HOSTS:
        with made.line(name) as line:
            assert line.plan.host.lifecycle is not None
            line.plan.host.lifecycle.teardown()


@pytest.fixture(scope="module")
def shares(sandboxes: Sandboxes) -> list[tuple[Run, BuildResult]]:
    """A share of each host's."""
    return [
        sandboxes.built(host, share=f"{number}/2") for number, host in enumerate(HOSTS, start=1)
    ]


def test_the_wheel_of_two_hosts_is_that_of_one(
    sandboxes: Sandboxes, shares: list[tuple[Run, BuildResult]]
) -> None:
    lists = [done.divided.units for _, done in shares if done.divided is not None]
    assert lists[0] == lists[1], "both see the same units"
    assert len(lists[0]) == 7
    counts = [len(done.divided.objects) for _, done in shares if done.divided is not None]
    assert sum(counts) == len(lists[0])
    assert min(counts) >= 3
    assert not [path for run, _ in shares for path in run.path.rglob("*.whl")]
    linked, done = sandboxes.built(HOSTS[1], objects=tuple(str(run.path) for run, _ in shares))
    assert done.divided is not None
    assert len(done.divided.placed) == len(lists[0])
    assert not done.divided.compiled
    whole, _ = sandboxes.built(HOSTS[0])
    wheels = [next(run.path.glob("wheels/*.whl")) for run in (linked, whole)]
    assert sha256_of(wheels[0]) == sha256_of(wheels[1])
    assert wheels[0].name == wheels[1].name
    print(f"\n{wheels[0].name}: {counts} units, sha256 {sha256_of(wheels[0])}")


def test_an_object_that_was_changed_at_home_is_refused(
    sandboxes: Sandboxes, shares: list[tuple[Run, BuildResult]]
) -> None:
    run, done = shares[0]
    assert done.divided is not None
    path = run.path / "objects" / done.divided.objects[0].sha256
    kept = path.read_bytes()
    path.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    try:
        with pytest.raises(AuditError, match=r"sha256"):
            sandboxes.built(HOSTS[1], objects=tuple(str(run.path) for run, _ in shares))
    finally:
        path.write_bytes(kept)
