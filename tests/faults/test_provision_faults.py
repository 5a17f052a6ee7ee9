"""The provision stage against a host behind the WS-Man simulator: what goes wrong, and going on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plans import Lab, installer_spec, line_for, plan_for, wanting
from winrm_programs import PASSWORD, USER, launch

from pipelines.core.errors import HostError, LockError, ProvisionError, StorageError
from pipelines.core.evidence import Evidence
from pipelines.hosts.base import Capabilities
from pipelines.hosts.sandbox.wsman.auth import write_credentials
from pipelines.hosts.sandbox.wsman.server import WsmanServer
from pipelines.plan.provisioning.resources import DesiredResource
from pipelines.record.results import ResourceResult
from pipelines.record.run import StageNotes
from pipelines.remote.files import sha256
from pipelines.session.base import Session
from pipelines.session.channel import bootstrap_command, open_session
from pipelines.session.transports.endpoint import Endpoint, Secret
from pipelines.session.transports.winrs import WinRSStream
from pipelines.stages import provision as stage
from pipelines.stages.line import Line
from pipelines.toolchain.lock import Cache, ToolchainLock, load_lock


class SimulatedHost(Lab):
    """This machine's Python behind a real WinRM service."""

    name = "simulated"
    evidence = Evidence.SIMULATED
    executable = sys.executable
    capabilities = Capabilities(windows=True, msvc=True, gpu=False, publishable=False)

    def __init__(self, server: WsmanServer) -> None:
        super().__init__()
        self.server = server

    def connect(self) -> Session:
        endpoint = Endpoint(self.server.http_url, USER, Secret(PASSWORD))
        return open_session(WinRSStream(endpoint, bootstrap_command(sys.executable)), name="host")


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    with WsmanServer(launch, write_credentials(tmp_path / "users", USER, PASSWORD)) as server:
        temp = str(tmp_path / "t")
        names = ("build_root", "temp", "wheels", "cuda", "compile_cache")
        places = dict.fromkeys(names, temp) | {"sccache": "", "ninja": "", "uv": "uv"}
        made = wanting(
            line_for(plan_for(tmp_path, SimulatedHost(server), archs="80")),
            **places,
            python=sys.executable,
            marker=str(tmp_path / "restart.json"),
        )
        made.plan = replace(made.plan, cache=Cache(load_lock(), tmp_path / "cache"))
        yield made
        made.close()


def provision(line: Line) -> tuple[ResourceResult, ...]:
    return stage.provision(line.session, line.plan, StageNotes()).resources


def installer(tmp_path: Path, code: str) -> DesiredResource:
    path = tmp_path / "setup"
    head = f"import os, sys\nhere = {str(tmp_path)!r}\n"
    path.write_text(
        f"#!{sys.executable}\n{head}open(here + '/new.log', 'w').write('log')\n{code}\n"
    )
    path.chmod(0o755)
    made: dict[str, Any] = {
        "detect": str(tmp_path / "installed*"),
        "logs": [str(tmp_path / "*.log")],
        "minutes": 0.5,
    }
    made = installer_spec(str(path), sha256(str(path)), **made)
    return DesiredResource("the tool", "-", made, {}, "tool 1")


def directory(path: Path) -> DesiredResource:
    return DesiredResource(path.name, "-", {"kind": "directory", "path": str(path)}, {}, str(path))


def test_a_failure_brings_its_logs_home_and_the_next_run_goes_on(
    line: Line, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanting(
        line,
        directory(tmp_path / "first"),
        installer(tmp_path, "print('\\x1b[31mnot licensed', flush=True)\nsys.exit(3)"),
        directory(tmp_path / "last"),
    )
    with pytest.raises(ProvisionError) as caught:
        provision(line)
    assert caught.value.exit_code == 7
    for part in ("the tool: expected tool 1, found missing", "exited with 3", "not licensed"):
        assert part in caught.value.message
    home = line.plan.out / "provision/simulated/the-tool"
    assert str(home) in caught.value.message
    assert (home / "new.log").read_text() == "log"
    assert "not yet" in capsys.readouterr().out
    assert (tmp_path / "first").is_dir()
    assert not (tmp_path / "last").exists()

    wanting(
        line,
        directory(tmp_path / "first"),
        installer(tmp_path, "open(here + '/installed-1', 'w')"),
        directory(tmp_path / "last"),
    )
    rows = provision(line)
    assert [row.changed for row in rows] == [False, True, True]
    assert not any(row.changed for row in provision(line))


def test_a_host_that_dies_during_an_installer(line: Line, tmp_path: Path) -> None:
    wanting(line, installer(tmp_path, "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)"))
    with pytest.raises(HostError) as caught:
        provision(line)
    assert "again" in caught.value.hint


def test_no_space_for_what_is_wanted(
    line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "_UNPACKED", 1 << 40)
    row = DesiredResource(
        "uv", "-", {"kind": "files", "path": str(tmp_path), "files": []}, {"uv": "x"}, "uv"
    )
    row.spec["files"] = [{"file": str(tmp_path / "none"), "sha256": "0" * 64}]
    wanting(line, row)
    with pytest.raises(StorageError, match="MiB free, but needs about") as caught:
        provision(line)
    assert caught.value.exit_code == 11


def test_a_tool_that_cannot_be_fetched(line: Line, tmp_path: Path) -> None:
    url = "https://127.0.0.1:9/x.zip"
    source = {"url": url, "file": "x.zip", "sha256": "0" * 64, "size": 1}
    line.plan.cache.lock = ToolchainLock.model_validate(
        {"version": 1, "tools": {"x": {"version": "1", "sources": [source]}}}
    )
    spec = {"kind": "files", "path": str(tmp_path), "files": [{"file": "/none", "sha256": "0"}]}
    wanting(line, DesiredResource("x", "-", spec, {"x": str(tmp_path / "x.zip")}, "x"))
    with pytest.raises(LockError, match="could not be fetched"):
        provision(line)
    assert not (tmp_path / "x.zip").exists()
