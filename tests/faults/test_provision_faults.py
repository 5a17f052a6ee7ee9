"""The provision stage against a host behind the WS-Man simulator: what goes wrong, and going on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pipelines.architectures.archs import ArchList
from pipelines.config import Config
from pipelines.errors import HostError, LockError, ProvisionError, StorageError
from pipelines.evidence import Evidence
from pipelines.hosts.base import Capabilities, Host
from pipelines.hosts.sandbox.wsman import WsmanServer, write_credentials
from pipelines.provisioning.resources import Layout, Wanted
from pipelines.recipe.load import load_recipe
from pipelines.session.base import Session
from pipelines.session.channel import bootstrap_command, open_session
from pipelines.session.transports.endpoint import Endpoint
from pipelines.session.transports.winrs import WinRSStream
from pipelines.stages import provision as stage
from pipelines.stages.provision import provision
from pipelines.stages.work import Order, Work
from pipelines.toolchain.lock import Cache, ToolchainLock, load_lock

pytestmark = pytest.mark.faults


class Secret:
    def get_secret_value(self) -> str:
        return "Passw0rd!"


def launch(
    command_line: str, /, *, skip_cmd_shell: bool, env: Mapping[str, str], cwd: str | None
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["sh", "-c", f"exec {command_line}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        start_new_session=True,
    )


class SimulatedHost(Host):
    """This machine's Python behind a real WinRM service."""

    name = "simulated"
    evidence = Evidence.SIMULATED
    executable = sys.executable
    capabilities = Capabilities(windows=True, msvc=True, gpu=False, publishable=False)

    def __init__(self, server: WsmanServer) -> None:
        self.server = server

    def connect(self) -> Session:
        endpoint = Endpoint(self.server.http_url, "builder", Secret())
        return open_session(WinRSStream(endpoint, bootstrap_command(sys.executable)), name="host")

    def restart(self, session: Session) -> Session:
        """A restart takes everything away, this machine's boot identity excepted."""
        session.close()
        (self.server.place / "boot").write_text("second")  # type: ignore[attr-defined]
        return self.connect()

    def close(self) -> None:
        """Nothing to stop."""


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    with WsmanServer(
        launch, write_credentials(tmp_path / "users", "builder", "Passw0rd!")
    ) as server:
        config = Config.model_validate(
            {"hosts": {"sandbox": {"kind": "sandbox"}}, "out": str(tmp_path / "out")}
        )
        order = Order("simulated", "smoke-attention", "3.11", ArchList(("80",)), None)
        cache = Cache(load_lock(), tmp_path / "cache")
        made = Work(order, config, load_recipe("smoke-attention"), SimulatedHost(server), cache)
        temp = str(tmp_path / "t")
        made.__dict__["layout"] = Layout(
            build_root=temp,
            temp=temp,
            wheels=temp,
            uv="uv",
            cuda=temp,
            python=sys.executable,
            marker=str(tmp_path / "restart.json"),
            sccache="",
            ninja="",
            compile_cache=temp,
        )
        yield made
        made.close()


def installer(tmp_path: Path, code: str, **spec: Any) -> Wanted:
    path = tmp_path / "setup"
    head = "import os, sys\nhere = os.path.dirname(sys.argv[0])\n"
    path.write_text(
        f"#!{sys.executable}\n{head}open(here + '/new.log', 'w').write('log')\n{code}\n"
    )
    path.chmod(0o755)
    made = {
        "kind": "installer",
        "name": "tool",
        "version": "1",
        "file": str(path),
        "arguments": [],
        "detect": str(tmp_path / "installed*"),
        "success": [0],
        "reboot": [194],
        "as_task": False,
        "logs": [str(tmp_path / "*.log")],
        "minutes": 0.5,
    }
    return Wanted("the tool", "-", made | spec, {}, "tool 1")


def directory(path: Path) -> Wanted:
    return Wanted(path.name, "-", {"kind": "directory", "path": str(path)}, {}, str(path))


def want(work: Work, *wanted: Wanted) -> None:
    work.__dict__["wanted"] = list(wanted)


def test_a_failure_brings_its_logs_home_and_the_next_run_goes_on(
    work: Work, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    want(
        work,
        directory(tmp_path / "first"),
        installer(tmp_path, "print('\\x1b[31mno licence', flush=True)\nsys.exit(3)"),
        directory(tmp_path / "last"),
    )
    with pytest.raises(ProvisionError) as caught:
        provision(work)
    assert caught.value.exit_code == 7
    for part in ("the tool: wanted tool 1, found missing", "left with 3", "no licence"):
        assert part in caught.value.message
    home = work.out / "provision/simulated/the-tool"
    assert str(home) in caught.value.message
    assert (home / "new.log").read_text() == "log"
    assert "not yet" in capsys.readouterr().out
    assert (tmp_path / "first").is_dir()
    assert not (tmp_path / "last").exists()

    want(
        work,
        directory(tmp_path / "first"),
        installer(tmp_path, "open(here + '/installed-1', 'w')"),
        directory(tmp_path / "last"),
    )
    rows = provision(work)
    assert [row["changed"] for row in rows] == [False, True, True]
    assert not any(row["changed"] for row in provision(work))


def test_a_dry_run_changes_nothing(
    work: Work, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    want(work, directory(tmp_path / "first"), installer(tmp_path, ""))
    assert provision(work, dry_run=True) == []
    said = capsys.readouterr().out
    assert "would do" in said
    assert "make" in said
    assert "2 would change" in said
    assert not (tmp_path / "first").exists()


def test_an_installer_that_hangs(work: Work, tmp_path: Path) -> None:
    want(work, installer(tmp_path, "import time\ntime.sleep(77)", minutes=0.01))
    with pytest.raises(ProvisionError, match="did not end") as caught:
        provision(work)
    assert "dialogue" in caught.value.advice


def test_an_installer_that_lies(work: Work, tmp_path: Path) -> None:
    want(work, installer(tmp_path, "sys.exit(0)"))
    with pytest.raises(ProvisionError, match="after applying it the host still has missing"):
        provision(work)


def test_a_host_that_dies_during_an_installer(work: Work, tmp_path: Path) -> None:
    want(work, installer(tmp_path, "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)"))
    with pytest.raises(HostError) as caught:
        provision(work)
    assert "again" in caught.value.advice


def test_no_space_for_what_is_wanted(
    work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "_UNPACKED", 1 << 40)
    row = Wanted(
        "uv", "-", {"kind": "files", "path": str(tmp_path), "files": []}, {"uv": "x"}, "uv"
    )
    row.spec["files"] = [{"file": str(tmp_path / "none"), "sha256": "0" * 64}]
    want(work, row)
    with pytest.raises(StorageError, match="MiB are needed") as caught:
        provision(work)
    assert caught.value.exit_code == 11


def test_a_tool_that_cannot_be_fetched(work: Work, tmp_path: Path) -> None:
    url = "https://127.0.0.1:9/x.zip"
    source = {"url": url, "file": "x.zip", "sha256": "0" * 64, "size": 1}
    work.cache.lock = ToolchainLock.model_validate(
        {"version": 1, "tools": {"x": {"version": "1", "sources": [source]}}}
    )
    spec = {"kind": "files", "path": str(tmp_path), "files": [{"file": "/none", "sha256": "0"}]}
    want(work, Wanted("x", "-", spec, {"x": str(tmp_path / "x.zip")}, "x"))
    with pytest.raises(LockError, match="could not be fetched"):
        provision(work)
    assert not (tmp_path / "x.zip").exists()
