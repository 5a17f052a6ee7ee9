"""The figures of docs/figures.md, printed: ``make bench``. Nothing passes or fails by the clock.

Cold means an empty download cache and no sandbox; the distribution's packages are installed.
The peer of the warm run is what it replaces: starting one process per command over WinRS.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.core.paths import PACKAGE
from pipelines.hosts.base import OpenOptions, Silent
from pipelines.hosts.sandbox.config import SandboxHost
from pipelines.hosts.sandbox.host import Sandbox
from pipelines.remote import rpc
from pipelines.remote.jobs import follow, launch, store
from pipelines.session.transports.winrs import connect_winrs
from pipelines.toolchain.lock import Cache, load_lock


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    base = tmp_path_factory.mktemp("figures")
    config = base / "pipeline.yaml"
    config.write_text(
        f"hosts: {{sandbox: {{kind: sandbox, home: {base}/sandbox}}}}\nout: {base}/out\n"
    )
    environment = {**os.environ, "WCW_CONFIG": str(config), "XDG_CACHE_HOME": str(base / "cache")}
    yield environment
    invoke(environment, "host.remove")
    shutil.rmtree(base, ignore_errors=True)


def invoke(environment: dict[str, str], *tasks: str) -> tuple[float, float]:
    """Seconds and peak MiB of the controller for one command line."""
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "invoke", *tasks],
        cwd=PACKAGE.parent,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    output, _ = process.communicate()
    assert process.returncode == 0, output.decode()[-3000:]
    return time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def show(figure: str, value: str, goal: str) -> None:
    sys.stdout.write(f"\nFIGURE {figure:<46} {value:>12}   goal {goal}")


def test_main_job(environment: dict[str, str]) -> None:
    cold, _ = invoke(environment, "provision", "build", "test")
    show("cold: image, provision, build, test", f"{cold:.1f} s", "120 s with set-up")
    resumed, peak = invoke(environment, "provision", "build", "test")
    show("warm, units kept from the last build", f"{resumed:.1f} s", "30 s")
    warm, _ = invoke(environment, "provision", "build", "--archs", "75;80;86;89;90;120", "test")
    show("warm, every unit compiled", f"{warm:.1f} s", "30 s")
    nothing = min(invoke(environment, "provision")[0] for _ in range(3))
    show("provision with nothing to do", f"{nothing:.2f} s", "2 s")
    show("peak memory of a process of it", f"{peak:.0f} MiB", "200 MB")


def test_channel_against_a_process_per_command(tmp_path: Path) -> None:
    """A call through the channel against what one command in a shell of its own costs."""

    home = SandboxHost(kind="sandbox", home=str(tmp_path / "s"))
    sandbox = Sandbox("s", home, OpenOptions("3.11", Cache(load_lock()), Silent()))
    calls = 200
    with sandbox.connect() as session:
        session.call(rpc.ping)
        began = time.monotonic()
        for _ in range(calls):
            session.call(rpc.ping)
        ours = (time.monotonic() - began) / calls
        connection = connect_winrs(sandbox.endpoint(sandbox.start(ephemeral=True)))
        began = time.monotonic()
        for _ in range(5):
            shell = connection.open_shell(codepage=65001)
            command = connection.run_command(shell, sandbox.executable, ["-c", "print(1)"])
            connection.get_command_output(shell, command)
            connection.cleanup_command(shell, command)
            connection.close_shell(shell, close_session=False)
        theirs = (time.monotonic() - began) / 5
    sandbox.close()
    sandbox.teardown()
    show("a call through the channel", f"{ours * 1000:.1f} ms", "3.5 ms")
    show("a process a command over WinRS (pywinrm)", f"{theirs * 1000:.0f} ms", "-")
    show("ratio", f"{theirs / ours:.0f} x", "-")


def test_finding_a_job_again(tmp_path: Path) -> None:
    """From nothing to the log of a job that another controller has started."""
    home = SandboxHost(kind="sandbox", home=str(tmp_path / "s"))
    sandbox = Sandbox("s", home, OpenOptions("3.11", Cache(load_lock()), Silent()))
    sandbox.start(ephemeral=True)
    code = "import time\nfor n in range(600):\n    print(n, flush=True)\n    time.sleep(0.1)"
    spec: store.Spec = {
        "title": "bench",
        "function": "process.stream",
        "arguments": {"command": [sandbox.executable, "-u", "-c", code]},
    }
    with sandbox.connect() as session:
        session.call(launch.start, directory=r"C:\j", spec=spec)
    time.sleep(1)
    began = time.monotonic()
    with sandbox.connect() as session:
        found = session.call(launch.start, directory=r"C:\j", spec=spec)
        offset = found["log_size"]
        items = session.stream(follow.follow, directory=r"C:\j", attempt=1, offset=offset)
        assert next(iter(items))
        seconds = time.monotonic() - began
        session.call(follow.cancel, directory=r"C:\j")
    sandbox.close()
    sandbox.teardown()
    show("a job found again, sign-in included", f"{seconds:.2f} s", "2 s")
