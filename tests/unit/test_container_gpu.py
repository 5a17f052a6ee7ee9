"""A Windows container with a GPU, as far as this machine has anything to do with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from test_passthrough import Engine

from pipelines.core.errors import HostError, RemoteError
from pipelines.hosts.base import OpenOptions
from pipelines.hosts.container import host
from pipelines.hosts.container.config import ContainerHost
from pipelines.hosts.engine.enginehost import ConnectionInfo
from pipelines.remote import cudafiles
from pipelines.toolchain.lock import Cache, load_lock

DIGEST = f"windows@sha256:{'0' * 64}"


def container(**keys: Any) -> host.Container:
    config = ContainerHost.model_validate({"kind": "container", "image": DIGEST, **keys})
    return host.Container("win", config, OpenOptions("3.11", Cache(load_lock())))


class Inside:
    """A session, and what is asked of the other end."""

    def __init__(self, fails: str = "") -> None:
        self.fails, self.asked, self.closed = fails, list[Callable[..., Any]](), 0

    def call(self, function: Callable[..., Any]) -> Any:
        self.asked.append(function)
        if self.fails:
            raise RemoteError(self.fails)
        return {"files": {"nvcuda.dll": "0"}}

    def close(self) -> None:
        self.closed += 1


def entered(monkeypatch: pytest.MonkeyPatch, made: host.Container, session: Inside) -> Any:
    """What comes of a connect to a container that runs already."""
    boxes = type("Boxes", (), {"await_ready": lambda *_: ConnectionInfo()})
    monkeypatch.setattr(host.Container, "manager", boxes())
    monkeypatch.setattr(host.Container, "_stream", lambda *_, **__: None)
    monkeypatch.setattr(host, "open_session", lambda *_, **__: session)
    made._managed = object()  # type: ignore[assignment]
    return made.connect()


@pytest.mark.parametrize(("gpu", "asked"), [(False, []), (True, [cudafiles.bring])])
def test_cuda_is_brought_where_a_gpu_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, gpu: bool, asked: list[Any]
) -> None:
    session = Inside()
    made = container(gpu=gpu)
    assert entered(monkeypatch, made, session) is session
    assert session.asked == asked
    devices = made.backend.keys(Engine("windows")).get("devices")  # type: ignore[arg-type]
    assert devices == (["class/5B45201D-F2F2-4F3B-85BB-30FF1F953599"] if gpu else None)


def test_a_container_without_the_driver_is_not_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Inside("FileNotFoundError: no NVIDIA driver")
    with pytest.raises(HostError, match="the container has no GPU") as caught:
        entered(monkeypatch, container(gpu=True), session)
    assert "invoke doctor --host win" in caught.value.hint
    assert session.closed == 1


def test_what_it_stands_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is opened: the engine is reached with little patience, and left again."""
    engine = Engine("windows", build="10.0.20348", image={"OsVersion": "10.0.26100.1"})
    patience: list[float] = []

    def reach(*_: object, timeout: float, **__: object) -> Engine:
        patience.append(timeout)
        return engine

    monkeypatch.setattr("pipelines.hosts.engine.engine.Engine", reach)
    made = container(gpu=True)
    told: Any = made.prerequisites()
    assert told["wanted"] == {
        "system": "windows",
        "gpu": "gpu: true",
        "kvm": False,
        "isolation": "process",
        "image": DIGEST,
    }
    assert told["runs"] is False
    assert engine.closed
    assert max(patience) <= 15
    sandbox = ContainerHost.model_validate({"kind": "container"})
    made = host.Container("box", sandbox, OpenOptions("3.11", Cache(load_lock())))
    told = made.prerequisites()
    assert (told["wanted"]["system"], told["wanted"]["image"]) == ("linux", "")
