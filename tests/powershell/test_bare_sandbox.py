"""The road of every host: a Windows without Python, from the first request to a tested wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from windows import powershell_folder

from pipelines.core.errors import HostError, ProvisionError
from pipelines.core.paths import PACKAGE
from pipelines.hosts.base import OpenOptions, Silent
from pipelines.hosts.live import LiveSession
from pipelines.hosts.winrm.config import WinRMHost
from pipelines.hosts.winrm.host import WindowsHost
from pipelines.remote import rpc
from pipelines.session.transports.endpoint import Endpoint
from pipelines.toolchain.lock import Cache, load_lock

#: What a build needs of Python besides, which real hosts get from an archive of its own.
_DEVELOPMENT = ("Include", "libs")


class Events(Silent):
    """Remembers the steps."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def step(self, text: str) -> None:
        self.steps.append(text)


def _install_python(endpoint: Endpoint, folder: Path, executable: str, cache: Cache) -> None:
    """Into ``folder``, by the adapter for users' own machines."""
    config = WinRMHost(
        kind="winrm",
        endpoint=endpoint.url,
        username=endpoint.username,
        password_env="BARE_PASSWORD",
        ca=str(endpoint.ca),
        python=executable,
    )
    events = Events()
    options = OpenOptions("3.11", cache, events)
    with pytest.raises(HostError, match="did not start"):
        WindowsHost("bare", config, options).connect()
    config = config.model_copy(update={"bootstrap": True})
    host = WindowsHost("bare", config, options)
    changed = folder / "LICENSE.txt"
    with LiveSession(host) as session:
        assert session.call(rpc.ping)
        genuine = changed.read_bytes()
        changed.write_text("changed by a build")
        session.prepare(repair=True)
        assert session.call(rpc.ping)
    assert changed.read_bytes() == genuine
    mode = folder.stat().st_mode
    folder.chmod(0o777)  # others may have put there what is in it: it is not started
    with pytest.raises(ProvisionError, match="is not safe to use"):
        host.connect()
    folder.chmod(mode)
    with host.connect() as again:
        assert again.call(rpc.ping)
    assert len(events.steps) == 2, "in the end it was there"


def test_from_nothing_to_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    powershell_folder()
    from pipelines.hosts.sandbox.config import SandboxHost
    from pipelines.hosts.sandbox.host import Sandbox
    from pipelines.hosts.sandbox.image import make_image

    base, cache = tmp_path / "bare", Cache(load_lock())
    config = SandboxHost.model_validate({"kind": "sandbox", "home": str(base)})
    sandbox = Sandbox("bare", config, OpenOptions("3.11", cache, Silent()))
    sandbox._make()
    python = sandbox.prefix / "drive_c/Python311"
    for name in _DEVELOPMENT:
        (python / name).rename(tmp_path / name)
    shutil.rmtree(python)
    try:
        endpoint = sandbox.endpoint(sandbox.start(ephemeral=True))
        assert endpoint.url.startswith("https://")
        monkeypatch.setenv("BARE_PASSWORD", endpoint.secret() or "")
        _install_python(endpoint, python, sandbox.executable, cache)
        for name in _DEVELOPMENT:
            (tmp_path / name).rename(python / name)
        (tmp_path / "pipeline.yaml").write_text(
            f"default: {{host: bare}}\nhosts: {{bare: {{kind: sandbox, home: {base}}}}}\n"
        )
        done = subprocess.run(
            [sys.executable, "-m", "pipelines", "provision", "build", "test"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
        report = (tmp_path / "out/latest/junit.xml").read_text()
        assert 'failures="0" errors="0"' in report
        # What bootstrap, provisioning and build have made is closed: Wine keeps the rights of
        # Everyone as those of others. What is in the image was made by other means.
        image = {path.name for path in make_image(cache, "3.11", str).glob("drive_c/*")}
        drive = sandbox.prefix / "drive_c"
        made = {
            path.name: path for path in drive.iterdir() if path.name not in image - {python.name}
        }
        assert {"b", "t", "w", "tools", "cuda", python.name} <= set(made)
        assert [name for name, path in made.items() if path.stat().st_mode & 0o007] == []
    finally:
        sandbox.teardown()
