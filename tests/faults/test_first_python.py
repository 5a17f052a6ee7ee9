"""Why a bare Windows gets no Python over a real WinRM connection; tests/powershell has the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import pytest
from hooked import DropConnectionError
from simulated_windows import PASSWORD, Secret, SimulatedWindows, small_cache

from pipelines.core.errors import (
    AuthError,
    HostError,
    PipelineError,
    ProvisionError,
    StorageError,
    TransferError,
)
from pipelines.hosts.base import OpenOptions
from pipelines.hosts.live import LiveSession
from pipelines.hosts.windows import firstpython
from pipelines.hosts.windows.firstpython import install_python, is_there
from pipelines.hosts.winrm.config import WinRMHost
from pipelines.hosts.winrm.host import WindowsHost
from pipelines.remote import rpc
from pipelines.session.transports import winrs
from pipelines.session.transports.endpoint import Endpoint
from pipelines.toolchain.lock import Cache

#: What bootstrap.ps1 tells apart, and what is raised of it if that is not a ProvisionError.
KINDS = get_args(firstpython.Answer.model_fields["kind"].annotation)
ERRORS = {"damaged": TransferError, "disk-full": StorageError}

PYTHON = "C:\\wcw\\python\\python.exe"


class Cut:
    """Cuts the connection at the n-th Send."""

    def __init__(self) -> None:
        self.at = 0

    def before_request(self, action: str, shell_id: str | None) -> None:
        if action.endswith("Send") and self.at:
            self.at -= 1
            if self.at == 0:
                raise DropConnectionError(reset=True)

    def before_response(self, action: str, body: bytes) -> bytes | None:
        return body


@pytest.fixture
def cut() -> Cut:
    return Cut()


@pytest.fixture
def windows(tmp_path: Path, cut: Cut) -> Iterator[SimulatedWindows]:
    place = tmp_path / "windows"
    place.mkdir()
    host = SimulatedWindows(place, hooks=cut)
    yield host
    host.stop()


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return small_cache(tmp_path / "cache")


def test_to_look_sends_nothing(windows: SimulatedWindows, cache: Cache) -> None:
    steps: list[tuple[int, int]] = []
    assert not is_there(windows.endpoint(), cache)
    assert not (windows.place / "C").exists()
    install_python(windows.endpoint(), cache, progress=lambda *step: steps.append(step))
    assert len(steps) > 3, "one Send would prove nothing"
    assert steps == sorted(steps)
    assert is_there(windows.endpoint(), cache)


def test_banner_before_the_answer(windows: SimulatedWindows, cache: Cache) -> None:
    windows.mode("banner")
    assert install_python(windows.endpoint(), cache) == PYTHON


@pytest.mark.parametrize(
    ("mode", "kind", "said"),
    [
        *((f"failed {kind}", ERRORS.get(kind, ProvisionError), "said") for kind in KINDS),
        ("dies", HostError, "ended without an answer.*exit code 1.*out of memory"),
        ("policy", HostError, "ended without an answer.*only on core types"),
        ("not json", HostError, "expected an answer of bootstrap.ps1"),
        ("endless", HostError, "expected an answer of bootstrap.ps1.*xxxx"),
        ("flood", HostError, "expected an answer of bootstrap.ps1.*yyyy"),
        ("unknown key", HostError, "expected an answer"),
        ("unknown state", HostError, "expected an answer"),
        ("another place", HostError, "evil"),
        ("32 bits", HostError, "32 bits"),
        ("another version", ProvisionError, "3.11.8.*3.11.9 is pinned"),
    ],
)
def test_what_goes_wrong(
    windows: SimulatedWindows, cache: Cache, mode: str, kind: type[PipelineError], said: str
) -> None:
    windows.mode(mode)
    with pytest.raises(PipelineError, match=f"(?s){said}") as caught:
        install_python(windows.endpoint(), cache)
    assert type(caught.value) is kind
    assert caught.value.hint
    assert "\x1b" not in caught.value.message
    assert not (windows.place / "C").exists()
    windows.mode("good")
    assert install_python(windows.endpoint(), cache) == PYTHON  # nothing stands in the way


@pytest.mark.parametrize("mode", ["silent", "deaf"])
def test_host_that_stops_answering(
    windows: SimulatedWindows, cache: Cache, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(winrs, "UNREAD", 1.5)
    windows.mode(mode)
    with pytest.raises(
        HostError, match=r"no answer from PowerShell within|does not read its input"
    ):
        install_python(windows.endpoint(), cache, patience=1.5)


def test_connection_cut_in_mid_upload(windows: SimulatedWindows, cache: Cache, cut: Cut) -> None:
    cut.at = 4
    with pytest.raises(HostError, match="connection was lost while Python"):
        install_python(windows.endpoint(), cache)
    assert cut.at == 0, "the fault was never met"
    assert not (windows.place / "C").exists()
    assert install_python(windows.endpoint(), cache) == PYTHON


def test_host_switched_off_in_mid_upload(windows: SimulatedWindows, cache: Cache) -> None:
    def off(done: int, total: int) -> None:
        if done > total // 2 and windows.server is not None:
            windows.stop()

    with pytest.raises(HostError):
        install_python(windows.endpoint(), cache, progress=off, patience=5)


def test_no_powershell(windows: SimulatedWindows, cache: Cache) -> None:
    (windows.place / "bin/powershell.exe").unlink()
    with pytest.raises(HostError, match=r"exit code 127.*powershell\.exe.*not found"):
        install_python(windows.endpoint(), cache)


def test_wrong_password(windows: SimulatedWindows, cache: Cache) -> None:
    with pytest.raises(AuthError):
        install_python(Endpoint(windows.url, "builder", Secret("wrong")), cache)


# -- as the adapter uses it ------------------------------------------------------------------------


@pytest.fixture
def host_of(
    windows: SimulatedWindows, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., WindowsHost]:
    monkeypatch.setenv("LAB_PASSWORD", PASSWORD)

    def make(cache: Cache = cache, **keys: object) -> WindowsHost:
        settings = {
            "kind": "winrm",
            "endpoint": windows.url,
            "username": "builder",
            "password_env": "LAB_PASSWORD",
        }
        return WindowsHost(
            "lab", WinRMHost.model_validate(settings | keys), OpenOptions("3.11", cache)
        )

    return make


def test_a_python_that_others_may_have_planted_is_never_started(
    windows: SimulatedWindows, host_of: Callable[..., WindowsHost]
) -> None:
    host_of().connect().close()
    started = windows.place / "started"
    planted = windows.place / "C/wcw/python/python.exe"
    planted.write_text(f"#!/bin/sh\ntouch {started}\n")
    windows.mode("failed unsafe")
    with pytest.raises(ProvisionError, match="said"):
        host_of().connect()
    assert not started.exists()


def test_a_repair_replaces_a_python_that_says_it_is_right(
    windows: SimulatedWindows, host_of: Callable[..., WindowsHost]
) -> None:
    with LiveSession(host_of()) as session:
        assert session.call(rpc.ping)
        python = windows.place / "C/wcw/python/python.exe"
        genuine = python.read_bytes()
        python.write_bytes(genuine + b"\n# changed by a build\n")
        session.prepare(repair=False)
        assert session.call(rpc.ping)
        assert python.read_bytes() != genuine, "it would prove nothing"
        session.prepare(repair=True)
        assert session.call(rpc.ping)
        assert python.read_bytes() == genuine
        assert not session.host._fresh  # type: ignore[attr-defined]


def test_failed_bootstrap_is_not_remembered(
    windows: SimulatedWindows, host_of: Callable[..., WindowsHost]
) -> None:
    host = host_of()
    windows.mode("failed disk-full")
    with pytest.raises(StorageError):
        host.connect()
    windows.mode("good")
    host.connect().close()


def test_no_bootstrap_unless_wanted(
    windows: SimulatedWindows, host_of: Callable[..., WindowsHost]
) -> None:
    for keys in ({"bootstrap": False}, {"python": "C:\\Python311\\python.exe"}):
        with pytest.raises(HostError, match="did not start"):
            host_of(**keys).connect()
    assert not (windows.place / "told").exists()
    host_of(python="C:\\tools\\py\\python.exe", bootstrap=True).connect().close()
    assert (windows.place / "C/tools/py/python.exe").exists()


def test_host_that_is_not_there_is_not_bootstrapped(
    windows: SimulatedWindows, host_of: Callable[..., WindowsHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    windows.stop()
    monkeypatch.setattr(firstpython, "install_python", lambda *_, **__: pytest.fail("tried"))
    with pytest.raises(HostError, match="no connection"):
        host_of().connect()
