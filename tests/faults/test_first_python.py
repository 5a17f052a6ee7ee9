"""Why a bare Windows gets no Python over a real WinRM connection; tests/powershell has the rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from hooked import DropConnectionError
from simulated_windows import SimulatedWindows, small_cache

from pipelines.core.errors import (
    HostError,
    PipelineError,
    ProvisionError,
    StorageError,
    TransferError,
)
from pipelines.hosts.windows import firstpython
from pipelines.hosts.windows.firstpython import install_python
from pipelines.session.transports import winrs
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


def test_host_switched_off_in_mid_upload(windows: SimulatedWindows, cache: Cache) -> None:
    def off(done: int, total: int) -> None:
        if done > total // 2 and windows.server is not None:
            windows.stop()

    with pytest.raises(HostError):
        install_python(windows.endpoint(), cache, progress=off, patience=5)
