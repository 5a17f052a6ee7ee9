"""``invoke host stop`` and its like: builds that would end are named first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pipelines.cli import host
from pipelines.core.errors import ConfigError, HostError
from pipelines.hosts import base
from pipelines.hosts.base import GpuWay

JOB: dict[str, Any] = {
    "id": "79a4b4bca157",
    "directory": r"C:\b\79a4b4bca157",
    "title": "smoke-attention-cp311",
    "state": "running",
    "attempt": 1,
}
ENDED = JOB | {"id": "79ff", "state": "lost"}


class Host:
    """A sandbox that remembers what was done with it."""

    name = "s"
    gpu_way = GpuWay()

    def inspect_only(self) -> bool:
        return False

    def __init__(self, address: str) -> None:
        self.did: list[str] = []
        self.lifecycle = self
        self._address = address

    def address(self) -> str:
        return self._address

    def stop(self) -> bool:
        self.did.append("stop")
        return True

    def teardown(self) -> bool:
        self.did.append("teardown")
        return True

    def missing_image(self) -> str:
        return "the image of a later release, while this one runs"

    unmade = base.Host.unmade


class Session:
    def __init__(self, listed: Any) -> None:
        self.listed = listed
        self.closed = 0

    def call(self, *_: object, **__: object) -> Any:
        if isinstance(self.listed, HostError):
            raise self.listed
        return self.listed

    def close(self) -> None:
        self.closed += 1


def line(listed: Any, address: str = "process 1") -> Any:
    plan = SimpleNamespace(host=Host(address), layout=SimpleNamespace(build_root=r"C:\b"))
    return SimpleNamespace(plan=plan, session=Session(listed))


@pytest.mark.parametrize("name", ["stop", "remove"])
def test_builds_are_named_and_go_on(name: str) -> None:
    given = line([JOB, ENDED, JOB | {"id": "80", "title": "other"}])
    with pytest.raises(
        ConfigError, match=r"2 jobs run on s, and.*79a4b4bca157 .*; 80 other"
    ) as caught:
        getattr(host, name).run(given)
    assert caught.value.exit_code == 2
    assert "invoke jobs --follow 79a4b4bca157" in caught.value.hint
    assert f"invoke host {name} --host s --force" in caught.value.hint
    assert "79ff" not in caught.value.message
    assert given.plan.host.did == []
    assert given.session.closed == 1, "else the connection is lost with the sandbox"
    given.plan.host.gpu_way = GpuWay(bridged=True)  # which has a Windows of its own
    with pytest.raises(ConfigError) as caught:
        getattr(host, name).run(given)
    assert f"invoke host {name} --host s --gpu --force" in caught.value.hint


@pytest.mark.parametrize("name", ["stop", "remove"])
@pytest.mark.parametrize(
    ("listed", "force", "address"),
    [([JOB], True, "process 1"), ([ENDED], False, "process 1"), ([JOB], False, "")],
)
def test_what_ends_no_build_or_is_forced_to(
    name: str, listed: list[Any], force: bool, address: str
) -> None:
    given = line(listed, address)
    getattr(host, name).run(given, force=force)
    assert given.plan.host.did == [{"remove": "teardown"}.get(name, name)]


@pytest.mark.parametrize("told", [HostError("no answer"), [JOB | {"state": "?"}]])
def test_a_sandbox_that_cannot_be_asked(told: Any) -> None:
    given = line(told)
    with pytest.raises(HostError, match="what runs there is unknown") as caught:
        host.stop.run(given)
    assert "--force" in caught.value.hint
    assert given.plan.host.did == []
