"""A recipe's line with a sandbox of its own, which is removed behind it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelines.hosts.live import LiveSession
from pipelines.plan.config.model import Config
from pipelines.plan.matrix.buildplan import Request, resolve_build_plan
from pipelines.stages.line import Line


@contextmanager
def line_below(base: Path, **axes: str) -> Iterator[Line]:
    """The line of an order; nothing of it has begun. ``axes`` are those of the command line."""
    hosts = {"sandbox": {"kind": "sandbox", "home": str(base / "sandbox")}}
    settings = Config.model_validate({"hosts": hosts, "out": str(base / "out")})
    plan = resolve_build_plan(settings, Request(axes={**axes, "host": "sandbox"}))
    line = Line(plan, LiveSession(plan.host))
    try:
        yield line
    finally:
        line.close()
        assert plan.host.lifecycle is not None
        plan.host.lifecycle.teardown()


def wheel_of(line: Line) -> Path:
    """The one that was built."""
    (wheel,) = (line.run.path / "wheels").glob("*.whl")
    return wheel
